"""Saved reports, and what a new run changes of them."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from portable_probe.output import as_columns, many, write_whole
from portable_probe.report import use_of, words_of
from portable_probe.report_types import (
    SCHEMA_VERSION,
    Change,
    Comparison,
    Report,
    Versioned,
    encoded,
)

RESOURCES = {
    "registers_per_thread": "registers",
    "scalar_registers": "registers",
    "shared_memory_bytes": "memory",
    "tensor_memory_columns": "memory",
    "stack_frame_bytes": "memory",
    "spilled_bytes_per_thread": "spills",
}
KINDS = ("plan", "registers", "memory", "spills", "occupancy", "accuracy", "time")
CHANGE_HEADER = ("device", "case", "kind", "", "before", "after", "verdict")
REGRESSED = 3  # exit code
HOW_TO_SAVE = "`portable-softmax plan --save FILE` writes such reports, and so do probe, kernel and verify"
TOLERATED = {"accuracy": 0.1, "time": 0.5}  # of what is allowed: another order of the same sums; microseconds
Value = bool | int | float | str | None
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


def compare(before: list[Report], after: list[Report], tolerated: Mapping[str, float | None]) -> Comparison:
    """Compares reports pairwise.

    Args:
        before, after: of the same cases in the same order.
        tolerated: by kind of change, by how much worse is still all right; None for any change.
    """
    limits = {**TOLERATED, **tolerated}
    found = [change for pair in zip(before, after, strict=True) for change in _changes(*pair, limits)]
    worse = [change for change in found if not change.tolerated]
    told = {"error": "Regression", "message": f"{many(len(worse), 'change')} not tolerated"} if worse else {}
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
    new = [change for change in comparison.changes if not change.tolerated]
    number, cases = many(len(comparison.changes), "change"), many(comparison.cases, "case")
    verdict = f"{number} in {cases}, {len(new)} of them {'a regression' if len(new) == 1 else 'regressions'}"
    old, now = comparison.before, comparison.after
    moved = [f"{name} {old.get(name)} -> {now.get(name)}" for name in sorted(old | now) if old.get(name) != now.get(name)]
    rows = [change_row(change) for change in comparison.changes]
    table = [as_columns(CHANGE_HEADER, rows, form)] if rows else []
    return "\n\n".join([verdict, *([f"software: {', '.join(moved)}"] if moved else []), *table])


def change_row(change: Change) -> tuple[str, ...]:
    """Returns a change as a row below CHANGE_HEADER."""
    ends: tuple[Value, Value] = change.before, change.after
    values = ("-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value) for value in ends)
    verdict = "worse, tolerated" if change.tolerated and change.verdict == "worse" else change.verdict
    return change.device, change.case, change.kind, change.what, *values, verdict


def _changes(before: Report, after: Report, tolerated: Mapping[str, float | None]) -> Iterator[Change]:
    """Yields the numbers of a case that differ, of those that both sides have."""
    case, old, new = before.problem or before.kernel, values_of(before), values_of(after)
    for kind, what in (key for key in old if key in new and old[key] != new[key]):
        was, now = old[kind, what], new[kind, what]
        worse_by, limit = _worse_by(kind, was, now), tolerated.get(kind, 0)
        yield Change(
            device=after.device.profile,
            case=words_of(case) if case else "",
            kind=kind,
            what=what,
            before=was,
            after=now,
            verdict="changed" if worse_by is None else "worse" if worse_by > 0 else "better",
            tolerated=limit is None or (worse_by is not None and worse_by <= limit),
        )


def _worse_by(kind: str, was: Value, now: Value) -> float | None:
    """Returns by how much a value is worse; None where two values are not better or worse than each other."""
    if kind == "error":
        return -1 if now is None else 1
    if kind == "plan" or not isinstance(was, int | float) or not isinstance(now, int | float):
        return None
    return was - now if kind == "occupancy" else now - was


def values_of(report: Report) -> dict[tuple[str, str], Value]:
    """Returns what is compared, by kind and name."""
    wrong = report.verify and not report.verify.right
    message = report.message if isinstance(report.message, str) else "wrong result" if wrong else None
    found: dict[tuple[str, str], Value] = {("error", ""): message}
    if report.plan:
        found |= {("plan", name): value for name, value in vars(report.plan.tiling).items()}
        found["plan", "num_programs"] = report.plan.num_programs
    if use := use_of(report):
        resources, occupancy = use
        found["plan", "num_warps"] = resources.num_warps
        if report.kernel and report.kernel.launch:
            found |= {("plan", name): each.value for name, each in report.kernel.launch.options.items() if name == "num_stages"}
        used = {(kind, name): getattr(resources, name) for name, kind in RESOURCES.items()}
        found |= {key: value for key, value in used.items() if value is not None}  # older reports tell less
        found["occupancy", "programs_per_multiprocessor"] = occupancy.programs_per_multiprocessor
    if report.time and report.time.expected_us is not None:
        found["time", "expected_us"] = round(report.time.expected_us, 2)
    if report.verify:
        found |= {("accuracy", "worst"): report.verify.worst, ("accuracy", "overwritten"): report.verify.overwritten}
    return found
