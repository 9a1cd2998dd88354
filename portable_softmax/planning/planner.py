"""Problem + Device -> LaunchPlan: arithmetic, and a function that returns the resources of a compiled candidate.

All launches of the grid are ranked by their expected cost, with estimated registers. They are
compiled in this order, until none that is left should be faster than the best of these by what it really uses.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import replace

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, TargetError
from portable_softmax.planning.cost import Terms, cost
from portable_softmax.planning.facts import softmax_facts
from portable_softmax.planning.grid import Budget, estimated, grid, readings
from portable_softmax.planning.plan import LaunchPlan, Tiling, spilled_by, why, why_faster
from portable_softmax.planning.problem import Problem

MANY = 2**14  # rows, or groups of rows that lie side by side, for which a batch-invariant launch is chosen
ALIKE = 1.01  # times that differ by less are alike: the error of an expected time is larger
MOST_COMPILED = 6  # launches: a compilation takes about a second
SLOW = 0.1  # part of the expected time that spills take of a launch that is called slow


Measure = Callable[[Problem, Tiling, Device], KernelResources]  # compiles a candidate and reads what it uses


def choose(problem: Problem, device: Device, measure: Measure) -> LaunchPlan:
    """Plans the launch of `problem` on `device`; raises the errors of `choice_of`."""
    return of_size(choice_of(problem, device, measure), problem, device)


def choice_of(problem: Problem, device: Device, measure: Measure) -> LaunchPlan:
    """Chooses a launch for `problem` on `device`, with reasons for its tiling.

    Raises:
        PlanError: no candidate compiles and fits; lists them all.
        TargetError: this Triton does not compile for the device.
    """
    order, compiled, rejected = ranked(problem, device), list[LaunchPlan](), list[str]()
    for expected in order:
        enough = compiled and min(launch.us for launch in compiled) <= ALIKE * expected.us
        if compiled and (enough or len(compiled) == MOST_COMPILED or expected.us < order[0].us):
            break
        try:
            used = measure(expected.problem, expected.tiling, device)
        except TargetError:
            raise  # no candidate would compile
        except CompileError as error:
            rejected.append(f"{expected.tiling}: does not compile: {error}")
            continue
        launch = using(expected, used, device)
        if reason := unfit(launch, device):
            rejected.append(f"{launch.tiling}: {reason}")
        else:
            compiled.append(launch)
    if not compiled:
        if all("does not compile" in reason for reason in rejected):
            rejected = [f"{len(rejected)} launches, and each {rejected[0].partition(': ')[2]}"]
        raise PlanError(f"no launch of a {problem.name} of {problem.size} fits {device}; tried:\n  " + "\n  ".join(rejected))
    best, *others = sorted(compiled, key=lambda launch: launch.us)
    others += [launch for launch in order[len(compiled) + len(rejected) :][:1] if launch.us >= order[0].us]  # not tried
    faster = why_faster(best, min(others, key=lambda launch: launch.us), len(order)) if others else ()
    spilled, warning = spilled_by(best.resources), None
    if spilled and not (best.terms and best.terms.lines < SLOW * best.us):
        warning = f"slow: spills into {spilled} bytes per thread; no other of {len(order)} launches should be faster"
    reasons = warning, *faster, *(f"rejected {reason}" for reason in rejected)
    return replace(best, reasons=tuple(filter(None, reasons)), warning=warning)


def of_size(choice: LaunchPlan, problem: Problem, device: Device) -> LaunchPlan:
    """Returns the plan of a problem by the choice for its bucket, with its time and reasons."""
    reading = _read(problem, choice)
    launch = _launch(reading, choice.tiling, choice.resources, _budgets(reading, device))
    return replace(launch, reasons=(*choice.reasons, *why(launch, device)), warning=choice.warning)


def using(launch: LaunchPlan, used: KernelResources, device: Device) -> LaunchPlan:
    """Returns a launch with the resources that its programs use when they are compiled."""
    return _launch(launch.problem, launch.tiling, used, _budgets(launch.problem, device))


def launch_of(choice: LaunchPlan, problem: Problem, device: Device) -> LaunchPlan:
    """Returns the launch of a problem by the choice for its bucket: the same, without time and reasons, for a call."""
    return _sized(_read(problem, choice), choice.tiling, choice.resources, choice.occupancy, device)


def _read(problem: Problem, choice: LaunchPlan) -> Problem:
    """Returns a problem as a choice reads its rows."""
    way = choice.problem
    if (problem.vector, problem.unaligned, problem.scattered) == (way.vector, way.unaligned, way.scattered):
        return problem
    return replace(problem, vector=way.vector, unaligned=way.unaligned, scattered=way.scattered)


def ranked(problem: Problem, device: Device) -> list[LaunchPlan]:
    """Returns the launches of a problem that should fit, with estimated resources, the one of the least cost first.

    Where the cost is unknown, the last way to read rows goes first, and launches keep the order of the grid.
    """
    launches, numbers = list[LaunchPlan](), device.profile.launch.cost
    for reading in reversed(readings(problem, device)):
        budgets = _budgets(reading, device)
        launches += [_launch(reading, tiling, estimated(reading, tiling, device), budgets) for tiling in grid(budgets[0])]
    if not numbers:
        return [launch for launch in launches if not unfit(launch, device)] or launches
    return sorted((launch for launch in launches if not unfit(launch, device)), key=lambda launch: launch.us)


def unfit(launch: LaunchPlan, device: Device) -> str | None:
    """Returns the reason why a launch cannot run, or not without a long wait; None if it can."""
    if not launch.occupancy.programs_per_multiprocessor:
        return f"does not fit: {', '.join(launch.occupancy.limited_by)}"
    if launch.tiling.two_launches:
        return None  # no program waits for another
    most = min(device.resident(launch.occupancy), launch.num_programs)
    return f"only {most} programs are resident at once" if most < launch.tiling.splits else None


def _budgets(problem: Problem, device: Device) -> list[Budget]:
    """Returns the budget of a problem; those of many rows and of one if the launch must not depend on the number of rows."""
    if not problem.batch_invariant:
        return [Budget(problem, device)]
    return [
        Budget(replace(problem, n_rows=number * problem.inner, rows_per_matrix=None, mask_copies=None), device)
        for number in (MANY, 1)
    ]


def _launch(problem: Problem, tiling: Tiling, used: KernelResources, budgets: list[Budget]) -> LaunchPlan:
    """Returns the launch of programs with these resources.

    Its time is the geometric mean of those of all budgets, in the terms of the first.
    """
    device = budgets[0].device
    fit = device.vendor.occupancy(used, device.hardware)
    launch = _sized(problem, tiling, used, fit, device)
    numbers, resident, times = device.profile.launch.cost, fit.programs_per_multiprocessor, list[Terms]()
    if numbers and resident and launch.num_programs:
        for budget in budgets:
            number = _num_programs(budget.problem, tiling, fit, device)
            times.append(cost(softmax_facts(budget, tiling, number, resident, spilled_by(used)), numbers))
    factor = math.sqrt(times[-1].total / times[0].total) if times else 1
    return replace(launch, terms=Terms(*(factor * term for term in times[0]))) if times else launch


def _sized(problem: Problem, tiling: Tiling, used: KernelResources, fit: Occupancy, device: Device) -> LaunchPlan:
    """Returns the launch of a tiling, without its time."""
    programs = _num_programs(problem, tiling, fit, device)
    walks = device.profile.grid.value == "resident" and not tiling.is_shared  # all walk over equally many tiles
    walks = walks or programs < problem.tiles(tiling.tile_rows) * tiling.splits
    return LaunchPlan(problem, tiling if tiling.walk == walks else replace(tiling, walk=walks), programs, used, fit)


def _num_programs(problem: Problem, tiling: Tiling, fit: Occupancy, device: Device) -> int:
    """Returns the size of the grid: one program for each split of a tile, unless fewer are resident or possible.

    The kernel walks through the tiles that are left.
    """
    hardware = device.hardware
    threads = (tiling.num_warps or 0) * (hardware.warp_size or 1) or hardware.max_threads_per_program or 1
    most = min(hardware.max_programs or sys.maxsize, (hardware.max_threads or sys.maxsize) // threads)
    groups = min(problem.tiles(tiling.tile_rows), most // tiling.splits)
    if not tiling.is_shared and device.profile.grid.value == "resident":
        groups = min(groups, device.resident(fit) or groups)
    return groups * tiling.splits
