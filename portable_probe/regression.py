"""Saved reports, and what a new run changes of them."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from portable_probe.output import as_columns, many, write_whole
from portable_probe.report import use_of, words_of
from portable_probe.report_types import SCHEMA_VERSION, Change, Comparison, Report, Scalar, Versioned, encoded

RESOURCES = (
    "registers_per_thread", "scalar_registers", "shared_memory_bytes", "tensor_memory_columns", "stack_frame_bytes",
    "spilled_bytes_per_thread",
)  # fmt: skip
PLAN = ("num_programs", "num_warps", "num_stages")  # with the fields of a tiling
CHANGE_HEADER = ("device", "case", "", "before", "after", "")
REGRESSED = 3  # exit code
HOW_TO_SAVE = "`portable-softmax plan --save FILE` writes such reports, and so do kernel and verify"
Answer = TypeVar("Answer", Versioned, Report)


def save(reports: list[Report], path: Path) -> None:
    """Writes reports to a file for `load`: what --json prints for several. A write that is cut short leaves an older file."""
    write_whole(path, encoded(reports) + "\n")


def load(path: Path) -> list[Report]:
    """Reads the reports that `save` wrote, or the one that --json printed.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no such reports, or those of another schema version, or one that there is nothing to compare with.
    """
    text = path.read_bytes()
    try:
        several = text.lstrip().startswith(b"[")
        versions = {each.schema_version for each in _decoded(text, Versioned, several)}
        if others := versions - {SCHEMA_VERSION}:
            other = f"{path} is of schema version {others.pop()}"
            raise ValueError(f"{other}, and this is {SCHEMA_VERSION}: {HOW_TO_SAVE}")
        reports = _decoded(text, Report, several)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} holds no reports of this probe: {error}; {HOW_TO_SAVE}") from error
    if not reports:
        raise ValueError(f"{path} holds no reports of this probe: its list is empty; {HOW_TO_SAVE}")
    if not all((each.problem or each.kernel) and (each.error or use_of(each) or each.verify) for each in reports):
        raise ValueError(f"{path} holds a report without a softmax or kernel, or without its numbers; {HOW_TO_SAVE}")
    return reports


def _decoded(text: bytes, kind: type[Answer], several: bool) -> list[Answer]:
    return msgspec.json.decode(text, type=list[kind]) if several else [msgspec.json.decode(text, type=kind)]  # type: ignore[valid-type]


def check_kernel(reports: list[Report], named: str | None, path: Path) -> None:
    """Refuses a kernel that the command line does not name: reports are data, and to load a kernel is to run its file.

    Args:
        reports: what `path` holds.
        named: FILE:NAME of --kernel, if it was given.

    Raises:
        ValueError: `named` is not the kernel of the reports.
    """
    held = sorted({report.kernel.name for report in reports if report.kernel})
    if held == ([named] if named else []):
        return
    if not held:
        raise ValueError(f"{path} holds reports of the softmax alone; leave out --kernel {named}")
    if len(held) > 1:
        raise ValueError(f"{path} holds reports of {', '.join(held)}, and --kernel names one; keep a file for each kernel")
    raise ValueError(
        f"{path} holds reports of the kernel {held[0]}, and its file runs only if you name it. If you trust it: "
        f"`portable-softmax diff {shlex.quote(str(path))} --kernel {shlex.quote(held[0])}`"
    )


def compare(before: list[Report], after: list[Report]) -> Comparison:
    """Compares reports of the same cases in the same order pairwise."""
    found = [change for pair in zip(before, after, strict=True) for change in _changes(*pair)]
    worse = [change for change in found if change.worse]
    told = {"error": "Regression", "message": f"{many(len(worse), 'change')} for the worse"} if worse else {}
    return Comparison(
        schema_version=SCHEMA_VERSION,
        before=before[0].software if before else {},
        after=after[0].software if after else {},
        cases=len(before),
        changes=found,
        regressed=bool(worse),
        **told,
    )


def as_table(comparison: Comparison, form: str = "plain") -> str:
    """Returns a comparison as text, or as Markdown with the form "github"."""
    worse = sum(change.worse for change in comparison.changes)
    verdict = f"{many(len(comparison.changes), 'change')} in {many(comparison.cases, 'case')}, {worse} for the worse"
    old, now = comparison.before, comparison.after
    moved = [f"{name} {old.get(name)} -> {now.get(name)}" for name in sorted(old | now) if old.get(name) != now.get(name)]
    rows = [change_row(change) for change in comparison.changes]
    table = [as_columns(CHANGE_HEADER, rows, form)] if rows else []
    return "\n\n".join([verdict, *([f"software: {', '.join(moved)}"] if moved else []), *table])


def change_row(change: Change) -> tuple[str, ...]:
    """Returns a change as a row below CHANGE_HEADER."""
    ends: tuple[Scalar, Scalar] = change.before, change.after
    values = ("-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value) for value in ends)
    return change.device, change.case, change.what, *values, "worse" if change.worse else ""


def _changes(before: Report, after: Report) -> Iterator[Change]:
    """Yields the numbers of a case that differ, of those that both sides have."""
    case, old, new = before.problem or before.kernel, values_of(before), values_of(after)
    plan = {*PLAN, *(vars(after.plan.tiling) if after.plan else ())}
    for what in (key for key in old if key in new and old[key] != new[key]):
        yield Change(
            device=after.device.profile,
            case=words_of(case) if case else "",
            what=what,
            before=old[what],
            after=new[what],
            worse=what in plan or _is_worse(what, old[what], new[what]),
        )


def _is_worse(what: str, was: Scalar, now: Scalar) -> bool:
    """True for a new error, more spilled bytes, or fewer resident programs."""
    if what == "error":
        return now is not None
    if not isinstance(was, int) or not isinstance(now, int):
        return False
    return now > was if what == "spilled_bytes_per_thread" else now < was if what == "programs_per_multiprocessor" else False


def values_of(report: Report) -> dict[str, Scalar]:
    """Returns what is compared, by name."""
    wrong = report.verify and not report.verify.right
    message = report.message if isinstance(report.message, str) else "wrong result" if wrong else None
    found: dict[str, Scalar] = {"error": message}
    if report.plan:
        found |= vars(report.plan.tiling) | {"num_programs": report.plan.num_programs}
    if use := use_of(report):
        resources, occupancy = use
        found["num_warps"] = resources.num_warps
        if report.kernel and report.kernel.launch:
            found |= {name: each.value for name, each in report.kernel.launch.options.items() if name == "num_stages"}
        found |= {name: value for name in RESOURCES if (value := getattr(resources, name)) is not None}
        found["programs_per_multiprocessor"] = occupancy.programs_per_multiprocessor
    if report.time and report.time.expected_us is not None:
        found["expected_us"] = round(report.time.expected_us, 2)
    if report.verify:
        found |= {"worst": report.verify.worst, "overwritten": report.verify.overwritten}
    return found
