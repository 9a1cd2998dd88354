"""Saved reports, and what a new run changes of them."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from portable_probe.output import as_columns, many, write_whole
from portable_probe.report import SCHEMA_VERSION, Fields, Report, Scalar, encoded
from portable_softmax.errors import TargetError

HEADER = ("device", "case", "", "before", "after", "")
HOW_TO_SAVE = "`portable-softmax plan --save FILE` writes such reports, and so do kernel and verify"
PLAN = ("num_programs", "num_warps", "num_stages")


class ReportsError(ValueError):
    """A file holds no reports that this version can read."""


class Change(Fields, frozen=True, kw_only=True):
    """One number of a case that changed."""

    device: str
    case: str
    what: str  # the number's name, or error
    before: Scalar
    after: Scalar
    worse: bool  # another plan, fewer resident programs, more spilled bytes, or a new error


class Comparison(Fields, frozen=True, kw_only=True):
    """Difference of two runs."""

    schema_version: int = SCHEMA_VERSION
    cases: int
    not_compiled: int  # cases without numbers in one of the two
    software: dict[str, tuple[str | None, str | None]]  # versions that changed
    changes: list[Change]

    @property
    def exit_code(self) -> int:
        """See options.EXIT_CODES."""
        return 3 if any(change.worse for change in self.changes) else 4 if self.not_compiled else 0


def save(reports: list[Report], path: Path) -> None:
    """Writes reports to a file for `load`."""
    write_whole(path, encoded(reports) + "\n")


def load(path: Path) -> list[Report]:
    """Returns the reports that --save wrote, or --json printed.

    Raises:
        FileNotFoundError: there is no such file.
        ReportsError: it holds no reports, or those of another schema version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; {HOW_TO_SAVE}")
    try:
        reports = msgspec.json.decode(path.read_bytes(), type=list[Report])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportsError(f"{path} holds no reports of schema version {SCHEMA_VERSION}: {error}; {HOW_TO_SAVE}") from error
    if {report.schema_version for report in reports} != {SCHEMA_VERSION}:
        raise ReportsError(f"{path} holds no reports of schema version {SCHEMA_VERSION}; {HOW_TO_SAVE}")
    if not all((report.problem or report.kernel) and (report.error or report.launch or report.verify) for report in reports):
        raise ReportsError(f"{path} holds no reports with a case and its numbers; {HOW_TO_SAVE}")
    return reports


def check_kernel(reports: list[Report], named: str | None, path: Path) -> None:
    """Refuses a kernel that --kernel does not name, as its file would run: ReportsError."""
    held = sorted({report.kernel.name for report in reports if report.kernel})
    if held != ([named] if named else []):
        again = " --kernel ".join(shlex.quote(word) for word in (str(path), *held[:1]))
        raise ReportsError(
            f"{path} holds reports of {', '.join(held) or 'no user kernel'}; a kernel's file runs only if --kernel names it, "
            f"one for each FILE. If you trust it: `portable-softmax diff {again}`"
        )


def compare(before: Sequence[Report], after: Sequence[Report]) -> Comparison:
    """Compares reports of the same cases, in the same order."""
    pairs = list(zip(before, after, strict=True))
    old, new = (reports[0].software if reports else {} for reports in (before, after))
    return Comparison(
        cases=len(pairs),
        not_compiled=sum(TargetError.__name__ in (one.error, other.error) for one, other in pairs),
        software={name: (old.get(name), new.get(name)) for name in sorted(old | new) if old.get(name) != new.get(name)},
        changes=[change for pair in pairs for change in _changes(*pair)],
    )


def as_table(comparison: Comparison, form: str) -> str:
    """Returns a comparison as text, or as Markdown with the form "github"."""
    changes, skipped = comparison.changes, comparison.not_compiled
    worse = f"{sum(change.worse for change in changes)} for the worse{f', {skipped} not compiled' if skipped else ''}"
    parts = [f"{many(len(changes), 'change')} in {many(comparison.cases, 'case')}, {worse}"]
    if moved := [f"{name} {old} -> {new}" for name, (old, new) in comparison.software.items()]:
        parts.append(f"software: {', '.join(moved)}")
    rows = [
        (change.device, change.case, change.what, _short(change.before), _short(change.after), "worse" * change.worse)
        for change in changes
    ]
    return "\n\n".join([*parts, *([as_columns(HEADER, rows, form)] if rows else [])])


def _short(value: Scalar) -> Scalar:
    return f"{value:.4g}" if isinstance(value, float) else value


def _changes(before: Report, after: Report) -> Iterator[Change]:
    """Yields the numbers that both reports of a case have, and that differ."""
    old, new, (device, case) = _values(before), _values(after), after.key
    for what in old.keys() & new.keys():
        if old[what] != new[what]:
            worse = _is_worse(what, old[what], new[what])
            yield Change(device=device, case=case, what=what, before=old[what], after=new[what], worse=worse)


def _is_worse(what: str, was: Scalar, now: Scalar) -> bool:
    more = isinstance(was, int) and isinstance(now, int) and now > was
    rules = {
        "error": now is not None,
        "spilled_bytes_per_thread": more,
        "programs_per_multiprocessor": not more,
        "launch": True,
    }
    return rules.get(what, what in PLAN)


def _values(report: Report) -> dict[str, Scalar]:
    """Returns the numbers that are compared, by name."""
    values: dict[str, Scalar] = {"error": f"{report.error}: {report.message}" if report.error else None}
    if launch := report.launch:
        values["launch"] = str(launch.tiling or "")
        values |= {name: option.value for name, option in launch.options.items() if name in PLAN} | {
            "num_programs": launch.num_programs
        }
    if report.resources and report.occupancy:
        values |= vars(report.resources) | {"programs_per_multiprocessor": report.occupancy.programs_per_multiprocessor}
    if report.time and report.time.expected_us is not None:
        values["expected_us"] = round(report.time.expected_us, 2)
    if report.verify:
        values |= {"worst": report.verify.worst, "overwritten": report.verify.overwritten}
    return values
