"""What changed between saved reports and those of today: which launches are worse, and which cannot be compared."""

from collections.abc import Sequence

import msgspec

from portable_probe.report import Case, Report, Scalar
from portable_probe.text import as_columns, many

HEADER = ("device", "case", "", "before", "after", "")
MORE_IS_WORSE = {"spilled_bytes_per_thread": True, "programs_per_multiprocessor": False}


class Change(msgspec.Struct, frozen=True):
    """A value of a case that differs."""

    device: str
    case: Case
    value: str
    before: Scalar
    after: Scalar
    worse: bool


class Differences(msgspec.Struct, frozen=True):
    """Changes of the values of cases, the number of cases in all and of those not compared, and versions that differ."""

    changes: list[Change]
    cases: int
    not_compared: int
    software: dict[str, tuple[str | None, str | None]]

    @property
    def code(self) -> int:
        """Returns the exit code: 3 if something is worse, 4 if a case was not compared, else 0."""
        if any(change.worse for change in self.changes):
            return 3
        return 4 if self.not_compared else 0

    def as_text(self, form: str) -> str:
        """Returns a summary and a table of changes, or Markdown with the form "github"."""
        words = f"{sum(change.worse for change in self.changes)} for the worse"
        words += f", {self.not_compared} not compared" if self.not_compared else ""
        parts = [f"{many(len(self.changes), 'change')} in {many(self.cases, 'case')}, {words}"]
        if self.software:
            parts.append(f"software: {', '.join(f'{name} {old} -> {new}' for name, (old, new) in self.software.items())}")
        rows = [(one.device, one.case, one.value, one.before, one.after, "worse" * one.worse) for one in self.changes]
        return "\n\n".join([*parts, *([as_columns(HEADER, rows, form)] if rows else [])])


def compared(before: Sequence[Report], after: Sequence[Report]) -> Differences:
    """Compares reports of the same cases, in the same order. Worse is another plan, fewer programs, more spills, a new error.

    A case is not compared if one of its reports has no launch, is an estimate, has other values than the other report, or text
    for a number.
    """
    changes, not_compared = [], 0
    for older, report in zip(before, after, strict=True):
        compiled = older.launch and report.launch
        is_estimated = older.numbers.get("estimated") or report.numbers.get("estimated")
        comparable = compiled and not is_estimated and _comparable(older, report)
        not_compared += not comparable
        if compiled and not comparable:
            continue
        new_values = _values(report)
        for what, was in _values(older).items():
            now = new_values.get(what, was)
            if now != was:
                worse = what in older.launch or _is_worse(what, was, now)
                changes.append(Change(report.device.profile, report.case, what, was, now, worse))
    old, new = before[0].software, after[0].software
    moved = {name: (old.get(name), new.get(name)) for name in sorted(old | new) if old.get(name) != new.get(name)}
    return Differences(changes, len(before), not_compared, moved)


def _comparable(older: Report, report: Report) -> bool:
    """True if launches have the same options, and values are numbers in both or in neither; None is only like None in gates."""
    known, values = ({**one.launch, **one.numbers} for one in (older, report))
    gates = older.launch.keys() | MORE_IS_WORSE.keys()
    kinds = {name: {_kind(known.get(name)), _kind(values.get(name))} for name in known | values}
    return older.launch.keys() == report.launch.keys() and all(
        len(kind if name in gates else kind - {type(None)}) <= 1 for name, kind in kinds.items()
    )


def _kind(value: Scalar) -> type:
    """Returns float for all numbers, and the type of any other value."""
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)


def _is_worse(what: str, was: Scalar, now: Scalar) -> bool:
    if what in MORE_IS_WORSE and isinstance(was, int) and isinstance(now, int):
        return (now > was) == MORE_IS_WORSE[what]
    return what == "error" and now is not None


def _values(report: Report) -> dict[str, Scalar]:
    """Returns the numbers that are compared, by name."""
    error = f"{report.error}: {report.message}" if report.error else None
    return {"error": error, **report.launch, **report.numbers}
