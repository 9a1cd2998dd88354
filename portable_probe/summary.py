"""`portable-softmax report RUN...`: several runs as Markdown, for the step summary of GitHub or GitLab."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from portable_probe.output import as_columns
from portable_probe.regression import CHANGE_HEADER, REGRESSED, change_row, compare, load
from portable_probe.report import launch_words, use_of, words_of
from portable_probe.report_types import Change, Report

Key = tuple[str, str]  # profile and case


class Run(NamedTuple):
    """Reports of one run, and why files of it cannot be read."""

    label: str
    reports: list[Report]
    notes: list[str]


def add(command: argparse.ArgumentParser) -> None:
    """Adds the options of `report`."""
    words = "a file of --save or --json, or a folder of them; the oldest run first"
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=words)
    command.set_defaults(answer=report)


def report(options: argparse.Namespace) -> int:
    """Prints the summary; returns 0, or 3 if something is worse than in an earlier run.

    Raises:
        FileNotFoundError: there is no such run.
        ValueError: a run holds no reports.
    """
    runs = [read(path) for path in options.runs]
    changes = list(changes_of(runs))
    print(markdown(runs, changes))
    return REGRESSED if any(change.worse for change in changes) else 0


def read(path: Path) -> Run:
    """Reads the reports of a file, or of the JSON files of a folder.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: nothing in it can be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; a run is a file of reports, or a folder of them")
    run = Run(path.name or path.resolve().name, [], [])
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            run.reports.extend(load(file))
        except (ValueError, RecursionError) as error:
            run.notes.append(f"{file.name} cannot be read: {error}")
    if not run.reports:
        raise ValueError("; ".join([f"{path} holds no reports", *run.notes]))
    return run


def changes_of(runs: list[Run]) -> Iterator[Change]:
    """Yields what changed between each run and the last earlier one that has the same device and case."""
    known: dict[Key, Report] = {}
    for run in runs:
        for now in run.reports:
            if before := known.get(_key(now)):
                yield from compare([before], [now]).changes
            known[_key(now)] = now


def markdown(runs: list[Run], changes: list[Change]) -> str:
    """Returns what changed, and the newest plans, as tables in Markdown."""
    labels = ", ".join(run.label for run in runs)
    parts = [f"# Launches of {_plain(labels)}", "## What changed", _table(CHANGE_HEADER, map(change_row, changes))]
    parts += ["## Plans side by side", _table(*plans(runs))]
    return "\n\n".join([*parts, *(_plain(note) for run in runs for note in run.notes)])


def plans(runs: list[Run]) -> tuple[tuple[str, ...], Iterator[tuple[str, ...]]]:
    """Returns header and rows of the newest plans by device and case; the fewer of the two are the columns."""
    latest = {_key(report): _plan(report) for run in runs for report in run.reports}
    devices, cases = (list(dict.fromkeys(each)) for each in zip(*latest, strict=True))
    if len(devices) > len(cases):
        return ("", *cases), ((device, *(latest.get((device, case), "-") for case in cases)) for device in devices)
    return ("", *devices), ((case, *(latest.get((device, case), "-") for device in devices)) for case in cases)


def _plan(report: Report) -> str:
    verified = f"; {'right' if report.verify.right else 'WRONG'}" if report.verify else ""
    use = use_of(report)
    if use is None:
        return f"{report.error}: {report.message}" if report.error else f"interpreted{verified}"
    resources, occupancy = use
    registers = "" if resources.registers_per_thread is None else f"{resources.registers_per_thread} registers, "
    spills = f"{resources.spilled_bytes_per_thread} bytes spilled, " if resources.spilled_bytes_per_thread else ""
    fit = f"{occupancy.programs_per_multiprocessor} per {report.device.multiprocessor}"
    return f"{launch_words(report)}, {registers}{spills}{fit} ({' and '.join(occupancy.limited_by)}){verified}"


def _key(report: Report) -> Key:
    case = report.problem or report.kernel
    return report.device.profile, words_of(case) if case else "the device"


def _table(header: "tuple[str, ...]", rows: "Iterator[tuple[str, ...]]") -> str:
    told = [tuple(map(_plain, row)) for row in rows]
    return as_columns(tuple(map(_plain, header)), told, "github") if told else "Nothing."


def _plain(text: str) -> str:
    """Returns text that stays one cell and one line of Markdown, whatever a kernel or a file is called."""
    return re.sub(r"[|<]|\](?=\()", r"\\\g<0>", " ".join(text.split()))
