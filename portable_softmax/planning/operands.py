"""Problems of operands, which are lines of adjacent elements in matrices and batches, described by strides alone."""

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.errors import DtypeError
from portable_softmax.planning.problem import MAX_COLS, MAX_ROWS, NONE, VECTOR_BYTES, Level, LogProbs, Mask, Problem, Scores

MIN_LINE = 16  # adjacent rows that are required where tiles cannot reach into several matrices
MANY = 2**14  # rows, or groups of rows that lie side by side, for which a batch-invariant launch is chosen
FORMS = "softmax", "log_softmax"
TOKEN_LOG_PROBS = "token_log_probs"
MASK_STRIDES = {0: 0, 1: 1}  # that kernels are compiled for; others are -1
# All fields but n_rows, which is the first, and rows_per_matrix and levels, which are the last.
BETWEEN = operator.attrgetter(*(one.name for one in fields(Problem)[1:-2]))
SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def problem_of(
    shape: Sequence[int],
    dim: int,
    strides: Sequence[Sequence[int]],
    dtypes: tuple[str, str],
    *,
    may_scatter: bool = True,
    mask: Sequence[int] | None = None,
    mask_aligned: bool = False,
    **fields: Any,
) -> Problem | None:
    """Describes a softmax along `dim`, at least 0; None if some operands must be copied first.

    A line is a row, or holds one column of rows side by side; adjacent dimensions that all operands hold alike are one.

    Args:
        shape, dim: of all operands, and the axis of the softmax; no size is 0.
        strides: of two to four operands, in elements; the result's first. Those from the third on are laid out as it is.
        dtypes: torch's names of the types of input and output.
        may_scatter: False where all rows of a tile must be one distance apart, or side by side, in all operands alike.
        mask, mask_aligned: its strides, 0 along what it is the same for, and whether it starts on a multiple of 16 bytes.
        fields: others of Problem that are not of the layout. Rows of a causal matrix are those of the last dimension but one.

    Raises:
        ValueError: a size is too large.
    """
    dims: list[Level] = list(zip(shape, zip(*strides, mask or strides[0], strict=True), strict=True))
    if len(strides) > 2 and any(size > 1 and {along[0], *along[2:-1]} != {along[0]} for size, along in dims):
        return None
    nothing, adjacent = (1, (0,) * (len(strides) + 1)), (1,) * len(strides)
    columns = dims[dim] if shape and shape[dim] > 1 else (1, (*adjacent, 1))
    queries = len(shape) - 2 if fields.get("scores", NONE).causal else -1
    outer = _merged([level for at, level in enumerate(dims) if at not in (dim, queries) and level[0] > 1])
    *outer, rows = [*outer, *dims[queries : queries + 1]] or [nothing]
    across = columns[1][:-1] != adjacent
    if across and (rows[0] == 1 or rows[1][:-1] != adjacent or (not may_scatter and rows[0] < MIN_LINE)):
        return None
    if len(outer) > 2 or (outer and not may_scatter and not (across and len(outer) == 1)):
        return None
    lines, elements = (columns, rows) if across else (rows, columns)
    if elements[0] > MAX_COLS:
        raise ValueError(f"a row of {elements[0]} elements is too large; rows of up to {MAX_COLS} can be computed")
    levels = (*[nothing, nothing, *outer][-2:], lines, elements)
    is_contiguous, step = True, 1
    for size, along in levels[::-1]:
        is_contiguous = is_contiguous and (size == 1 or along[0] == step)
        step *= size
    if step > MAX_ROWS * columns[0]:
        raise ValueError(f"{step // columns[0]} rows are too many; up to {MAX_ROWS} can be computed")
    used = [along[:-1] for size, along in levels[:3] if size > 1]
    if not is_contiguous and any(along[0] != along[1] for along in used):
        return None  # kernels have no other strides of the result
    widest = VECTOR_BYTES // max(DTYPE_BYTES[dtype] for dtype in dtypes)
    vector = math.gcd(elements[0], widest, *itertools.chain(*used))
    if mask is not None:
        is_single = not mask_aligned or fields.get("batch_invariant")
        fields["mask"] = _mask_of(levels, across, 1 if is_single else vector)
    return Problem(
        n_rows=step // columns[0],
        n_cols=columns[0],
        x_dtype=dtypes[0],
        y_dtype=dtypes[1],
        vector=vector,
        inner=elements[0] if across else 1,
        depth=1 + len(outer),
        rows_per_matrix=rows[0],
        alike=all(len({stride % widest for stride in along}) == 1 for along in used),
        out_like_x=not is_contiguous,
        levels=levels,
        **fields,
    )


def _merged(levels: list[Level]) -> list[Level]:
    """Joins neighbours of which all operands hold one directly after another."""
    merged: list[Level] = []
    for size, strides in levels:
        if merged and all(outer == size * inner for outer, inner in zip(merged[-1][1], strides, strict=True)):
            merged[-1] = merged[-1][0] * size, strides
        else:
            merged.append((size, strides))
    return merged


def _mask_of(levels: Sequence[Level], across: bool, vector: int) -> Mask:
    """Returns the layout of a mask, the last operand, which is loaded in up to `vector` elements.

    A batch-invariant one is loaded one by one: its strides tell how many rows there are, and accesses the order of sums.
    """
    *outer, line, step = (strides[-1] for _, strides in levels)
    row, col = (step, line) if across else (line, step)
    return Mask(
        step=MASK_STRIDES.get(step, -1),
        col=MASK_STRIDES.get(col, -1),
        vector=math.gcd(line, *outer, vector if step in MASK_STRIDES else 1),
        per_batch=levels[1][0] > 1 and row != 0 and outer[1] == 0,
        shared=any(size > 1 and not strides[-1] for size, strides in levels),
    )


def contiguous_problem(
    n_rows: int,
    n_cols: int,
    dtype: Any,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
    scores: Scores = NONE,
) -> Problem:
    """Returns the softmax of aligned contiguous matrices of one torch.dtype, or its name; a mask has the layout of x.

    Raises:
        TypeError, ValueError: a size is not a positive integer, or too large, or there is no such form.
        DtypeError: no kernel computes that type.
    """
    if form not in (*FORMS, TOKEN_LOG_PROBS):
        raise ValueError(f"form {form!r} was requested; forms are {', '.join((*FORMS, TOKEN_LOG_PROBS))}")
    name = str(dtype).removeprefix("torch.")
    name = SHORT.get(name, name)
    if name not in DTYPE_BYTES:
        advice = "convert to one of these first, or pass one as dtype="
        raise DtypeError(f"a kernel of {name} was requested; kernels compute {', '.join(DTYPE_BYTES)}; {advice}")
    n_rows, n_cols = operator.index(n_rows), operator.index(n_cols)
    if min(n_rows, n_cols) < 1:
        raise ValueError(f"n_rows and n_cols must be positive, not {n_rows} and {n_cols}")
    about: dict[str, Any] = {"form": form, "backward": backward, "batch_invariant": batch_invariant, "scores": scores}
    if form == TOKEN_LOG_PROBS:
        about |= {"form": "log_softmax", "backward": False, "log_probs": LogProbs(gradient=backward)}
        about["batch_invariant"] = batch_invariant and not backward
    if scores.mask and not backward:  # a gradient reads no mask: what was hidden is 0 in y
        about |= {"mask": (n_cols, 1), "mask_aligned": True}
    problem = problem_of((n_rows, n_cols), 1, [(n_cols, 1)] * 2, (name, name), **about)
    assert problem, "contiguous rows are read in place"
    return problem


def representative(number: int) -> int:
    """Returns the least number of a bucket, for which its launch is chosen: the largest 2**k or 1.5 * 2**k up to `number`."""
    low_bits = max(0, number.bit_length() - 2)
    return number >> low_bits << low_bits


def numbers_of(number: int) -> tuple[int, int, int]:
    """Returns the least, the middle and the largest number of the bucket of a number."""
    least, size = representative(number), 1 << max(0, number.bit_length() - 2)
    return least, least + size // 2, least + size - 1


def bucket_of(problem: Problem) -> Problem:
    """Returns the problem for which the launch of a problem is chosen: of the least numbers of its bucket."""
    return Problem(*bucket_key(problem))


def bucket_key(problem: Problem) -> tuple[Any, ...]:
    """Returns the fields of the problem of a bucket, in less time than that takes.

    Matrices, and rows in one, have buckets of their own; rows side by side are exact; all are one if bits depend on no rows.
    """
    if problem.batch_invariant:
        return problem.inner * MANY, *BETWEEN(problem), None
    rows = problem.rows_per_group
    matrices = representative(problem.n_rows // rows)
    if not problem.across:
        rows = representative(rows)
    return matrices * rows, *BETWEEN(problem), rows
