"""Reports as text: one in detail, and several as a table; tables, and numbers with their words and units."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tabulate import tabulate

from portable_probe.report import Report, Verified

COLUMNS = {"regs": "registers_per_thread", "shared": "shared_memory_bytes", "spills": "spilled_bytes_per_thread"}
HEADER = ("device", "case", "launch", *COLUMNS, "programs", "warps", "us", "limited by")
CELL = re.compile(r"[|<]|\](?=\()")  # would end a cell of Markdown, or begin HTML or a link
WIDTH = 105  # of a line after its title
REASONS = ("why", "limits")
PREFIXES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0, "m": 1e-3}


def as_text(reports: list[Report], form: str = "plain", explain: bool = False) -> str:
    """Returns reports as text, or with the form "github" as Markdown; `explain` adds reasons, and the count of each limit."""
    if len(reports) == 1 and form == "plain":
        wrapped = textwrap.TextWrapper(WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).wrap
        details = {title: [part for line in lines for part in wrapped(line)] for title, lines in _details(reports[0], explain)}
        return "\n".join(
            f"{'' if at else title:<10}{line}" for title, lines in details.items() for at, line in enumerate(lines)
        )
    first, rows = reports[0].case, [_row(report) for report in reports]
    cases, timed = [*{row["case"] for row in rows}], any("us" in row for row in rows)
    header = [name for name in HEADER if (name != "case" or len(cases) > 1) and (name != "us" or timed)]
    title = " ".join(filter(None, (first.title, getattr(first, "name", ""), *(cases if len(cases) == 1 else ()))))
    about = [f"{title}, {_triton(reports[0])}"]
    if timed:
        about.append("us: estimated; ~ not calibrated for this device")
    table = as_columns(header, [[row.get(name) for name in header] for row in rows], form)
    bullet = "- " if form == "github" else ""
    remarks = [bullet + line for line in _remarks(reports, explain)]
    return "\n\n".join(filter(None, ("\n".join(about), table, "\n".join(remarks))))


def _verdict(verify: Verified) -> list[str]:
    """Returns PASS or FAIL with the distance from the exact result, and what ran if it was an emulator."""
    error, worst = ("not finite" if number is None else f"{number:.2g}" for number in (verify.max_error, verify.worst))
    where = f" at {verify.worst_at}" if verify.worst_at else ""
    beside = f"{verify.overwritten} other elements overwritten" if verify.overwritten else "nothing else written"
    outcome = f"{'PASS' if verify.right else 'FAIL'}: max error {error}, {worst} times the tolerance{where}; {beside}"
    return list(filter(None, (outcome, verify.executed)))


def _details(report: Report, explain: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Yields titles with their lines, the answer first."""
    compiler = "an estimate, not compiled" if report.numbers.get("estimated") else _triton(report)
    yield report.case.title, [f"{report.case} on {report.device.name}; {compiler}"]
    if report.verify:
        yield "verify", _verdict(report.verify)
        return
    yield "ERROR", report.failure
    yield from ((title, lines) for title, lines in report.text.items() if explain or title not in REASONS)


def _triton(report: Report) -> str:
    names = [name for name in report.software if name.startswith("triton")]  # vendors publish some of their own
    return ", ".join(f"{name.replace('triton', 'Triton')} {report.software[name]}" for name in names) or "no Triton"


def _row(report: Report) -> dict[str, Any]:
    case, numbers, device = report.case, report.numbers, report.device
    row: dict[str, Any] = {"device": device.name, "case": case.variant}
    if not numbers:
        return row | {"launch": _verdict(report.verify)[0][:4] if report.verify else "not compiled"}
    warps = [many(value, name[4:-1]) for name, value in report.launch.items() if name in ("num_warps", "num_stages")]
    row |= {"launch": report.launch.get("tiling", ", ".join(warps)), "limited by": ", ".join(report.limited_by)}
    row |= {name: numbers[key] for name, key in COLUMNS.items()}
    row["programs"] = f"{numbers['programs_per_multiprocessor']}/{device.multiprocessor}"
    if (resident := numbers["warps_per_multiprocessor"]) is not None and device.max_warps:
        row["warps"] = f"{resident / device.max_warps:.0%}"
    if us := numbers.get("expected_us"):
        row["us"] = f"{us:.1f}" if device.calibrated else f"~{us:.1f}"
    return row


def _remarks(reports: list[Report], explain: bool) -> Iterator[str]:
    """Yields errors, warnings and verdicts of reports; equal ones once, with all devices."""
    about: dict[str, list[str]] = {}
    titles = ("warning", "next step") if explain else ("warning",)
    for report in reports:
        remarks = report.failure + (_verdict(report.verify) if report.verify else [])
        remarks += [f"{title}: {line}" for title in titles for line in report.text.get(title, ())]
        for remark in remarks:
            remark = remark.replace(f" for {report.device.backend}/{report.device.arch}:", ":")  # alike for several targets
            about.setdefault(remark, []).append(", ".join(filter(None, (report.device.name, _row(report)["case"]))))
    for remark, names in about.items():
        yield f"{'; '.join(dict.fromkeys(names))}: {remark}"


def as_columns(header: Sequence[str], rows: Iterable[Sequence[Any]], form: str = "plain") -> str:
    """Returns rows below a header; in Markdown text stays one cell whatever a kernel or a file is called."""
    if form != "plain":
        rows = [[cell and re.sub(CELL, r"\\\g<0>", " ".join(str(cell).split())) for cell in row] for row in rows]
    above, body = ((), [header, *rows]) if form == "plain" else (header, list(rows))  # tabulate widens a plain header
    return tabulate(body, above, form, missingval="-", disable_numparse=True)


def many(number: Any, word: str) -> str:
    """Returns a number and what it counts, in the plural unless it is 1."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def in_units(number: float, unit: str) -> str:
    """Returns a number of bytes or seconds with three digits, in a unit that suits it."""
    prefix, size = next(((prefix, size) for prefix, size in PREFIXES.items() if number >= size), ("u", 1e-6))
    return f"{number / size:{',.0f' if number >= 1e15 else '.3g'}} {prefix}{unit}"
