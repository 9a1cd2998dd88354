"""Saved reports, and what a new run changes of them."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from portable_probe.report import KernelCall, Report, Scalar, encoded
from portable_probe.text import as_columns, many

AtLeastOne = Annotated[list[Report], msgspec.Meta(min_length=1)]
HEADER = ("device", "case", "", "before", "after", "")
HOW_TO_SAVE = "`portable-softmax plan --save FILE` writes such reports, and so do kernel and verify"
MORE_IS_WORSE = {"spilled_bytes_per_thread": True, "programs_per_multiprocessor": False}


class ReportsError(ValueError):
    """A file holds no reports that this version can read."""


class Change(NamedTuple):
    """One number of a case that changed; `worse` if it is another plan, fewer programs, more spilled bytes, or a new error."""

    device: str
    case: str
    what: str
    before: Scalar
    after: Scalar
    worse: bool


def save(reports: list[Report], path: Path) -> None:
    """Writes reports to a file for `load`."""
    path.write_text(encoded(reports) + "\n", encoding="utf-8")


def load(path: Path) -> list[Report]:
    """Returns the reports that --save wrote, or --json printed.

    Raises:
        FileNotFoundError: there is no such file.
        ReportsError: it holds no reports, or those of another schema version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; {HOW_TO_SAVE}")
    try:
        reports: list[Report] = msgspec.json.decode(path.read_bytes(), type=AtLeastOne)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportsError(f"{path} holds no reports of this version: {error}; {HOW_TO_SAVE}") from error
    return reports


def check_kernel(reports: list[Report], named: str | None, path: Path) -> None:
    """Refuses a kernel that --kernel does not name, as its file would run: ReportsError."""
    held = sorted({report.case.name for report in reports if isinstance(report.case, KernelCall)})
    if held != ([named] if named else []):
        again = " --kernel ".join(shlex.quote(word) for word in (str(path), *held[:1]))
        raise ReportsError(
            f"{path} holds reports of {', '.join(held) or 'no user kernel'}; a kernel's file runs only if --kernel names it, "
            f"one for each FILE. If you trust it: `portable-softmax diff {again}`"
        )


def compared(before: Sequence[Report], after: Sequence[Report], form: str) -> tuple[str, int]:
    """Compares reports of the same cases, in the same order.

    Returns:
        The changes as text, or as Markdown with the form "github", and the exit code: 3 if something is worse, 4 if a case was
        not answered.
    """
    pairs = list(zip(before, after, strict=True))
    skipped = sum(not all(report.launch for report in pair) for pair in pairs)
    changes = [
        Change(report.device.profile, str(report.case), what, was, now, what in older.launch or _is_worse(what, was, now))
        for older, report in pairs
        for (what, was), now in ((item, _values(report).get(item[0], item[1])) for item in _values(older).items())
        if was != now
    ]
    worse = sum(change.worse for change in changes)
    words = f"{worse} for the worse{f', {skipped} not compiled' if skipped else ''}"
    parts = [f"{many(len(changes), 'change')} in {many(len(before), 'case')}, {words}"]
    old, new = before[0].software, after[0].software
    if moved := [f"{name} {old.get(name)} -> {new.get(name)}" for name in sorted(old | new) if old.get(name) != new.get(name)]:
        parts.append(f"software: {', '.join(moved)}")
    if changes:
        parts.append(as_columns(HEADER, [(*change[:-1], "worse" * change.worse) for change in changes], form))
    return "\n\n".join(parts), 3 if worse else 4 if skipped else 0


def _is_worse(what: str, was: Scalar, now: Scalar) -> bool:
    if what in MORE_IS_WORSE and isinstance(was, int) and isinstance(now, int):
        return (now > was) == MORE_IS_WORSE[what]
    return what == "error" and now is not None


def _values(report: Report) -> dict[str, Scalar]:
    """Returns the numbers that are compared, by name."""
    error = f"{report.error}: {report.message}" if report.error else None
    return {"error": error, **report.launch, **report.numbers}
