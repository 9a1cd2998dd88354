"""Ways to read rows: element by element, in whole vectors of unaligned rows, or from several matrices."""

from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import WORD_BYTES, Budget
from portable_softmax.planning.problem import Problem


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once per way in which the device can read its rows, element by element first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts.
    """
    if problem.unaligned or problem.scattered:
        return [problem]  # it is read so already
    if problem.across:
        several = not problem.numbered and device.vendor.scattered_rows and problem.inner < Budget(problem, device).line
        return [problem, replace(problem, scattered=True)] if several else [problem]
    two_lines = 2 * WORD_BYTES * Budget(problem, device).line  # bytes; the ends of shorter rows cost too much
    anywhere = (
        problem.n_cols * problem.element_bytes >= two_lines
        and problem.aligned
        and device.vendor.aligned_access
        and _may_be_unaligned(problem)
    )
    if anywhere and not problem.batch_invariant:
        return [problem, replace(problem, vector=problem.widest, unaligned=True)]
    return [problem]


def read_as(problem: Problem, other: Problem, device: Device) -> Problem:
    """Returns the problem, read in the way in which another one of the same kind is read; as it is if it cannot be."""
    way = other.unaligned, other.scattered
    return next((reading for reading in readings(problem, device) if (reading.unaligned, reading.scattered) == way), problem)


def _may_be_unaligned(problem: Problem) -> bool:
    """True if rows of all operands start at one offset modulo a vector, other than 0.

    Rows shorter than a vector may be inside one.
    """
    levels = problem.lines.levels if problem.lines else ()
    alike = [len({stride % problem.widest for stride in strides}) == 1 for _, strides in levels]
    return bool(alike) and all(alike) and problem.vector < problem.widest <= problem.n_cols
