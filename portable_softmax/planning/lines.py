"""Tensors as the kernels address them: lines of adjacent elements, in matrices and batches, described by strides alone."""

from collections.abc import Sequence
from typing import NamedTuple

MOST_LEVELS = 3  # lines, matrices and batches
SHORTEST_LINE = 16  # adjacent rows that are required where tiles cannot reach into several matrices

Level = tuple[int, tuple[int, ...]]  # a size, and the operands' strides


class Lines(NamedTuple):
    """Operands of one shape, as nested lines.

    Args:
        levels: (size, strides of the operands in elements) of batches, of matrices in a batch, and of lines in a matrix.
        length: elements of a line.
        across: False where a line is a row; True where it holds the same column of so many rows, and a matrix these rows.
        mask: a mask's strides from column to column, row to row, matrix to matrix and batch to batch; None without scores.
    """

    levels: tuple[Level, Level, Level]
    length: int
    across: bool
    mask: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """Returns the number of levels: 1 for lines alone, 2 with matrices, 3 with batches."""
        return 3 if self.levels[0][0] > 1 else 2 if self.levels[1][0] > 1 else 1

    @property
    def out_is_contiguous(self) -> bool:
        """True if the result, the first operand, is laid out as a contiguous one that keeps the order of levels."""
        stride, (batches, matrices, lines) = self.length, self.levels
        for size, strides in (lines, matrices, batches):
            if size > 1 and strides[0] != stride:
                return False
            stride *= size
        return True

    @property
    def out_is_readable(self) -> bool:
        """True if kernels have the strides of the result: it is contiguous, or laid out as the first input is."""
        alike = all(size == 1 or strides[0] == strides[1] for size, strides in self.levels if len(strides) > 1)
        return alike or self.out_is_contiguous

    @property
    def strides(self) -> list[int]:
        """Returns the strides of all dimensions above size 1."""
        return [stride for size, strides in self.levels if size > 1 for stride in strides]


def lines_of(shape: Sequence[int], dim: int, strides: Sequence[Sequence[int]], scattered: bool) -> Lines | None:
    """Describes operands of a softmax along `dim`, at least 0; None if some must be copied first.

    Args:
        shape: of all operands; no size is 0.
        dim: the axis of the softmax.
        strides: per operand, in elements; the result's first. Those from the third on are laid out as the result is.
        scattered: False where all rows of a tile must be one distance apart, or side by side, in all operands alike.
    """
    if any(size > 1 and {along[0], *along[2:]} != {along[0]} for size, *along in zip(shape, *strides, strict=True)):
        return None
    n_cols = shape[dim] if shape else 1
    columns: Level = n_cols, tuple(operand[dim] if n_cols > 1 else 1 for operand in strides)
    others = [(size, tuple(operand[at] for operand in strides)) for at, size in enumerate(shape) if at != dim and size > 1]
    levels = _merged(others) or [(1, (0,) * len(strides))]
    rows = levels[-1]
    across = any(stride != 1 for stride in columns[1])
    if across and any(stride != 1 for stride in rows[1]):
        return None
    if not scattered and across and rows[0] < SHORTEST_LINE:
        return None
    lines = [*levels[:-1], columns if across else rows]
    if len(lines) > (MOST_LEVELS if scattered else 1 + across):
        return None
    result = Lines(_three(lines), rows[0] if across else n_cols, across)
    return result if result.out_is_readable else None


def lines_of_scores(
    shape: Sequence[int], dim: int, strides: Sequence[Sequence[int]], mask: Sequence[int], causal: bool
) -> Lines | None:
    """Describes operands as `lines_of` does, of a softmax of scores, whose rows keep their order and their numbers.

    Args:
        shape, dim, strides: see lines_of.
        mask: strides of the mask, 0 along what it is the same for; all 0 without one.
        causal: True if the rows of a matrix are those of the last dimension but one; dim is the last.
    """
    if any(size > 1 and {along[0], *along[2:]} != {along[0]} for size, *along in zip(shape, *strides, strict=True)):
        return None
    own = len(shape) - 2 if causal else -1
    every = [*strides, mask]
    columns: Level = shape[dim] if shape else 1, tuple(operand[dim] if shape else 0 for operand in every)
    others = [
        (size, tuple(operand[at] for operand in every)) for at, size in enumerate(shape) if at not in (dim, own) and size > 1
    ]
    levels = _merged(others)
    if causal:
        levels.append((shape[own], tuple(operand[own] for operand in every)))
    levels = levels or [(1, (0,) * len(every))]
    in_rows = columns[0] == 1 or all(stride == 1 for stride in columns[1][:-1])
    side_by_side = levels[-1][0] > 1 and all(stride == 1 for stride in levels[-1][1][:-1])
    if not in_rows and not side_by_side:
        return None
    if len(levels) > MOST_LEVELS:
        return None
    batches, matrices, rows = _three(levels)
    strides_of_mask = columns[1][-1], rows[1][-1], matrices[1][-1], batches[1][-1]
    lines = _three([*levels[:-1], rows if in_rows else columns])
    operands = tuple((size, of_all[:-1]) for size, of_all in lines)
    length = columns[0] if in_rows else rows[0]
    result = Lines((operands[0], operands[1], operands[2]), length, not in_rows, strides_of_mask)
    return result if result.out_is_readable else None


def _merged(levels: list[Level]) -> list[Level]:
    """Joins neighbours of which all operands hold one directly after another."""
    merged: list[Level] = []
    for size, strides in levels:
        if merged and all(outer == size * inner for outer, inner in zip(merged[-1][1], strides, strict=True)):
            merged[-1] = merged[-1][0] * size, strides
        else:
            merged.append((size, strides))
    return merged


def _three(levels: list[Level]) -> tuple[Level, Level, Level]:
    nowhere: Level = 1, (0,) * len(levels[-1][1])
    batches, matrices, lines = [nowhere] * (MOST_LEVELS - len(levels)) + levels
    return batches, matrices, lines
