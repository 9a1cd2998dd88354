"""Chooses how a launch reads rows: as they lie, two in one, in vectors between two edges, or from several matrices."""

from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.numbers import numbers_of
from portable_softmax.planning.problem import MAX_COLS, Problem


def as_read(problem: Problem, device: Device) -> Problem:
    """Returns the problem with the accesses that its rows are read with on the device.

    Rows of a batch-invariant problem are neither paired nor ragged: the order in which their elements are added up would depend
    on how many there are, or on where one starts.
    """
    if problem.ragged or problem.paired:
        return problem  # it is read so already
    if problem.across:
        if problem.scores:
            return problem
        return replace(problem, scattered=_is_scattered(problem, device))
    deep = problem.depth > 1 and not problem.scores  # plain rows of matrices are read as they lie
    if problem.batch_invariant or not problem.aligned or problem.layout != "rows" or deep:
        return problem
    numbers, _ = numbers_of(problem, device)
    if problem.n_cols <= (numbers.paired_cols or 0) and _may_be_paired(problem):
        return in_pairs(problem)
    if problem.n_cols >= (numbers.ragged_cols or MAX_COLS) and _may_be_ragged(problem) and device.vendor.aligned_access:
        return replace(problem, vector=problem.widest, ragged=True)
    return problem


def _is_scattered(problem: Problem, device: Device) -> bool:
    """Tells whether a matrix has fewer rows side by side than a cache line has elements, and a tile takes those of several.

    Where single elements are read, each needs an address; so long rows of several matrices do not fit the registers.
    """
    line = device.profile.launch.line_elements
    if not line or problem.inner >= line.value or not device.vendor.scattered_rows:
        return False
    share, registers = numbers_of(problem, device)[0].beside_share, device.hardware.registers_per_multiprocessor
    long = registers and line.value * problem.n_cols > registers * share
    return not (problem.access == "scalar" and long)


def in_pairs(problem: Problem) -> Problem:
    """Returns the problem with two rows in one."""
    whole, left = divmod(problem.n_rows, 2)
    return replace(problem, n_rows=whole + left, n_cols=2 * problem.n_cols, vector=2, paired=True, last_alone=left == 1)


def _may_be_paired(problem: Problem) -> bool:
    """Tells whether rows of a gradient are odd, and each directly follows the one before.

    Steps of rows that are sharded over devices are other kernels, which have no pairs.
    """
    follows = problem.lines and set(problem.lines.levels[2][1]) == {problem.n_cols}
    odd = problem.n_cols % 2 == 1 and problem.n_rows > 1
    return bool(follows and odd and problem.backward and not problem.step and not problem.scores)


def _may_be_ragged(problem: Problem) -> bool:
    """Tells whether rows of all operands start at one offset modulo a vector, other than 0.

    Rows shorter than a vector may lie inside one, and have no two edges.
    """
    levels = problem.lines.levels if problem.lines else ()
    alike = [len({stride % problem.widest for stride in strides}) == 1 for _, strides in levels]
    return bool(alike) and all(alike) and problem.vector < problem.widest <= problem.n_cols
