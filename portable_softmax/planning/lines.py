"""Tensors as the kernels address them: lines of adjacent elements, in matrices and batches, described by strides alone."""

import math
import operator
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

SHORTEST_LINE = 16  # adjacent rows that are required where tiles cannot reach into several matrices

Level = tuple[int, tuple[int, ...]]  # a size, and the operands' strides


class Lines(NamedTuple):
    """Operands of one shape, as nested lines.

    Args:
        levels: (size, strides of the operands in elements) of batches, of matrices in a batch, and of lines in a matrix.
        length: elements of a line.
        across: False where a line is a row; True where it holds the same column of so many rows, and a matrix these rows.
        mask: a mask's strides from column to column, row to row, matrix to matrix and batch to batch; None without one.
    """

    levels: tuple[Level, Level, Level]
    length: int
    across: bool
    mask: tuple[int, ...] | None = None

    @property
    def depth(self) -> int:
        """Returns the number of levels: 1 for lines alone, 2 with matrices, 3 with batches."""
        return len(self.levels) if self.levels[0][0] > 1 else 2 if self.levels[1][0] > 1 else 1

    @property
    def out_is_contiguous(self) -> bool:
        """True if the result, the first operand, is laid out as a contiguous one that keeps the order of levels."""
        steps = accumulate((size for size, _ in self.levels[::-1]), operator.mul, initial=self.length)
        return all(size == 1 or strides[0] == step for (size, strides), step in zip(self.levels[::-1], steps, strict=False))

    def mask_access(self, vector: int) -> tuple[int | None, int]:
        """Returns the mask's stride within a line if 0 or 1, and the elements of a load, at most `vector`."""
        if not self.mask:
            return 1, 1
        col, row, *outer = self.mask
        along, beside = (row, col) if self.across else (col, row)
        return (along, math.gcd(beside, *outer, vector)) if along in (0, 1) else (None, 1)

    @property
    def strides(self) -> list[int]:
        """Returns the strides of all dimensions above size 1."""
        return [stride for size, strides in self.levels if size > 1 for stride in strides]


def lines_of(
    shape: Sequence[int],
    dim: int,
    strides: Sequence[Sequence[int]],
    scattered: bool = True,
    mask: Sequence[int] | None = None,
    causal: bool = False,
) -> Lines | None:
    """Describes operands of a softmax along `dim`, at least 0; None if some must be copied first.

    Args:
        shape: of all operands; no size is 0.
        dim: the axis of the softmax.
        strides: per operand, in elements; the result's first. Those from the third on are laid out as the result is.
        scattered: False where all rows of a tile must be one distance apart, or side by side, in all operands alike.
        mask: its strides, 0 along what it is the same for; None without one.
        causal: True if the rows of a matrix are those of the last dimension but one; dim is the last.
    """
    if any(size > 1 and {along[0], *along[2:]} != {along[0]} for size, *along in zip(shape, *strides, strict=True)):
        return None
    operands = [*strides, *([] if mask is None else [mask])]
    every: list[Level] = list(zip(shape, zip(*operands, strict=True), strict=True))
    columns = every[dim] if shape and shape[dim] > 1 else (1, (1,) * len(operands))
    queries = len(shape) - 2 if causal else -1
    levels = _merged([level for at, level in enumerate(every) if at not in (dim, queries) and level[0] > 1])
    levels += [every[queries]] if causal else []
    *outer, rows = levels or [(1, (0,) * len(operands))]
    across = {*columns[1][: len(strides)]} != {1}
    if across and (rows[0] == 1 or {*rows[1][: len(strides)]} != {1} or (not scattered and rows[0] < SHORTEST_LINE)):
        return None
    if len(outer) > (2 if scattered else across):
        return None
    batches, matrices, lines = (
        (size, of_all[: len(strides)]) for size, of_all in _three([*outer, columns if across else rows])
    )
    steps = None if mask is None else (columns[1][-1], *(of_all[-1] for _, of_all in reversed(_three([*outer, rows]))))
    result = Lines((batches, matrices, lines), rows[0] if across else columns[0], across, steps)
    alike = all(size == 1 or strides[0] == strides[1] for size, strides in result.levels)
    return result if alike or result.out_is_contiguous else None  # kernels have no other strides of the result


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
    *_, batches, matrices, lines = nowhere, nowhere, *levels
    return batches, matrices, lines
