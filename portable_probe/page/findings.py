"""Finds what a page tells: how far each vendor is proven, the plans side by side, and what regressed between runs."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Literal

from portable_probe.columns import many
from portable_probe.page.runs import Run, Suite
from portable_probe.regression import compare
from portable_probe.report import use_of, words_of
from portable_probe.results import OURS
from portable_probe.schema import Change, KernelUse, Launch, Report, SoftmaxProblem
from portable_softmax.devices.backends import BACKENDS

LEVELS = ("planned", "compiled", "executed on a CPU", "run on hardware")
# Tests of this project that execute a vendor's code on a CPU.
VIRTUAL = {"tests.virtual_amd.": "hip", "tests.virtual.": "npu", "tests.intel.": "xpu"}
# What tests/runtime/test_static_quality.py counts, by backend and architecture, and what it proves.
COUNTED = {"plans": ("planned", "plan"), "static quality": ("compiled", "kernel")}
Table = tuple[list[str], list[list[str]]]  # header and rows


def proof(runs: list[Run]) -> Table:
    """Returns how far each vendor is proven by these runs, level by level."""
    found: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in BACKENDS}
    latest = list(_latest(runs).values())
    for backend in BACKENDS:
        here = [report for report in latest if report.device.backend == backend and use_of(report)]
        for level, reports in zip(LEVELS, (here, [each for each in here if _compiled(each)]), strict=False):
            if products := {report.device.profile for report in reports}:
                found[backend][level].append(f"{many(len(products), 'device')}, {many(len(reports), 'case')}")
    newest = {(suite.name, suite.properties.get("profile")): suite for run in runs for suite in run.suites}
    for suite in newest.values():
        for backend, level, words in _of_suite(suite):
            if backend in found:
                found[backend][level].append(words)
    for report in latest:
        if report.verify:
            level = LEVELS[2] if report.verify.executed or report.device.backend == "interpreter" else LEVELS[3]
            right = "right" if report.verify.right else "WRONG"
            found[report.device.backend][level].append(f"{_case(report)} {right}")
    rows = [[backend, *("; ".join(levels[level]) or "-" for level in LEVELS)] for backend, levels in found.items() if levels]
    return ["", *LEVELS], rows


def _compiled(report: Report) -> bool:
    """Tells whether a compiler told the resources: those of a launch without warps are a vendor's model."""
    use = use_of(report)
    return bool(use and (report.kernel or use[0].num_warps is not None))


def _of_suite(suite: Suite) -> Iterator[tuple[str, str, str]]:
    """Yields backend, level and words of what a suite proves."""
    cases: Counter[tuple[str, str]] = Counter()
    faults: Counter[tuple[str, str]] = Counter()
    for name, (compared, different) in suite.counts.items():
        kind, _, target = name.partition(", ")
        if kind in COUNTED:
            key = target.partition("/")[0], kind
            cases[key] += compared
            faults[key] += different
    for (backend, kind), number in cases.items():
        level, word = COUNTED[kind]
        yield backend, level, f"{many(number, word)}, {many(faults[backend, kind], 'fault')}"
    for prefix, backend in VIRTUAL.items():
        tests = [each for group, each in suite.tests.items() if group.startswith(prefix)]
        if tests:
            passed, failed, _ = (sum(each) for each in zip(*tests, strict=True))
            yield backend, LEVELS[2], f"virtual device: {passed} passed, {failed} failed"
    if backend := suite.properties.get("backend", ""):
        passed, failed, _ = suite.totals
        here = LEVELS[2] if backend == "interpreter" else LEVELS[3]
        level = LEVELS[1] if suite.properties.get("here") == "no" else here
        yield backend, level, f"{suite.properties.get('profile')}: {passed} passed, {failed} failed"


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
    if use is None:
        return f"{report.error}: {report.message}"
    resources, occupancy = use
    launch = (
        f"{report.plan.tiling}, "
        if report.plan
        else ""
        if resources.num_warps is None
        else f"num_warps {resources.num_warps}, "
    )
    registers = "" if resources.registers_per_thread is None else f"{resources.registers_per_thread} registers, "
    spills = f"{resources.spilled_bytes_per_thread} bytes spilled, " if resources.spilled_bytes_per_thread else ""
    fit = f"{occupancy.programs_per_multiprocessor} per {report.device.multiprocessor}"
    return f"{launch}{registers}{spills}{fit} ({' and '.join(occupancy.limited_by)})"


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
                changes.append(_speed(where, before, now))
            rates[where] = now
        for suite in run.suites:
            name = suite.name, suite.properties.get("profile")
            if failures.get(name, suite.failures) != suite.failures:
                changes.append(_failed(run, suite, len(failures[name])))
            failures[name] = suite.failures
    return changes


def _speed(where: tuple[str, ...], before: float, now: float) -> Change:
    device, *case = where
    return Change(
        device=device, case=" ".join(case), kind="speed", what="GB/s", before=before, after=now,
        verdict="worse" if now < before else "better", tolerated=now > before,
    )  # fmt: skip


def _failed(run: Run, suite: Suite, before: int) -> Change:
    after = len(suite.failures)
    verdict: Literal["worse", "better", "changed"] = "worse" if after > before else "better" if after < before else "changed"
    return Change(
        device=suite.properties.get("profile", run.label), case=suite.name, kind="tests", what=", ".join(suite.failures[:5]),
        before=before, after=after, verdict=verdict, tolerated=after < before,
    )  # fmt: skip


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
        if isinstance(report.plan, Launch) and isinstance(problem, SoftmaxProblem) and not (problem.scores or problem.backward):
            groups[report.device.profile, problem.dtype].append(report)
    return {key: sorted(each, key=_columns) for key, each in groups.items()}


def _columns(report: Report) -> tuple[int, int]:
    problem = report.problem
    return (problem.n_cols, problem.n_rows) if isinstance(problem, SoftmaxProblem) else (0, 0)
