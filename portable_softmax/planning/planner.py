"""Problem + Device -> LaunchPlan: arithmetic, and a function that returns the resources of a compiled candidate.

All launches of the grid are ranked by their expected cost, with estimated registers. They are
compiled in this order, until none that is left should be faster than the best of these by what it really uses.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, TargetError
from portable_softmax.planning.cost import Terms, cost
from portable_softmax.planning.facts import softmax_facts
from portable_softmax.planning.grid import estimated, grid, readings
from portable_softmax.planning.plan import LaunchPlan, Tiling, why, why_faster
from portable_softmax.planning.problem import Problem

UNLIMITED = 2**63 - 1
MANY = 2**14  # rows, or groups of rows that lie side by side, for which a batch-invariant launch is chosen
ALIKE = 1.01  # times that differ by less are alike: the error of an expected time is larger
MOST_COMPILED = 4  # launches: each takes a second or so
SKIPPED = 0.035  # part of a launch's time that beginning its programs may take, if rows may be skipped
SLOW = 0.1  # part of the expected time that spills take of a launch that is called slow

Measure = Callable[[Problem, Tiling, Device], KernelResources]


class Ranked(NamedTuple):
    """A launch that could be compiled: how rows are read and cut, and its expected time; None where it is unknown."""

    problem: Problem
    tiling: Tiling
    terms: Terms | None

    @property
    def us(self) -> float:
        """Returns the expected microseconds; 0 where they are not known."""
        return self.terms.total if self.terms else 0


class Compiled(NamedTuple):
    """A launch that was compiled, what a program uses, how many fit, and the expected time with these."""

    problem: Problem
    tiling: Tiling
    resources: KernelResources
    occupancy: Occupancy
    num_programs: int
    terms: Terms | None

    @property
    def spilled(self) -> int:
        """Returns the bytes of memory that a thread spills into: its stack frame, as these kernels have no other data."""
        return spilled_by(self.resources)

    @property
    def us(self) -> float:
        """Returns the expected microseconds; where they are not known the bytes that are spilled."""
        return self.terms.total if self.terms else self.spilled


def choose(problem: Problem, device: Device, measure: Measure) -> LaunchPlan:
    """Plans the launch of `problem` on `device`; `measure` compiles a candidate and reads what it uses.

    Raises:
        PlanError: no candidate compiles and fits; lists them all.
        TargetError: this Triton does not compile for the device.
    """
    order = ranked(problem, device)
    rejected: list[str] = []
    compiled: list[Compiled] = []
    left: Ranked | None = None
    for left in order:
        if compiled and (min(launch.us for launch in compiled) <= ALIKE * left.us or len(compiled) == MOST_COMPILED):
            break
        try:
            resources = measure(left.problem, left.tiling, device)
        except TargetError:
            raise  # no candidate would compile
        except CompileError as error:
            rejected.append(f"{left.tiling}: does not compile: {error}")
            continue
        occupancy = device.vendor.occupancy(resources, device.hardware)
        if reason := unfit(left.problem, left.tiling, occupancy, device):
            rejected.append(f"{left.tiling}: {reason}")
        else:
            compiled.append(_compiled(left.problem, left.tiling, resources, occupancy, device))
    if not compiled:
        tried = "\n  ".join(_listed_once(rejected))
        raise PlanError(f"no launch of a {problem.name} of {problem.size} fits {device}; tried:\n  {tried}")
    best, *others = sorted(compiled, key=_order)
    return _plan(best, others, order, rejected, device)


def ranked(problem: Problem, device: Device) -> list[Ranked]:
    """Returns the launches of a problem that should fit, with estimated resources, the one of the least cost first.

    Where the cost is unknown, the last way to read rows goes first, and launches keep the order of the grid.
    """
    launches = []
    for reading in reversed(readings(problem, device)):
        for tiling in grid(_of_many(reading), device):
            tiling = replace(tiling, walk=_walks(reading, tiling, device))
            if not device.profile.launch.cost:
                launches.append(Ranked(reading, tiling, None))
                continue
            used = estimated(reading, tiling, device)
            occupancy = device.vendor.occupancy(used, device.hardware)
            if not unfit(reading, tiling, occupancy, device):
                launches.append(Ranked(reading, tiling, _expected(reading, tiling, used, occupancy, device)))
    launches.sort(key=_order)
    return [launch for launch in launches if _begins_fast(launch, device)] or launches


def _order(launch: "Ranked | Compiled") -> float:
    """Returns what launches are sorted by: their time; of those that are alike the one without an exchange is first."""
    return launch.us * (ALIKE if launch.tiling.is_shared else 1)


def _begins_fast(launch: Ranked, device: Device) -> bool:
    """True if rows may not be skipped, or beginning all programs takes little: it is all that skipped rows take."""
    numbers, problem, tiling = device.profile.launch.cost, launch.problem, launch.tiling
    if not problem.skips or problem.stores or not numbers:
        return True
    begins = 1e-3 * numbers.launch_ns * problem.tiles(tiling.tile_rows) * tiling.splits
    return begins <= SKIPPED * launch.us


def spilled_by(used: KernelResources) -> int:
    """Returns the bytes of memory that a thread spills into: its stack frame, if the compiler reports it."""
    return used.spilled_bytes_per_thread if used.stack_frame_bytes is None else used.stack_frame_bytes


def unfit(problem: Problem, tiling: Tiling, fit: Occupancy, device: Device) -> str | None:
    """Returns the reason why a compiled launch cannot run, or not without a long wait; None if it can."""
    if not fit.programs_per_multiprocessor:
        return f"does not fit: {', '.join(fit.limited_by)}"
    if tiling.two_launches:
        return None  # no program waits for another
    most = min(device.resident(fit), _most_programs(tiling, device))
    return f"only {most} programs are resident at once" if most < tiling.splits else None


def _of_many(problem: Problem) -> Problem:
    """Returns the problem with many rows if its launch may not depend on their number, else as it is."""
    return replace(problem, n_rows=MANY * problem.inner, lines=None) if problem.batch_invariant else problem


def _compiled(problem: Problem, tiling: Tiling, used: KernelResources, fit: Occupancy, device: Device) -> Compiled:
    terms = _expected(problem, tiling, used, fit, device) if fit.programs_per_multiprocessor else None
    return Compiled(problem, tiling, used, fit, _num_programs(problem, tiling, fit, device), terms)


def _expected(problem: Problem, tiling: Tiling, used: KernelResources, fit: Occupancy, device: Device) -> Terms | None:
    """Returns the terms of the time.

    A batch-invariant launch is that of one row and of many: its time is the geometric mean of both, in the terms of many.
    """
    many = _of_many(problem)
    terms = _at_rows(many, tiling, used, fit, device)
    if not terms or not problem.batch_invariant:
        return terms
    one = _at_rows(replace(many, n_rows=problem.inner), tiling, used, fit, device)
    part = math.sqrt(one.total / terms.total) if one else 1.0
    return terms.times(part)


def _at_rows(problem: Problem, tiling: Tiling, used: KernelResources, fit: Occupancy, device: Device) -> Terms | None:
    numbers = device.profile.launch.cost
    if not numbers:
        return None
    num_programs = _num_programs(problem, tiling, fit, device)
    return cost(
        softmax_facts(problem, tiling, num_programs, fit.programs_per_multiprocessor, device, spilled_by(used)), numbers
    )


def _num_programs(problem: Problem, tiling: Tiling, fit: Occupancy, device: Device) -> int:
    groups = min(problem.tiles(tiling.tile_rows), _most_programs(tiling, device) // tiling.splits)
    resident = device.resident(fit)
    if not tiling.is_shared and device.profile.grid.value == "resident" and resident:
        groups = min(groups, resident)  # all walk over equally many tiles
    return groups * tiling.splits


def _listed_once(rejected: list[str]) -> list[str]:
    """Returns one line, with the first reason, where no candidate compiles: the compiler cannot be used at all."""
    reasons = [reason.partition(": ")[2] for reason in rejected]
    if len(reasons) > 1 and all(reason.startswith("does not compile") for reason in reasons):
        return [f"{len(reasons)} launches, and each {reasons[0]}"]
    return rejected


def _plan(best: Compiled, others: list[Compiled], order: list[Ranked], rejected: list[str], device: Device) -> LaunchPlan:
    compiled = {(best.problem, best.tiling), *((launch.problem, launch.tiling) for launch in others)}
    left = [launch for launch in order if (launch.problem, launch.tiling) not in compiled]
    runners: list[Compiled | Ranked] = [*others, *left[:1]]
    beside = min(runners, key=lambda launch: launch.us, default=None)
    warning = None
    if best.spilled and _spills_slow(best, device):
        warning = f"slow: spills into {best.spilled} bytes per thread; no other of {len(order)} launches should be faster"
    resident = device.resident(best.occupancy)
    reasons = [warning] if warning else []
    if best.terms and beside and beside.terms:
        reasons.append(why_faster(best.terms, best.tiling, beside.terms, beside.tiling, len(order)))
    reasons += (f"rejected {reason}" for reason in rejected)
    reasons += why(best.problem, best.tiling, best.resources, best.num_programs, resident, device)
    chosen = best.problem, best.tiling, best.num_programs, best.resources, best.occupancy
    return LaunchPlan(*chosen, tuple(reasons), warning, best.terms)


def _spills_slow(best: Compiled, device: Device) -> bool:
    """True if spills take a good part of the expected time, or an unknown one."""
    if not best.terms:
        return True
    held = replace(best.resources, spilled_bytes_per_thread=0, stack_frame_bytes=None)
    without = _expected(best.problem, best.tiling, held, best.occupancy, device)
    return without is not None and best.us - without.total > SLOW * best.us


def _walks(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """True if there are fewer programs than tiles: by the profile's choice, or since a launch has no more."""
    resident = not tiling.is_shared and device.profile.grid.value == "resident"
    return resident or problem.tiles(tiling.tile_rows) * tiling.splits > _most_programs(tiling, device)


def _most_programs(tiling: Tiling, device: Device) -> int:
    """Returns the most programs of one launch; the kernel walks through the tiles that are left."""
    hardware = device.hardware
    threads = tiling.num_warps * (hardware.warp_size or 1) if tiling.num_warps else hardware.max_threads_per_program or 1
    limits = hardware.max_programs, hardware.max_threads and hardware.max_threads // threads
    return min((limit for limit in limits if limit), default=UNLIMITED)
