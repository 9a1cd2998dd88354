"""Finds what a page tells: the plans side by side, tests, and what regressed between runs."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

from portable_probe.page.runs import OURS, Run
from portable_probe.regression import compare
from portable_probe.report import launch_words, use_of, words_of
from portable_probe.schema import Change, KernelUse, Report, SoftmaxProblem

Table = tuple[list[str], list[list[str]]]  # header and rows


def plans(runs: list[Run]) -> Table:
    """Returns the newest plans or kernels side by side, by device and case; the fewer of the two are the columns."""
    latest = _latest(runs)
    devices = list(dict.fromkeys(device for device, _ in latest))
    cases = list(dict.fromkeys(case for _, case in latest))
    if len(devices) > len(cases):
        return ["", *cases], [[device, *(_plan(latest.get((device, case))) for case in cases)] for device in devices]
    return ["", *devices], [[case, *(_plan(latest.get((device, case))) for device in devices)] for case in cases]


def _plan(report: Report | None) -> str:
    if report is None:
        return "-"
    use = use_of(report)
    verified = f"; {'right' if report.verify.right else 'WRONG'}" if report.verify else ""
    if use is None:
        return f"{report.error}: {report.message}" if report.error else f"interpreted{verified}"
    resources, occupancy = use
    registers = "" if resources.registers_per_thread is None else f"{resources.registers_per_thread} registers, "
    spills = f"{resources.spilled_bytes_per_thread} bytes spilled, " if resources.spilled_bytes_per_thread else ""
    fit = f"{occupancy.programs_per_multiprocessor} per {report.device.multiprocessor}"
    return f"{launch_words(report)}, {registers}{spills}{fit} ({' and '.join(occupancy.limited_by)}){verified}"


def regressions(runs: list[Run], slower: float, tolerated: Mapping[str, float | None]) -> list[Change]:
    """Returns what changed between each run and the last earlier one that has the same case, the oldest run first.

    Args:
        runs: the oldest first.
        slower: the part of its rate that a benchmark may lose.
        tolerated: by kind of change, as `regression.compare` takes them.
    """
    changes: list[Change] = []
    known: dict[tuple[str, str], Report] = {}
    rates: dict[tuple[str, ...], float] = {}
    failures: dict[tuple[str, str | None], list[str]] = {}
    for run in runs:
        for report in run.reports:
            key = report.device.profile, _case(report)
            if key in known:
                changes += compare([known[key]], [report], tolerated).changes
            known[key] = report
        earlier = dict(rates)  # of other runs: two files of this one may have the same cell
        for rate in (rate for rate in run.rates if OURS in rate.gb_per_s):
            where, now = (run.measured_on(rate), rate.direction, rate.dtype, rate.shape), rate.gb_per_s[OURS]
            before = earlier.get(where, now)
            if abs(now - before) > slower * before:
                changes.append(_change(where[0], " ".join(where[1:]), "speed", "GB/s", before, now, now < before))
            rates[where] = now
        for suite in run.suites:
            name = suite.name, suite.properties.get("profile")
            was, fail = failures.get(name, suite.failures), suite.failures
            if was != fail:
                worse = None if len(fail) == len(was) else len(fail) > len(was)
                told = suite.properties.get("profile", run.label), suite.name, "tests", ", ".join(fail[:5])
                changes.append(_change(*told, len(was), len(fail), worse))
            failures[name] = fail
    return changes


def _change(device: str, case: str, kind: str, what: str, before: float, after: float, worse: bool | None) -> Change:
    """Returns a change; one that is neither better nor worse (None) is not tolerated either."""
    verdict: Literal["worse", "better", "changed"] = "changed" if worse is None else "worse" if worse else "better"
    return Change(
        device=device, case=case, kind=kind, what=what, before=before, after=after, verdict=verdict, tolerated=worse is False
    )


def failing(runs: list[Run]) -> list[str]:
    """Names the tests that fail in the newest run of each file of results."""
    newest = {(suite.name, suite.properties.get("profile")): suite for run in runs for suite in run.suites}
    return [failure for suite in newest.values() for failure in suite.failures]


def tests(runs: list[Run]) -> Table:
    """Returns test results, a row for each file of them."""
    rows = [
        [run.label, suite.name, suite.properties.get("device", ""), *map(str, suite.totals)]
        for run in runs
        for suite in run.suites
    ]
    return ["run", "tests", "device", "passed", "failed", "skipped"], rows


def _latest(runs: list[Run]) -> dict[tuple[str, str], Report]:
    return {(report.device.profile, _case(report)): report for run in runs for report in run.reports}


def _case(report: Report) -> str:
    case = report.problem or report.kernel
    return words_of(case) if isinstance(case, SoftmaxProblem | KernelUse) else "the device"


def launches(runs: list[Run]) -> dict[tuple[str, str], list[Report]]:
    """Returns the newest plans of the plain softmax by device and type, each list by columns."""
    groups: dict[tuple[str, str], list[Report]] = defaultdict(list)
    for report in _latest(runs).values():
        problem = report.problem
        if report.plan and problem and not (problem.scores or problem.backward):
            groups[report.device.profile, problem.dtype].append(report)
    return {key: sorted(each, key=_columns) for key, each in groups.items()}


def _columns(report: Report) -> tuple[int, int]:
    problem = report.problem
    return (problem.n_cols, problem.n_rows) if problem else (0, 0)
