"""What changed between saved reports and those of today: which launches are worse, and which cannot be compared."""

from collections.abc import Sequence
from typing import Any

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
    """Compares reports of the same cases. Worse is another plan, fewer programs, more spills, a new error.

    Not compared is a case without a launch, an estimate, and one whose plan, programs or spills have another name or type.
    """
    changes, not_compared = [], 0
    for older, report in zip(before, after, strict=True):
        was, now = _values(older), _values(report)
        launched = older.launch and report.launch
        gates = older.launch.keys() | MORE_IS_WORSE.keys()
        alike = older.launch.keys() == report.launch.keys() and gates <= was.keys() & now.keys()
        alike = alike and all(type(was[name]) is type(now[name]) for name in gates)
        estimated = older.numbers.get("estimated") or report.numbers.get("estimated")
        if launched and (estimated or not alike):
            was = {}
        not_compared += not (launched and was)
        for name, value in was.items():
            if (other := now.get(name, value)) != value:
                worse = name in older.launch or (name == "error" and other is not None)
                if name in MORE_IS_WORSE:
                    worse = (other > value) == MORE_IS_WORSE[name]
                changes.append(Change(report.device.profile, report.case, name, value, other, worse))
    old, new = before[0].software, after[0].software
    moved = {name: (old.get(name), new.get(name)) for name in sorted(old | new) if old.get(name) != new.get(name)}
    return Differences(changes, len(before), not_compared, moved)


def _values(report: Report) -> dict[str, Any]:
    """Returns what is compared, by name."""
    return {"error": next(iter(report.failure), None), **report.launch, **report.numbers}
