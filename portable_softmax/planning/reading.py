"""Ways to read rows: as they lie, between two edges, or from several matrices."""

from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import Budget
from portable_softmax.planning.problem import Problem


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once for each way in which the device can read its rows, as they lie first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts.
    """
    if problem.unaligned or problem.scattered:
        return [problem]  # it is read so already
    found = [problem]
    beside = problem.across and not problem.numbered
    if beside and device.vendor.scattered_rows and problem.inner < Budget(problem, device).line:
        found.append(replace(problem, scattered=True))
    deep = problem.depth > 1 and not problem.numbered  # plain rows of matrices are read as they lie
    if problem.batch_invariant or not problem.aligned or problem.across or deep:
        return found
    if device.vendor.aligned_access and _may_be_unaligned(problem):
        found.append(replace(problem, vector=problem.widest, unaligned=True))
    return found


def read_as(problem: Problem, other: Problem, device: Device) -> Problem:
    """Returns the problem, read in the way in which another one of the same kind is read; as it lies if it cannot be."""
    way = _way(other)
    return next((each for each in readings(problem, device) if _way(each) == way), problem)


def _way(problem: Problem) -> tuple[bool, bool]:
    return problem.unaligned, problem.scattered


def _may_be_unaligned(problem: Problem) -> bool:
    """Tells whether rows of all operands start at one offset modulo a vector, other than 0.

    Rows shorter than a vector may lie inside one, and have no two edges.
    """
    levels = problem.lines.levels if problem.lines else ()
    alike = [len({stride % problem.widest for stride in strides}) == 1 for _, strides in levels]
    return bool(alike) and all(alike) and problem.vector < problem.widest <= problem.n_cols
