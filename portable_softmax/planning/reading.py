"""Ways to read rows: as they lie, between two edges, from several matrices, or in folded lines."""

import math
from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import MOST_SPLITS, Budget
from portable_softmax.planning.problem import MAX_COLS, Problem

GROUPS_AT_ONCE = 6  # of tiles with nearly the same rows in folded lines: a tile waits for those of five, kernels/folded.py


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once for each way in which the device can read its rows, as they lie first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts.
    """
    if problem.unaligned or problem.folded > 1 or problem.scattered:
        return [problem]  # it is read so already
    found = [problem]
    if problem.across and not problem.numbered:
        if device.vendor.scattered_rows and problem.inner < Budget(problem, device).line:
            found.append(replace(problem, scattered=True))
        elif count := _together(problem, device):
            found.append(folded(problem, count))
    deep = problem.depth > 1 and not problem.numbered  # plain rows of matrices are read as they lie
    if problem.batch_invariant or not problem.aligned or problem.layout != "rows" or deep:
        return found
    if device.vendor.aligned_access and _may_be_unaligned(problem):
        found.append(replace(problem, vector=problem.widest, unaligned=True))
    return found


def read_as(problem: Problem, other: Problem, device: Device) -> Problem:
    """Returns the problem, read in the way in which another one of the same kind is read; as it lies if it cannot be."""
    way = _way(other)
    return next((each for each in readings(problem, device) if _way(each) == way), problem)


def _way(problem: Problem) -> tuple[bool, bool, int]:
    return problem.unaligned, problem.scattered, problem.folded


def _together(problem: Problem, device: Device) -> int | None:
    """Returns how many lines are read as one, so that the least that memory moves divides their length; None if none are.

    All programs of a matrix then exchange statistics, and as many must be resident.
    """
    budget = Budget(problem, device)
    count = budget.sector // math.gcd(budget.sector, problem.inner)
    follow = problem.lines and set(problem.lines.levels[2][1]) == {problem.inner}
    plain = problem.layout == "across" and problem.aligned and not problem.batch_invariant
    if not (budget.shares and follow and plain) or problem.n_cols % count or not device.hardware.warp_size:
        return None
    counted = count * problem.inner * MOST_SPLITS <= MAX_COLS  # words of a row's splits, in 32 bits
    return count if count > 1 and counted and budget.multiprocessors >= GROUPS_AT_ONCE * count else None


def folded(problem: Problem, count: int) -> Problem:
    """Returns the problem with so many lines as one, which must follow each other directly in all operands."""
    if not problem.lines:
        raise ValueError(f"lines of a {problem.name} are to be folded that are not known")
    lines = problem.lines.folded(count)
    vector = math.gcd(lines.length, *lines.strides, problem.widest)
    n_rows, n_cols, inner = problem.n_rows * count, problem.n_cols // count, problem.inner * count
    return replace(problem, lines=lines, n_rows=n_rows, n_cols=n_cols, inner=inner, vector=vector, folded=count)


def _may_be_unaligned(problem: Problem) -> bool:
    """Tells whether rows of all operands start at one offset modulo a vector, other than 0.

    Rows shorter than a vector may lie inside one, and have no two edges.
    """
    levels = problem.lines.levels if problem.lines else ()
    alike = [len({stride % problem.widest for stride in strides}) == 1 for _, strides in levels]
    return bool(alike) and all(alike) and problem.vector < problem.widest <= problem.n_cols
