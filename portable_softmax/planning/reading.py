"""Chooses how a launch reads rows: as they lie, two in one, between two edges, from several matrices, or in folded lines."""

import math
from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import Budget
from portable_softmax.planning.numbers import numbers_of
from portable_softmax.planning.problem import MAX_COLS, VECTOR_BYTES, Problem
from portable_softmax.planning.rows import MOST_SPLITS

GROUPS_AT_ONCE = 6  # of tiles with nearly the same rows in folded lines: a tile waits for those of five, kernels/folded.py


def as_read(problem: Problem, device: Device) -> Problem:
    """Returns the problem with the accesses that its rows are read with on the device.

    Rows of a batch-invariant problem are neither paired nor unaligned: the order in which their elements are added up would
    depend on how many there are, or on where one starts.
    """
    if problem.unaligned or problem.paired or problem.folded > 1:
        return problem  # it is read so already
    if problem.across:
        if problem.numbered:
            return problem
        if _is_scattered(problem, device):
            return replace(problem, scattered=True)
        return folded(problem, count) if (count := _together(problem, device)) > 1 else problem
    deep = problem.depth > 1 and not problem.numbered  # plain rows of matrices are read as they lie
    if problem.batch_invariant or not problem.aligned or problem.layout != "rows" or deep:
        return problem
    numbers, _ = numbers_of(problem, device)
    if problem.n_cols <= (numbers.paired_cols or 0) and _may_be_paired(problem):
        return in_pairs(problem)
    if problem.n_cols >= (numbers.unaligned_cols or MAX_COLS) and _may_be_unaligned(problem) and device.vendor.aligned_access:
        return replace(problem, vector=problem.widest, unaligned=True)
    return problem


def _is_scattered(problem: Problem, device: Device) -> bool:
    """Tells whether matrices are so small that starting a program takes longer than reading one: a tile then takes several."""
    line, limit = device.profile.launch.line_elements, numbers_of(problem, device)[0].matrix_bytes
    if not line or not limit or problem.inner >= line.value or not device.vendor.scattered_rows:
        return False
    return problem.inner * problem.n_cols * VECTOR_BYTES // problem.widest <= limit


def _together(problem: Problem, device: Device) -> int:
    """Returns how many lines are read as one, so that the least that memory moves divides their length; 1 if they stay apart.

    All programs of a matrix then exchange numbers. Rows that a tile of single elements holds are faster without.
    """
    budget = Budget(problem, device, numbers_of(problem, device)[0])
    count = budget.sector // math.gcd(budget.sector, problem.inner)
    follow = problem.lines and set(problem.lines.levels[2][1]) == {problem.inner}
    plain = problem.layout == "across" and problem.aligned and not problem.step and not problem.batch_invariant
    if not (budget.shares and follow and plain) or problem.n_cols % count or not device.hardware.warp_size:
        return 1
    held = budget.registers * max(budget.numbers.beside_share, 0.5 / budget.operands)
    counted = count * problem.inner * MOST_SPLITS <= MAX_COLS  # words of a row's splits, in 32 bits
    long = problem.inner >= budget.line and budget.line * problem.n_cols > held
    return count if counted and long and budget.multiprocessors >= GROUPS_AT_ONCE * count else 1


def folded(problem: Problem, count: int) -> Problem:
    """Returns the problem with so many lines as one, which must follow each other directly in all operands."""
    if not problem.lines:
        raise ValueError(f"lines of a {problem.name} are to be folded that are not known")
    lines = problem.lines.folded(count)
    vector = math.gcd(lines.length, *lines.strides, problem.widest)
    n_rows, n_cols, inner = problem.n_rows * count, problem.n_cols // count, problem.inner * count
    return replace(problem, lines=lines, n_rows=n_rows, n_cols=n_cols, inner=inner, vector=vector, folded=count)


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


def _may_be_unaligned(problem: Problem) -> bool:
    """Tells whether rows of all operands start at one offset modulo a vector, other than 0.

    Rows shorter than a vector may lie inside one, and have no two edges.
    """
    levels = problem.lines.levels if problem.lines else ()
    alike = [len({stride % problem.widest for stride in strides}) == 1 for _, strides in levels]
    return bool(alike) and all(alike) and problem.vector < problem.widest <= problem.n_cols
