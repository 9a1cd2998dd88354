"""Problem + Device -> LaunchPlan: arithmetic, and a function that returns the resources of a compiled candidate.

Candidates are ranked by their expected cost, with estimated registers. They are compiled in this order, until none that is
left should be faster than the best of these by what it really uses; of row kernels, eight are compiled side by side.
"""

import math
import statistics
import time as clock
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, TargetError
from portable_softmax.planning.candidates import candidates, estimated, readings
from portable_softmax.planning.cost import Terms
from portable_softmax.planning.plan import LaunchPlan, launch_of, spilled_by
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling

ALIKE = 1.01  # times that differ by less are alike: the error of an expected time is larger
MAX_COMPILED = 6  # launches: a compilation takes about a second
MIN_US = 10  # expected time of launches that are timed: of shorter ones, events measure the host
FASTER = 1.02  # times that another launch must be faster in every round, to replace the first one
LONGEST = 60  # seconds, after which no further candidate is compiled once one runs; a compilation is not interrupted
SLOW = 0.1  # part of the expected time that spills take of a launch that is called slow

Time = Callable[[Sequence[LaunchPlan]], list[list[float]] | str]  # microseconds by round and launch, or why there are none
Compile = Callable[[Problem, Tiling, Device], KernelResources]  # compiles a candidate and reads what it uses


def compile_best(
    left: list[Any], compiled: Callable[[Sequence[Any]], Iterable[Any]], max_count: int, min_count: int
) -> tuple[list[Any], list[str]]:
    """Compiles candidates until none that is left should be faster than the best of these by what it uses.

    `left` are candidates by expected time `us`, of which those are removed that `compiled` compiles; it returns what replaces
    each of them, or why it cannot run. At most `max_count` of them run, and `min_count` are compiled side by side before times
    are compared: never where the two are equal, as of row kernels. Returns those that run, the fastest first, and why others
    cannot.
    """
    used, rejected, deadline = list[Any](), list[str](), clock.monotonic() + LONGEST
    while len(used) < max_count:
        best = math.inf
        if len(used) >= min_count:
            best = min(one.us for one in used)
        faster = [one for one in left if ALIKE * one.us < best]
        if used and faster and clock.monotonic() >= deadline:
            rejected.append(f"{len(faster)} candidates: {LONGEST} s have passed")
            break
        some = faster[: min(min_count, max_count - len(used))]
        if not some:
            break
        del left[: len(some)]
        for one in compiled(some):
            (rejected if isinstance(one, str) else used).append(one)
    return sorted(used, key=lambda one: one.us), rejected


def runner_up(compiled: Sequence[Any], left: Sequence[Any], count: int) -> Iterator[str]:
    """Yields how much slower the next one of `count` launches is, compiled or `left`, and by which term, if times are known."""
    best, *others = compiled
    other = min((*others, *left[:1]), key=lambda one: one.us, default=None)
    if other and best.terms and other.terms:
        _, most = max((b - a, name) for a, b, name in zip(best.terms, other.terms, Terms._fields, strict=True))
        slower = f"{max(0, 100 * (other.us / best.us - 1)):.1f}% slower, mostly {most}"
        doubt = "" if other in others else " by an estimate, not compiled"
        yield f"runner-up of {count} launches: {other.label}: {slower}{doubt}"


def measured(launches: Sequence[Any], time: Callable[[], list[list[float]] | str]) -> tuple[int | None, str]:
    """Returns which launch is used, and what was measured: the first, unless another one is 2% faster in every round.

    It is None if nothing was timed. `time` returns microseconds by round and launch.
    """
    rounds: list[list[float]] | str = f"fewer than two launches, or expected to take less than {MIN_US} us"
    if len(launches) > 1 and launches[0].terms and launches[0].terms.total >= MIN_US:
        rounds = time()
    if isinstance(rounds, str):
        return None, f"not measured: {rounds}"
    us = [statistics.mean(times) for times in zip(*rounds, strict=True)]
    best = us.index(min(us))
    if any(times[best] * FASTER > times[0] for times in rounds):
        best = 0
    lines = [f"{one.label} took {mean:.1f} us" for one, mean in zip(launches, us, strict=True)]
    return best, f"measured: {'; '.join([lines.pop(best), *lines])}"


def choose_launch(
    problem: Problem, device: Device, compile: Compile, size: str = "", count: int = 1, time: Time | None = None
) -> LaunchPlan:
    """Chooses a launch for a problem, usually that of a bucket, with reasons for its tiling.

    `compile` returns what a program of a candidate uses, `size` is the caller's, and `time` times the first `count` launches.

    Raises:
        PlanError: no candidate compiles and fits; lists them all.
        TargetError: this Triton does not compile for the device.
    """
    launches = ranked(problem, device)
    left = launches.copy()

    def compiled(some: Sequence[LaunchPlan]) -> Iterator[LaunchPlan | str]:
        for one in some:
            try:
                launch = launch_of(one.problem, one.tiling, device, compile(one.problem, one.tiling, device))
                yield f"{one.tiling}: {launch.unfit}" if launch.unfit else launch
            except TargetError:
                raise  # no candidate would compile
            except CompileError as error:
                yield f"{one.tiling}: does not compile: {error}"

    used, rejected = compile_best(left, compiled, max(count, MAX_COMPILED), count)
    if not used:
        if all("does not compile" in reason for reason in rejected):
            rejected = [f"{len(rejected)} launches, and each {rejected[0].partition(': ')[2]}"]
        request = f"{problem.name}, {size or problem.size},"
        raise PlanError(f"no launch of {request} fits {device}; tried:\n  " + "\n  ".join(rejected))
    decisions, warnings = list[str](), list[str]()
    best: LaunchPlan = used[0]
    if time:
        some = [one for one in used if not spilled_by(one.resources)][:count]
        at, *decisions = measured(some, lambda: time(some))
        if at is not None:
            best = some[at]
    spilled = spilled_by(best.resources)
    if spilled and not (best.terms and best.terms.lines < SLOW * best.us):
        warnings = [f"slow: spills into {spilled} bytes per thread; no other of {len(launches)} launches should be faster"]
    decisions += [*runner_up(used, left, len(launches)), *(f"rejected {reason}" for reason in rejected)]
    return replace(best, decisions=tuple(decisions), warnings=tuple(warnings))


def ranked(problem: Problem, device: Device) -> list[LaunchPlan]:
    """Returns the launches of a problem that should fit, with estimated resources, the one of the least cost first.

    Where the cost is unknown, vectorized access goes first, and launches keep their order. If none should fit, all are
    returned: the compiler may need less than is estimated.
    """
    launches = [
        launch_of(reading, tiling, device, estimated(reading, tiling, device))
        for reading in reversed(readings(problem, device))
        for tiling in candidates(reading, device)
    ]
    return sorted((one for one in launches if not one.unfit), key=lambda launch: launch.us) or launches
