"""What changed between two files of reports: which launches are worse, and which cannot be compared."""

from collections.abc import Sequence
from typing import Any

import msgspec

from portable_probe.report import Case, Report, Scalar, encoded
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
        words = f"{len([change for change in self.changes if change.worse])} for the worse"
        words += f", {self.not_compared} not compared" if self.not_compared else ""
        parts = [f"{many(len(self.changes), 'change')} in {many(self.cases, 'case')}, {words}"]
        if self.software:
            parts.append(f"software: {', '.join(f'{name} {old} -> {new}' for name, (old, new) in self.software.items())}")
        rows = [(one.device, one.case, one.value, one.before, one.after, "worse" if one.worse else "") for one in self.changes]
        return "\n\n".join([*parts, *([as_columns(HEADER, rows, form)] if rows else [])])


def compared(before: Sequence[Report], after: Sequence[Report]) -> Differences:
    """Compares reports of the same devices and cases. Worse is another plan, fewer programs, more spills, a new error.

    Not compared is a case that one side lacks or did not launch, an estimate, and one with a plan, programs or spills of other
    names or types.
    """
    old, new = ({(one.device.profile, encoded(one.case)): one for one in reports} for reports in (before, after))
    changes, not_compared = [], len(old.keys() ^ new.keys())
    for key in (key for key in old if key in new):
        was, now = _values(old[key]), _values(new[key])
        if not _comparable(old[key], new[key]):
            not_compared += 1
            was = {"error": was["error"]}
        for name, value in was.items():
            if (other := now.get(name, value)) != value:
                worse = name in old[key].launch or (name == "error" and other is not None)
                if name in MORE_IS_WORSE:
                    worse = (other > value) == MORE_IS_WORSE[name]
                changes.append(Change(key[0], old[key].case, name, value, other, worse))
    first, last = (reports[0].software for reports in (before, after))
    moved = {name: (first.get(name), last.get(name)) for name in sorted(first | last) if first.get(name) != last.get(name)}
    return Differences(changes, len(old | new), not_compared, moved)


def _comparable(old: Report, new: Report) -> bool:
    """True if both were launched and not estimated, and what can be worse has the same names and types in both."""
    kinds, others = ({name: type(_values(one).get(name)) for name in (*one.launch, *MORE_IS_WORSE)} for one in (old, new))
    estimated = old.numbers.get("estimated") or new.numbers.get("estimated")
    return bool(old.launch) and not estimated and kinds == others and type(None) not in kinds.values()


def _values(report: Report) -> dict[str, Any]:
    """Returns what is compared, by name."""
    return {"error": next(iter(report.failure), None), **report.launch, **report.numbers}
