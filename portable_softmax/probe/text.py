"""The probe's report as plain text, and several of them as a table."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.schema import Hardware
from portable_softmax.probe.cases import words_of
from portable_softmax.probe.report import use_of
from portable_softmax.probe.schema import (
    Choice,
    Counted,
    Explanation,
    Fact,
    FactValue,
    KernelLaunch,
    KernelUse,
    Launch,
    Report,
    SoftmaxProblem,
    Textbook,
    Verified,
)

IDENTITY = ("", "target", "multiprocessor")
LAUNCH = ("strategy", "tile_rows", "tile_cols", "parts", "pieces", "num_warps", "num_stages", "max_registers", "num_programs")
RESOURCES = tuple(KernelResources.__dataclass_fields__)
COUNTED = ("programs per multiprocessor", "limited by")
ALWAYS = ("num_warps", "num_stages", "num_ctas")  # of a kernel's options
SIDES = ("runtime", "profile", "used")


def as_text(report: Report) -> str:
    """Returns a report as lines for a terminal."""
    return "\n".join(_lines(report))


def side_by_side(reports: list[Report], form: str = "plain") -> str:
    """Returns a table with a column per report: its device, the facts used, its plan or kernel; then a remark on each.

    Args:
        reports: of one case on several devices, of several cases, or both.
        form: of tabulate; "github" for Markdown.
    """
    several = len({report.problem for report in reports}) > 1
    columns = [_column(report, several) for report in reports]
    keys = dict.fromkeys([*IDENTITY, "softmax", *Hardware.__struct_fields__, *LAUNCH, *RESOURCES, *COUNTED])
    rows = [[key, *(column.get(key, "-") for column in columns)] for key in keys if any(key in column for column in columns)]
    first = rows.pop(0) if form != "plain" else ()  # a table in Markdown has a header
    table = tabulate(rows, first, form, disable_numparse=True)
    remarks = [line for report in reports for line in _remarks(report, several)]
    lists = [f"- {line}" for line in remarks] if form != "plain" else remarks
    return "\n".join([table, *([""] if first and lists else []), *lists])


def explained(found: Explanation) -> Iterator[str]:
    """Yields each limit's own count, with those that bind marked, and the next step."""
    for name, programs in found.limits.items():
        yield f"{name:20}{programs:>6}{'   binds' if name in found.binds else ''}"
    yield found.next_step.text


def compared(found: Textbook) -> str:
    """Tells the textbook's number beside the exact one, and why it differs."""
    return f"{'none' if found.programs is None else found.programs}, not {found.exact}: {found.why}"


def _column(report: Report, with_problem: bool) -> dict[str, Any]:
    device = report.device
    column: dict[str, Any] = dict(
        zip(IDENTITY, (device.name, f"{device.backend}/{device.arch}", device.multiprocessor), strict=True)
    )
    if with_problem and isinstance(report.problem, SoftmaxProblem):
        column["softmax"] = words_of(report.problem)
    column |= {key: _shortened(fact.used) for key, fact in report.facts.items()}
    if isinstance(report.plan, Launch):
        column |= {key: getattr(report.plan, key) for key in LAUNCH}
    if use := use_of(report):
        resources, occupancy = use
        column |= asdict(resources)
        column |= zip(COUNTED, (occupancy.programs_per_multiprocessor, ", ".join(occupancy.limited_by)), strict=True)
    return {key: value for key, value in column.items() if value is not None}


def _remarks(report: Report, with_problem: bool) -> Iterator[str]:
    name = report.device.name
    if with_problem and isinstance(report.problem, SoftmaxProblem):
        name += f", {words_of(report.problem)}"
    if report.error:
        yield f"{name}: {report.error}: {report.message}"
    if isinstance(report.explain, Explanation):
        yield f"{name}: {report.explain.next_step.text}"
    if isinstance(report.textbook, Textbook):
        yield f"{name}: the textbook says {compared(report.textbook)}"
    if isinstance(report.verify, Verified):
        yield from (f"{name}: {line}" for line in _verification(report.verify))


def _lines(report: Report) -> Iterator[str]:
    device = report.device
    where = "not here" if not device.here else "here" if device.index is None else f"index {device.index}"
    yield f"device    {device.name}  ({device.backend}/{device.arch}, {device.architecture}, {where})"
    yield f"profile   {device.profile}"
    yield f"software  {', '.join(f'{name} {version}' for name, version in report.software.items())}"
    yield ""
    yield _facts(report.facts)
    yield ""
    if isinstance(report.plan, Launch) and isinstance(report.problem, SoftmaxProblem):
        yield from _plan(report.plan, report.problem)
    if isinstance(report.kernel, KernelUse):
        yield f"kernel    {report.kernel.name}"
        yield from _launch(report.kernel) if isinstance(report.kernel.launch, KernelLaunch) else ()
    if use := use_of(report):
        yield from _use(*use, device.multiprocessor)
    yield from _listed("why", report.plan.reasons if isinstance(report.plan, Launch) else ())
    yield from _listed("limits", explained(report.explain) if isinstance(report.explain, Explanation) else ())
    yield from _listed("textbook", [compared(report.textbook)] if isinstance(report.textbook, Textbook) else ())
    yield from _listed("written", report.dump or ())
    yield from _listed("verify", _verification(report.verify)) if isinstance(report.verify, Verified) else ()


def _facts(facts: dict[str, Fact]) -> str:
    rows = [(key, *(_shortened(getattr(fact, side)) for side in SIDES), _origin(fact)) for key, fact in facts.items()]
    alignment = ("left", *("right" for _ in SIDES), "left")
    return tabulate(rows, ("", *SIDES, "from"), "plain", missingval="-", colalign=alignment, disable_numparse=True)


def _shortened(value: FactValue | None) -> Any:
    """Returns a number as it is; of several, how many there are and which are the first and the last."""
    return f"{len(value)}, {value[0]} to {value[-1]}" if isinstance(value, tuple) else value


def _origin(fact: Fact) -> str:
    if fact.origin in {"profile", "estimated"} and fact.profile_source:
        return f"{fact.origin} ({fact.profile_source.verified})"
    return fact.origin


def _plan(plan: Launch, problem: SoftmaxProblem) -> Iterator[str]:
    yield f"plan      softmax of {problem.n_rows} x {problem.n_cols}, {problem.dtype}"
    launch = _named({key: getattr(plan, key) for key in ("num_programs", "num_warps", "num_stages", "max_registers")})
    parts = f" in {plan.parts} parts" if plan.parts > 1 else ""
    pieces = f" of {plan.pieces} pieces" if plan.pieces > 1 else ""
    yield f"          {plan.strategy} {plan.tile_rows} x {plan.tile_cols}{parts}{pieces}  {launch}"


def _launch(kernel: KernelUse) -> Iterator[str]:
    """Describes the launch that Triton makes: options, with who chose each, constants, and the types of arguments."""
    launch = kernel.launch
    assert isinstance(launch, KernelLaunch)
    config = "configuration" if kernel.config is None else f"configuration {kernel.config}"
    by = {"configuration": config, "argument": "by the argument", "Triton": "by Triton"}
    chosen = {name: each for name, each in launch.options.items() if name in ALWAYS or each.origin not in ("default", "Triton")}
    yield from _listed("launch", [_with_origins(chosen, by)])
    if launch.constants:
        yield from _listed("constants", [_with_origins(launch.constants, by)])
    kinds = dict.fromkeys(launch.arguments.values())
    names = {kind: " ".join(name for name, each in launch.arguments.items() if each == kind) for kind in kinds}
    yield from _listed("arguments", (f"{named}: {kind}" for kind, named in names.items()))


def _with_origins(choices: Mapping[str, Choice], by: Mapping[str, str]) -> str:
    return "  ".join(f"{name} {each.value} ({by.get(each.origin, each.origin)})" for name, each in choices.items())


def _use(resources: KernelResources, occupancy: Counted, multiprocessor: str) -> Iterator[str]:
    """Describes what a program of a plan or of any kernel uses, and how many fit."""
    yield f"uses      {_named(asdict(resources))}"
    limits = ", ".join(f"{name} {programs}" for name, programs in occupancy.limits.items())
    count = occupancy.programs_per_multiprocessor
    yield (
        f"occupancy {count} program{'' if count == 1 else 's'} per {multiprocessor}, "
        f"limited by {' and '.join(occupancy.limited_by)}  (allowed by {limits})"
    )


def _named(values: Mapping[str, Any]) -> str:
    return "  ".join(f"{key} {value}" for key, value in values.items() if value is not None)


def _listed(title: str, lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield f"{'' if number else title:10}{line}"


def _verification(verify: Verified) -> Iterator[str]:
    error = "not finite" if verify.max_error is None else f"{verify.max_error:.3g}"
    worst = "not finite" if verify.worst is None else f"{verify.worst:.2g}"
    yield (
        f"{'right' if verify.right else 'WRONG'}: largest error {error}, {worst} of what is allowed; "
        f"{verify.overwritten} elements next to it overwritten"
    )
    if verify.executed:
        rows = f"{verify.rows} rows, " if verify.rows else ""
        yield f"{verify.executed}; {rows}{verify.instructions} instructions of waves"
