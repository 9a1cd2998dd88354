"""The probe's report as plain text: the answer first, then the device and its facts."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from portable_probe.output import as_columns, many
from portable_probe.report import triton_of, use_of, warps_of, words_of
from portable_probe.report_types import Fact, FactValue, KernelLaunch, KernelUse, Report, Time, Verified
from portable_softmax.devices.backends.base import Occupancy
from portable_softmax.errors import GridError
from portable_softmax.row_kernels.launched import Chosen

ALWAYS = ("num_warps", "num_stages", "num_ctas")  # of a kernel's options
SIDES = ("runtime", "profile", "used")
UNBROKEN = "\u00a0"  # a space at which no line ends
WIDTH = 110  # of a paragraph


def as_text(report: Report, limits: bool = False, facts: bool = True) -> str:
    """Returns a report as lines for a terminal.

    Args:
        report: what was found.
        limits: True to tell each limit's own count.
        facts: True to tell the device, the software and the hardware's facts after the answer.
    """
    lines = [*_answer(report, limits), *(["", *_device(report)] if facts else [])]
    return "\n".join(line.rstrip() for line in lines)


def verdict(verify: Verified) -> str:
    """Tells how far a result is from what is right."""
    error, worst = ("not finite" if each is None else f"{each:.2g}" for each in (verify.max_error, verify.worst))
    times = "times" if verify.worst and verify.worst > 1 else "of"
    at = f" at {verify.worst_at}" if verify.worst_at else ""
    beside = f"{verify.overwritten} elements beside it overwritten" if verify.overwritten else "nothing else written"
    return f"{'PASS' if verify.right else 'FAIL'}: max error {error}, {worst} {times} the tolerance{at}; {beside}"


def verification(verify: Verified) -> Iterator[str]:
    """Yields how far a result is from what is right, and what ran."""
    yield verdict(verify)
    if verify.executed:
        yield f"{verify.executed}: {f'{verify.rows} rows, ' if verify.rows else ''}{verify.instructions} wave instructions"


def verified_alone(report: Report) -> str:
    """Returns what `verify` was asked, and no plan."""
    lines = verification(report.verify) if report.verify else ()
    return "\n".join([*_listed("verify", lines), *_listed("case", [_title(report)])])


def shortened(value: FactValue | None) -> Any:
    """Returns a number as it is; of several, how many there are and which are the first and the last."""
    return f"{len(value)} from {value[0]} to {value[-1]}" if isinstance(value, tuple) else value


def _answer(report: Report, limits: bool) -> Iterator[str]:
    plan, kernel = report.plan, report.kernel
    if report.problem or kernel:
        yield from _listed("kernel" if kernel else "softmax", [_title(report)])
    if report.error == GridError.__name__:
        yield from _listed("REFUSED", [report.message or ""])
    use = use_of(report)
    if use and (spilled := use[0].spilled_bytes_per_thread):
        yield from _listed("SPILLS", [f"{spilled} bytes per thread"])
    if plan:
        yield from _listed("plan", [f"{plan.tiling}, num_programs {plan.num_programs}"])
    if kernel and kernel.launch:
        yield from _launch(kernel, kernel.launch)
    if use:
        yield from _listed("occupancy", _occupancy(report, use[1]))
        yield from _listed("uses", [str(use[0]).replace(" ", UNBROKEN).replace(f",{UNBROKEN}", ", ")])
    yield from _listed("time", _time(report.time, limits)) if report.time else ()
    yield from _listed("why", plan.reasons if plan else (kernel and kernel.reasons) or ())
    yield from _listed("warning", (kernel and kernel.warnings) or ())
    if use and limits:
        yield from _listed("limits", _limits(use[1]))
    yield from _listed("next step", [report.next_step.text] if report.next_step else ())
    yield from _listed("written", report.dump or ())
    yield from _listed("verify", verification(report.verify)) if report.verify else ()


def _title(report: Report) -> str:
    case = report.problem or report.kernel
    return f"{words_of(case) if case else 'nothing'} on {report.device.name}; {triton_of(report)}"


def _launch(kernel: KernelUse, launch: KernelLaunch) -> Iterator[str]:
    """Describes the launch that Triton makes: options, with who chose each, constants, and the types of arguments."""
    config = "configuration" if kernel.config is None else f"configuration {kernel.config}"
    by = {"configuration": config, "argument": "specialised, by the argument", "Triton": "by Triton"}
    options = launch.options
    chosen = {name: options[name] for name in ALWAYS if name in options}
    chosen |= {name: each for name, each in options.items() if each.by not in ("default", "Triton")}
    own = [name for name in chosen if name in launch.constants or name in launch.arguments]
    yield from _listed("launch", [_with_origins(chosen, by)])
    yield from _listed("", (f"{name} is a parameter of the kernel too, and its own; the backend's is this one" for name in own))
    yield from _listed("grid", [" x ".join(map(str, kernel.grid))] if kernel.grid else ())
    yield from _listed("constants", [_with_origins(launch.constants, by)] if launch.constants else ())
    kinds = dict.fromkeys(launch.arguments.values())
    names = {kind: " ".join(name for name, each in launch.arguments.items() if each == kind) for kind in kinds}
    yield from _listed("arguments", (f"{named}: {kind}" for kind, named in names.items()))


def _with_origins(choices: Mapping[str, Chosen], by: Mapping[str, str]) -> str:
    return "  ".join(f"{name}={each.value} ({by.get(each.by, each.by)})" for name, each in choices.items())


def _occupancy(report: Report, occupancy: Occupancy) -> Iterator[str]:
    warps = warps_of(report)
    programs = f"{many(occupancy.programs_per_multiprocessor, 'program')} per {report.device.multiprocessor}"
    yield f"{programs}{f', {warps}' if warps else ''}, limited by {' and '.join(occupancy.limited_by)}"
    yield str(occupancy).splitlines()[1]
    if report.kernel and report.kernel.resident_programs:
        yield f"{report.kernel.resident_programs} programs on the device: num_programs where programs loop over their work"


def _limits(occupancy: Occupancy) -> Iterator[str]:
    """Yields each limit's own count, with those that bind marked."""
    for name, programs in occupancy.limits.items():
        yield f"{name:20}{programs:>6}{'   binds' if name in occupancy.limited_by else ''}"


def _time(time: Time, explain: bool) -> Iterator[str]:
    if time.expected_us is not None:
        parts = sorted(time.terms.items(), key=lambda term: -term[1])
        terms = ", ".join(f"{name} {us:.1f}" for name, us in parts if round(us, 1))
        low, high = (time.expected_us * (1 + sign * (time.error or 0)) for sign in (-1, 1))
        sure = f"{low:.3g} to {high:.3g} in nine cases of ten" if time.error else "by assumed numbers"
        yield f"{time.expected_us:.3g} us expected, {sure}: {terms}"
        if explain:
            yield f"the numbers behind it: {time.source}"
    yield f"at least {time.floor_us:.3g} us ({time.bytes / 1e6:.4g} MB at {time.bytes / time.floor_us / 1e6:.3g} TB/s)"
    if time.waves <= 1:
        yield f"the grid fills {time.waves:.0%} of the device once"
    else:
        yield f"the grid fills the device {time.waves:.3g} times; the last time {1 - time.tail:.0%} of it"
    yield f"bytes in flight / bandwidth = {time.covered_us:.2g} us; below the memory's latency the device idles"


def _device(report: Report) -> Iterator[str]:
    device = report.device
    where = "not here" if not device.here else "here" if device.index is None else f"index {device.index}"
    yield f"device    {device.name}  ({device.backend}/{device.arch}, {device.architecture}, {where})"
    yield f"profile   {device.profile}"
    yield from _listed("software", [", ".join(f"{name} {version}" for name, version in report.software.items())])
    yield ""
    yield _facts(report.facts)


def _facts(facts: dict[str, Fact]) -> str:
    rows = [(key, *(shortened(getattr(fact, side)) for side in SIDES), _origin(fact)) for key, fact in facts.items()]
    alignment = ("left", *("right" for _ in SIDES), "left")
    return as_columns(("", *SIDES, "from"), rows, align=alignment)


def _origin(fact: Fact) -> str:
    if fact.origin in {"profile", "estimated"} and fact.profile_source:
        return f"{fact.origin} ({fact.profile_source.verified})"
    return fact.origin


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    """Yields lines behind a title, each wrapped."""
    for number, line in enumerate(lines):
        first, *rest = textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False, drop_whitespace=True) or [""]
        first = line if not rest else first  # keeps columns
        yield f"{'' if number else title:10}{first}".replace(UNBROKEN, " ")
        yield from (f"{'':12}{each}".replace(UNBROKEN, " ") for each in rest)
