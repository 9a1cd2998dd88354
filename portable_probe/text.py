"""Reports as text: one in detail, several as a table."""

import textwrap
from collections.abc import Iterator
from typing import Any

from portable_probe.output import as_columns, in_units, many
from portable_probe.report import KernelCall, Report, Time, Verified

HEADER = ("device", "case", "launch", "regs", "shared", "spills", "programs", "warps", "us", "limited by")
WIDTH = 105  # of a line after its title
OPTIONS = ("num_warps", "num_stages", "num_ctas")  # of a kernel, that are always shown
TIMES = "\nus: estimated; ~ not calibrated for this device; > lower bound, bytes / bandwidth"


def as_text(reports: list[Report], form: str = "plain", explain: bool = False) -> str:
    """Returns reports for a terminal, or as Markdown.

    Args:
        reports: one, which is shown in detail as plain text, or several.
        form: tabulate's; "github" for Markdown.
        explain: True for the reasons, and the count of each limit.
    """
    if len(reports) == 1 and form == "plain":
        wrapped = [
            (title, [part for line in said for part in _wrapped(line)]) for title, *said in _details(reports[0], explain)
        ]
        return "\n".join(f"{title * (not at):<10}{line}" for title, said in wrapped for at, line in enumerate(said))
    kernel, rows = isinstance(reports[0].case, KernelCall), [_row(report) for report in reports]
    cases = {row["case"] for row in rows}
    what = [reports[0].case.name] if isinstance(reports[0].case, KernelCall) else []
    title = " ".join(["kernel" if kernel else "softmax", *what, *(cases if len(cases) == 1 else ())]).rstrip()
    hidden = {"case"} if len(cases) == 1 else set()
    hidden |= set() if any(row.get("us") for row in rows) else {"us"}
    header = [name for name in HEADER if name not in hidden]
    remarks = "\n".join(f"- {line}" if form == "github" else line for line in _remarks(reports, explain))
    parts = [
        f"{title}, {_triton(reports[0])}{TIMES if 'us' in header else ''}",
        as_columns(header, [[row.get(name) for name in header] for row in rows], form),
        *([remarks] if remarks else []),
    ]
    return "\n\n".join(parts)


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]  # keeps columns
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _verdict(verify: Verified) -> list[str]:
    """Returns PASS or FAIL with the distance from the exact result, and what ran if it was an emulator."""
    error, worst = ("not finite" if number is None else f"{number:.2g}" for number in (verify.max_error, verify.worst))
    where = f" at {verify.worst_at}" if verify.worst_at else ""
    beside = f"{verify.overwritten} other elements overwritten" if verify.overwritten else "nothing else written"
    outcome = f"{'PASS' if verify.right else 'FAIL'}: max error {error}, {worst} times the tolerance{where}; {beside}"
    return [outcome, *([verify.executed] if verify.executed else [])]


def _details(report: Report, explain: bool) -> Iterator[tuple[str, ...]]:
    """Yields (title, lines), the answer first."""
    launch, used, fits, kernel = report.launch, report.resources, report.occupancy, isinstance(report.case, KernelCall)
    yield "kernel" if kernel else "softmax", f"{report.case} on {report.device.name}; {_triton(report)}"
    if report.verify:
        yield "verify", *_verdict(report.verify)
        return
    if report.error:
        yield "ERROR", f"{report.error}: {report.message}"
    if launch and launch.tiling:
        yield "plan", f"{launch.tiling}, num_programs {launch.num_programs}"
    elif launch:
        by = {"argument": "specialised, by the argument"}
        for title, group in (("launch", launch.options), ("constants", launch.constants)):
            chosen = {
                name: choice for name, choice in group.items() if name in OPTIONS or choice.by not in ("default", "Triton")
            }
            yield title, "  ".join(f"{name}={choice.value} ({by.get(choice.by, choice.by)})" for name, choice in chosen.items())
        yield "grid", *([" x ".join(map(str, launch.grid))] if launch.grid else [])
        kinds = dict.fromkeys(launch.arguments.values())
        yield "arguments", *(f"{' '.join(n for n, k in launch.arguments.items() if k == kind)}: {kind}" for kind in kinds)
    if fits and used:
        resident, most = fits.warps_per_multiprocessor, report.device.max_warps
        warps = f", {resident} of {most} warps ({_share(report)})" if _share(report) else ""
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
    if (us := time.expected_us) is not None:
        terms = sorted(time.terms.items(), key=lambda term: -term[1])
        parts = ", ".join(f"{name} {in_units(value / 1e6, 's')}" for name, value in terms if value >= us / 100)
        low, high = (in_units(us * (1 + sign * (time.error or 0)) / 1e6, "s") for sign in (-1, 1))
        sure = f"{low} to {high} in 9 of 10 cases" if time.error else "not calibrated for this device"
        yield f"{in_units(us / 1e6, 's')} expected ({sure}): {parts}"
    if time.floor_us and time.bytes:
        yield f"{in_units(time.floor_us / 1e6, 's')} at least, for {in_units(time.bytes, 'B')} at the data sheet's bandwidth"


def _share(report: Report) -> str | None:
    """Returns resident warps in parts of the most that are possible; None if programs have no warps."""
    resident = report.occupancy.warps_per_multiprocessor if report.occupancy else None
    return f"{resident / report.device.max_warps:.0%}" if resident is not None and report.device.max_warps else None


def _triton(report: Report) -> str:
    names = [name for name in ("triton", "triton-ascend", "triton-xpu") if name in report.software]
    return ", ".join(f"{name.replace('triton', 'Triton')} {report.software[name]}" for name in names) or "no Triton"


def _row(report: Report) -> dict[str, Any]:
    used, fits, launch, case = report.resources, report.occupancy, report.launch, report.case
    row = {"device": report.device.name, "case": case.variant if isinstance(case, KernelCall) else str(case)}
    if not used or not fits or not launch:
        return row | {"launch": _verdict(report.verify)[0][:4] if report.verify else "not compiled"}
    warps = [many(launch.options[f"num_{name}s"].value, name) for name in ("warp", "stage") if f"num_{name}s" in launch.options]
    return row | {
        "launch": str(launch.tiling or ", ".join(warps)),
        "regs": used.registers_per_thread,
        "shared": used.shared_memory_bytes,
        "spills": used.spilled_bytes_per_thread,
        "programs": f"{fits.programs_per_multiprocessor}/{report.device.multiprocessor}",
        "warps": _share(report),
        "us": _us(report.time) if report.time else None,
        "limited by": ", ".join(fits.limited_by),
    }


def _us(time: Time) -> str | None:
    us = time.floor_us if time.expected_us is None else time.expected_us
    mark = ">" if time.expected_us is None else "" if time.error else "~"
    return f"{mark}{us:{'.1f' if us >= 0.1 else '.1g'}}" if us else None


def _remarks(reports: list[Report], explain: bool) -> Iterator[str]:
    """Yields errors, warnings and verdicts of reports; equal ones once, with all devices."""
    about: dict[str, list[str]] = {}
    for report in reports:
        said = [f"{report.error}: {report.message}"] if report.error else []
        said += _verdict(report.verify) if report.verify else []
        said += [f"warning: {warning}" for warning in report.warnings]
        said += [f"next step: {report.next_step}"] if explain and report.next_step and not report.error else []
        for remark in said:
            remark = remark.replace(f" for {report.device.backend}/{report.device.arch}:", ":")  # alike for several targets
            about.setdefault(remark, []).append(", ".join(filter(None, (report.device.name, _row(report)["case"]))))
    for remark, names in about.items():
        yield f"{'; '.join(dict.fromkeys(names))}: {remark}"
