"""Makes the Problem of a request: checks its arguments, describes its rows."""

import math
import operator
from typing import TYPE_CHECKING

from portable_softmax.devices.backends.base import DTYPE_BYTES, check_dtype
from portable_softmax.devices.device import Device
from portable_softmax.planning.lines import Lines, lines_of, lines_of_scores
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.problem import FORMS, VECTOR_BYTES, Problem
from portable_softmax.planning.scores import NONE, Scores

if TYPE_CHECKING:
    import torch

TOKEN_LOG_PROBS = "token_log_probs"
SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def checked_problem(
    n_rows: int, n_cols: int, dtype: "torch.dtype | str", device: Device, form: str, backward: bool, batch_invariant: bool
) -> Problem:
    """Checks the arguments of `plan`, and returns their contiguous_problem."""
    if form not in (*FORMS, TOKEN_LOG_PROBS):
        raise ValueError(f"form {form!r} was requested; forms are {', '.join((*FORMS, TOKEN_LOG_PROBS))}")
    name = str(dtype).removeprefix("torch.")
    name = SHORT.get(name, name)
    check_dtype(name)
    return contiguous_problem(n_rows, n_cols, name, form, backward, batch_invariant)


def contiguous_problem(
    n_rows: int,
    n_cols: int,
    dtype: str,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
) -> Problem:
    """Returns the softmax of aligned contiguous matrices, with input and output of one type.

    The form "token_log_probs" has an output of one float32 number per row.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is not positive or too large.
    """
    n_rows, n_cols = _integer("n_rows", n_rows), _integer("n_cols", n_cols)
    if n_rows < 1 or n_cols < 1:
        raise ValueError(f"n_rows and n_cols must be positive, not {n_rows} and {n_cols}")
    lines = lines_of((n_rows, n_cols), 1, [(n_cols, 1)] * (3 if backward and form != TOKEN_LOG_PROBS else 2), True)
    assert lines, "contiguous rows are read in place"
    if form == TOKEN_LOG_PROBS:
        y_dtype, wanted = dtype if backward else "float32", LogProbs(gradient=backward)
        return problem_of(
            lines, dtype, y_dtype, form="log_softmax", batch_invariant=batch_invariant and not backward, log_probs=wanted
        )
    return problem_of(lines, dtype, dtype, form=form, backward=backward, batch_invariant=batch_invariant)


def scored_problem(n_rows: int, n_cols: int, dtype: str, scores: Scores, backward: bool = False) -> Problem:
    """Returns the softmax of scores of one aligned contiguous matrix, or its gradient; a mask has the layout of x.

    Raises:
        ValueError: a size is not positive or too large.
    """
    masked = bool(scores.mask) and not backward  # a gradient reads no mask: what was hidden is 0 in y
    mask = (n_cols, 1) if masked else (0, 0)
    lines = lines_of_scores((n_rows, n_cols), 1, [(n_cols, 1)] * (3 if backward else 2), mask, bool(scores.causal))
    assert lines, "contiguous rows are read in place"
    return problem_of(lines, dtype, dtype, scores=scores, backward=backward, mask_aligned=masked)


def problem_of(
    lines: Lines,
    x_dtype: str,
    y_dtype: str,
    *,
    aligned: bool = True,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
    scores: Scores = NONE,
    in_place: bool = False,
    mask_aligned: bool = False,
    log_probs: LogProbs | None = None,
) -> Problem:
    """Describes the softmax of operands with the layout `lines`.

    Args:
        lines: layout of the operands.
        x_dtype, y_dtype: torch's names of the types of input and output.
        aligned, form, backward, batch_invariant, scores, in_place, log_probs: see Problem.
        mask_aligned: whether a mask starts on a multiple of 16 bytes.

    Raises:
        ValueError: a size is too large.
    """
    n_lines, outer = lines.levels[2][0], lines.levels[0][0] * lines.levels[1][0]
    widest = VECTOR_BYTES // max(DTYPE_BYTES[x_dtype], DTYPE_BYTES[y_dtype])
    vector = math.gcd(lines.length, *lines.strides, widest)
    mask_step, mask_vector = _mask_access(lines, vector if mask_aligned and not batch_invariant else 1)
    return Problem(
        n_rows=outer * (lines.length if lines.across else n_lines),
        n_cols=n_lines if lines.across else lines.length,
        x_dtype=x_dtype,
        y_dtype=y_dtype,
        vector=vector,
        aligned=aligned,
        form=form,
        backward=backward,
        inner=lines.length if lines.across else 1,
        batch_invariant=batch_invariant,
        depth=lines.depth,
        lines=lines,
        scores=scores,
        in_place=in_place,
        mask_step=mask_step,
        mask_vector=mask_vector,
        log_probs=log_probs,
    )


def _mask_access(lines: Lines, vector: int) -> tuple[int | None, int]:
    """Returns `mask_step` and `mask_vector` of a Problem, the latter at most `vector`.

    A batch-invariant mask is read one by one: its strides tell how many rows there are, and accesses the order of sums.
    """
    if not lines.mask:
        return 1, 1
    col, row, *outer = lines.mask
    along, beside = (row, col) if lines.across else (col, row)
    if along not in (0, 1):
        return None, 1
    return along, math.gcd(beside, *outer, vector)


def _integer(name: str, value: int) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} should be an integer, not {value!r}") from error
