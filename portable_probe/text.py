"""Reports as text: one in detail, several as a table; with the facts of the hardware on request."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from portable_probe.output import as_columns, many
from portable_probe.report import FactValue, Report, Time, Verified

HEADER = ("device", "case", "launch", "regs", "shared", "spills", "programs", "warps", "us", "limited by")
WIDTH = 105  # of a line after its title
OPTIONS = ("num_warps", "num_stages", "num_ctas")  # of a kernel, that are always shown


def as_text(reports: list[Report], form: str = "plain", explain: bool = False, facts: bool = False) -> str:
    """Returns reports for a terminal, or as Markdown.

    Args:
        reports: one, which is shown in detail as plain text, or several.
        form: tabulate's; "github" for Markdown.
        explain: True for the reasons, and the count of each limit.
        facts: True for the facts of the hardware, with their origins.
    """
    if len(reports) == 1 and form == "plain":
        wrapped = [
            (title, [part for line in said for part in _wrapped(line)]) for title, *said in _details(reports[0], explain)
        ]
        lines = [(title * (not at), line) for title, said in wrapped for at, line in enumerate(said)]
        parts = ["\n".join(f"{title:<10}{line}" for title, line in lines)]
    else:
        remarks = "\n".join(f"- {line}" if form == "github" else line for line in _remarks(reports, explain))
        parts = [_title(reports), _table(reports, form), *([remarks] if remarks else [])]
    devices = {report.device.name: report for report in reports} if facts else {}
    return "\n\n".join([*parts, *(_facts(report, form) for report in devices.values())])


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]  # keeps columns
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def verdict(verify: Verified) -> list[str]:
    """Returns PASS or FAIL with the distance from the exact result, and what ran if it was an emulator."""
    error, worst = ("not finite" if number is None else f"{number:.2g}" for number in (verify.max_error, verify.worst))
    beside = f"{verify.overwritten} other elements overwritten" if verify.overwritten else "nothing else written"
    outcome = f"{'PASS' if verify.right else 'FAIL'}: max error {error}, {worst} times the tolerance; {beside}"
    return [outcome, *([verify.executed] if verify.executed else [])]


def shortened(value: FactValue | None) -> Any:
    """Returns a number as it is; of several, their count, the first and the last."""
    return f"{len(value)} from {value[0]} to {value[-1]}" if isinstance(value, tuple) else value


def _details(report: Report, explain: bool) -> Iterator[tuple[str, ...]]:
    """Yields (title, lines), the answer first."""
    launch, used, fits = report.launch, report.resources, report.occupancy
    yield "kernel" if report.kernel else "softmax", f"{report.case} on {report.device.name}; {_triton(report)}"
    if report.verify:
        yield "verify", *verdict(report.verify)
    if report.verify and not explain:
        return
    if report.error:
        yield "ERROR", f"{report.error}: {report.message}"
    if launch and launch.tiling:
        yield "plan", f"{launch.tiling}, num_programs {launch.num_programs}"
    elif launch and report.kernel:
        by = {"configuration": f"configuration {report.kernel.config}", "argument": "specialised, by the argument"}
        chosen = {
            name: option for name, option in launch.options.items() if name in OPTIONS or option.by not in ("default", "Triton")
        }
        for title, group in (("launch", chosen), ("constants", launch.constants)):
            yield title, "  ".join(f"{name}={option.value} ({by.get(option.by, option.by)})" for name, option in group.items())
        yield "grid", *([" x ".join(map(str, launch.grid))] if launch.grid else [])
        kinds = dict.fromkeys(launch.arguments.values())
        yield "arguments", *(f"{' '.join(n for n, k in launch.arguments.items() if k == kind)}: {kind}" for kind in kinds)
    if fits and used:
        warps = f", {_warps(report)}" if _warps(report) else ""
        where = f"{many(fits.programs_per_multiprocessor, 'program')} per {report.device.multiprocessor}{warps}"
        yield "occupancy", f"{where}, limited by {' and '.join(fits.limited_by)}; {report.resident_programs} on the device"
        yield "uses", str(used)
    if report.time:
        yield "time", *_time(report.time)
    yield "warning", *report.warnings
    if explain and fits:
        yield "why", *report.reasons
        yield "limits", *(f"{name:20}{n:>6}{'   binds' * (name in fits.limited_by)}" for name, n in fits.limits.items())
    if report.next_step and not report.error:
        yield "next step", report.next_step


def _time(time: Time) -> Iterator[str]:
    if time.expected_us is not None:
        terms = sorted(time.terms.items(), key=lambda term: -term[1])
        unit = microseconds if time.expected_us >= 1e3 else "{:.1f}".format
        parts = ", ".join(f"{name} {unit(us)}" for name, us in terms if us >= max(0.05, 1e-3 * time.expected_us))
        low, high = (microseconds(time.expected_us * (1 + sign * (time.error or 0))) for sign in (-1, 1))
        sure = f"{low} to {high} in 9 of 10 cases" if time.error else "not calibrated for this device"
        yield f"{microseconds(time.expected_us)} expected ({sure}): {parts}"
    if time.floor_us and time.bytes:
        yield f"{microseconds(time.floor_us)} at least, for {bytes_of(time.bytes)} at the data sheet's bandwidth"


def microseconds(us: float) -> str:
    """Returns a time in a unit that suits it."""
    return f"{us:.3g} us" if us < 1e3 else f"{us / 1e3:.3g} ms" if us < 1e6 else f"{us / 1e6:.3g} s"


def bytes_of(number: float) -> str:
    """Returns bytes in a unit that suits them."""
    unit, size = next((unit, size) for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 0)) if number >= size)
    return f"{number / (size or 1e6):,.1f} {unit}"


def _warps(report: Report) -> str | None:
    """Returns resident warps and their share of the most that are possible; None if programs have no warps."""
    fact = report.facts.get("max_warps_per_multiprocessor")
    warps = report.occupancy.warps_per_multiprocessor if report.occupancy else None
    if warps is None or not fact or not isinstance(fact.used, int):
        return None if warps is None else many(warps, "warp")
    return f"{warps} of {fact.used} warps ({warps / fact.used:.0%})"


def _triton(report: Report) -> str:
    names = [name for name in ("triton", "triton-ascend", "triton-xpu") if name in report.software]
    return ", ".join(f"{name.replace('triton', 'Triton')} {report.software[name]}" for name in names) or "no Triton"


def _facts(report: Report, form: str) -> str:
    """Returns a device, the software, and a table of the facts with their origins."""
    about, rows = report.device, []
    where = "absent" if not about.here else "local" if about.index is None else f"index {about.index}"
    versions = ", ".join(f"{name} {version}" for name, version in report.software.items())
    for name, fact in report.facts.items():
        source = fact.profile_source if fact.origin in ("profile", "estimated") else None
        origin = f"{fact.origin} ({source.verified})" if source else fact.origin
        rows.append((name, *map(shortened, (fact.runtime, fact.profile, fact.used)), origin))
    table = as_columns(("", "runtime", "profile", "used", "from"), rows, form, ("left", "right", "right", "right", "left"))
    head = f"device    {about.name}  ({about.backend}/{about.arch}, {about.architecture}, {where}), profile {about.profile}"
    return f"{head}\nsoftware  {versions}\n\n{table}"


def _title(reports: list[Report]) -> str:
    first, cases = reports[0], {_case(report) for report in reports}
    what = f"kernel {first.kernel.name}" if first.kernel else "softmax"
    timed = any(report.time for report in reports)
    times = "\nus: estimated; ~ not calibrated for this device; > lower bound, bytes / bandwidth" if timed else ""
    return f"{what}{f' {min(cases)}' if len(cases) == 1 and min(cases) else ''}, {_triton(first)}{times}"


def _case(report: Report) -> str:
    return report.kernel.variant if report.kernel else str(report.case)


def _table(reports: list[Report], form: str) -> str:
    rows = [_row(report) for report in reports]
    hidden = {"us"} if not any(row.get("us") for row in rows) else set()
    hidden |= {"case"} if len({row["case"] for row in rows}) == 1 else set()
    header = [name for name in HEADER if name not in hidden]
    cells = [[_cell(row.get(name)) if form == "github" else row.get(name) for name in header] for row in rows]
    return as_columns(header, cells, form)


def _row(report: Report) -> dict[str, Any]:
    used, fits, launch = report.resources, report.occupancy, report.launch
    row = {"device": report.device.name, "case": _case(report).replace(" x ", "x")}
    if not used or not fits or not launch:
        return row | {"launch": verdict(report.verify)[0][:4] if report.verify else "not compiled"}
    warps = [many(launch.options[f"num_{name}s"].value, name) for name in ("warp", "stage") if f"num_{name}s" in launch.options]
    return row | {
        "launch": str(launch.tiling or ", ".join(warps)),
        "regs": used.registers_per_thread,
        "shared": used.shared_memory_bytes,
        "spills": used.spilled_bytes_per_thread,
        "programs": f"{fits.programs_per_multiprocessor}/{report.device.multiprocessor}",
        "warps": (_warps(report) or "").rpartition("(")[2].rstrip(")") or None,
        "us": _us(report.time) if report.time else None,
        "limited by": ", ".join(fits.limited_by),
    }


def _cell(value: Any) -> Any:
    """Returns text that stays one cell of Markdown, whatever a kernel or a file is called."""
    return re.sub(r"[|<]|\](?=\()", r"\\\g<0>", " ".join(value.split())) if isinstance(value, str) else value


def _us(time: Time) -> str | None:
    us = time.floor_us if time.expected_us is None else time.expected_us
    mark = ">" if time.expected_us is None else "" if time.error else "~"
    return f"{mark}{us:{'.1f' if us >= 0.1 else '.1g'}}" if us else None


def _remarks(reports: list[Report], explain: bool) -> Iterator[str]:
    """Yields errors, warnings and verdicts of reports; equal ones once, with all devices."""
    about: dict[str, list[str]] = {}
    for report in reports:
        said = [f"{report.error}: {report.message}"] if report.error else []
        said += verdict(report.verify) if report.verify else []
        said += [f"warning: {warning}" for warning in report.warnings]
        said += [f"next step: {report.next_step}"] if explain and report.next_step and not report.error else []
        for remark in said:
            remark = remark.replace(f" for {report.device.backend}/{report.device.arch}:", ":")  # alike for several targets
            about.setdefault(remark, []).append(", ".join(filter(None, (report.device.name, _case(report)))))
    for remark, names in about.items():
        yield f"{'; '.join(dict.fromkeys(names))}: {remark}"
