"""Several reports as tables: facts once for each device, and a row for each case."""

from collections.abc import Iterator
from typing import Any

from portable_probe.output import as_columns
from portable_probe.report import launch_words, triton_of, use_of, warps_of, words_of
from portable_probe.report_types import Report
from portable_probe.text import shortened, verification
from portable_softmax.devices.schema import Hardware

HEADER = ("device", "case", "launch", "regs", "shared", "spills", "programs", "warps", "us", "limited by")


def as_tables(reports: list[Report], form: str = "plain", facts: bool = True, advice: bool = True) -> str:
    """Returns a table of facts, with a column for each device, and one of the answers; then remarks, each once.

    Args:
        reports: of one case on several devices, of several cases, or both.
        form: of tabulate; "github" for Markdown.
        facts: True for the first table.
        advice: True for a remark on the next step of each.
    """
    parts = [_facts(reports, form)] if facts else []
    parts.append(f"{_title(reports)}\n\n{_answers(reports, form)}")
    who: dict[str, list[str]] = {}
    for report in reports:
        for remark in _remarks(report, advice):
            who.setdefault(remark, []).append(", ".join(filter(None, (report.device.name, _case(report)))))
    remarks = [f"{'; '.join(dict.fromkeys(names))}: {remark}" for remark, names in who.items()]
    if remarks:
        parts.append("\n".join(f"- {line}" for line in remarks) if form == "github" else "\n".join(remarks))
    return "\n\n".join(parts)


def worst_last(reports: list[Report]) -> list[Report]:
    """Sorts the reports of each device: first those that spill least, of these those with the most warps at once."""
    devices = list(dict.fromkeys(report.device.name for report in reports))

    def rank(report: Report) -> tuple[int, bool, int, int]:
        use, device = use_of(report), devices.index(report.device.name)
        if use is None:
            return device, True, 0, 0
        resources, occupancy = use
        fits = occupancy.programs_per_multiprocessor > 0
        return device, not fits, resources.spilled_bytes_per_thread, -(occupancy.warps_per_multiprocessor or 0)

    return sorted(reports, key=rank)


def _title(reports: list[Report]) -> str:
    first, cases = reports[0], list(dict.fromkeys(filter(None, map(_case, reports))))
    what = f"kernel {first.kernel.name}" if first.kernel else "softmax"
    times = (
        "\nus: expected; ~ by assumed numbers; > at least, bytes / bandwidth" if any(report.time for report in reports) else ""
    )
    return f"{what}{f' {cases[0]}' if len(cases) == 1 else ''}, {triton_of(first)}{times}"


def _facts(reports: list[Report], form: str) -> str:
    devices = {report.device.name: report for report in reports}
    rows = [
        ["target", *(f"{each.device.backend}/{each.device.arch}" for each in devices.values())],
        ["multiprocessor", *(each.device.multiprocessor for each in devices.values())],
    ]
    for key in Hardware.__struct_fields__:
        told = [each.facts[key].used if key in each.facts else None for each in devices.values()]
        if any(value is not None for value in told):
            rows.append([key, *map(shortened, told)])
    return as_columns(["", *devices], rows, form)


def _answers(reports: list[Report], form: str) -> str:
    one = len({_case(report) for report in reports}) == 1
    rows = [_row(report) for report in reports]
    empty = {name for name in ("us",) if not any(row.get(name) for row in rows)} | ({"case"} if one else set())
    header = [name for name in HEADER if name not in empty]
    return as_columns(header, [[row.get(name) for name in header] for row in rows], form)


def _row(report: Report) -> dict[str, Any]:
    row: dict[str, Any] = {"device": report.device.name, "case": _case(report).replace(" x ", "x")}
    use = use_of(report)
    if use is None:
        return row | {"launch": "not compiled"}
    resources, occupancy = use
    return row | {
        "launch": launch_words(report),
        "regs": resources.registers_per_thread,
        "shared": resources.shared_memory_bytes,
        "spills": resources.spilled_bytes_per_thread,
        "programs": f"{occupancy.programs_per_multiprocessor}/{report.device.multiprocessor}",
        "warps": warps_of(report, short=True) or None,
        "us": _microseconds(report),
        "limited by": ", ".join(occupancy.limited_by),
    }


def _microseconds(report: Report) -> str | None:
    """Tells the expected time, or the memory's floor where the profile has no numbers for it."""
    if not report.time:
        return None
    expected = report.time.expected_us
    told = report.time.floor_us if expected is None else expected
    mark = ">" if expected is None else "~" if report.time.error is None else ""
    return f"{mark}{told:{'.1f' if told >= 0.1 else '.1g'}}"


def _case(report: Report) -> str:
    if report.kernel:
        number = "" if report.kernel.config is None else f"{report.kernel.config}: "
        chosen = report.kernel.chosen or {}
        return f"{number}{' '.join(f'{name} {value}' for name, value in chosen.items())}".rstrip(": ")
    return words_of(report.problem) if report.problem else ""


def _remarks(report: Report, advice: bool) -> Iterator[str]:
    if report.error:
        said = str(report.message).replace(f" for {report.device.backend}/{report.device.arch}:", ":")  # once for several
        yield f"{report.error}: {said}" if use_of(report) is None else said
    elif advice and report.next_step:
        yield f"next step: {report.next_step.text}"
    if report.verify:
        yield from verification(report.verify)
