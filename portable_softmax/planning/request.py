"""Problems of what is requested: of contiguous rows by sizes and types, and of operands by their layout."""

import math
import operator
from typing import Any

from portable_softmax.devices.backends.base import DTYPE_BYTES, check_dtype
from portable_softmax.planning.lines import Lines, lines_of
from portable_softmax.planning.problem import FORMS, NONE, VECTOR_BYTES, LogProbs, Problem, Scores

TOKEN_LOG_PROBS = "token_log_probs"
SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def contiguous_problem(
    n_rows: int,
    n_cols: int,
    dtype: Any,
    form: str = "softmax",
    backward: bool = False,
    batch_invariant: bool = False,
    scores: Scores = NONE,
) -> Problem:
    """Returns the softmax of aligned contiguous matrices, with input and output of one type; a mask has the layout of x.

    `dtype` is a torch.dtype or its name.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is not positive or too large, or there is no such form.
        DtypeError: no kernel computes that type.
    """
    if form not in (*FORMS, TOKEN_LOG_PROBS):
        raise ValueError(f"form {form!r} was requested; forms are {', '.join((*FORMS, TOKEN_LOG_PROBS))}")
    name = str(dtype).removeprefix("torch.")
    check_dtype(x_dtype := SHORT.get(name, name))
    for size, value in {"n_rows": n_rows, "n_cols": n_cols}.items():
        try:
            operator.index(value)
        except TypeError as error:
            raise TypeError(f"{size} should be an integer, not {value!r}") from error
    n_rows, n_cols = operator.index(n_rows), operator.index(n_cols)
    if n_rows < 1 or n_cols < 1:
        raise ValueError(f"n_rows and n_cols must be positive, not {n_rows} and {n_cols}")
    picks = LogProbs(gradient=backward) if form == TOKEN_LOG_PROBS else None
    masked = bool(scores.mask) and not backward  # a gradient reads no mask: what was hidden is 0 in y
    operands = [(n_cols, 1)] * (2 + (backward and not picks))
    lines = lines_of((n_rows, n_cols), 1, operands, mask=(n_cols, 1) if masked else None, causal=bool(scores.causal))
    assert lines, "contiguous rows are read in place"
    return problem_of(
        lines,
        x_dtype,
        x_dtype,
        form="log_softmax" if picks else form,
        backward=backward and not picks,
        batch_invariant=batch_invariant and not (picks and backward),
        scores=scores,
        mask_aligned=masked,
        log_probs=picks,
    )


def problem_of(
    lines: Lines, x_dtype: str, y_dtype: str, *, batch_invariant: bool = False, mask_aligned: bool = False, **fields: Any
) -> Problem:
    """Describes the softmax of operands with the layout `lines`.

    Args:
        lines: layout of the operands.
        x_dtype, y_dtype: torch's names of the types of input and output.
        batch_invariant: see Problem.
        mask_aligned: whether a mask starts on a multiple of 16 bytes.
        fields: others of Problem that are not of the layout.

    Raises:
        ValueError: a size is too large.
    """
    n_lines, outer = lines.levels[2][0], lines.levels[0][0] * lines.levels[1][0]
    widest = VECTOR_BYTES // max(DTYPE_BYTES[x_dtype], DTYPE_BYTES[y_dtype])
    vector = math.gcd(lines.length, *lines.strides, widest)
    # a batch-invariant mask is read one by one: its strides tell how many rows there are, and accesses the order of sums
    mask_step, mask_vector = lines.mask_access(vector if mask_aligned and not batch_invariant else 1)
    return Problem(
        n_rows=outer * (lines.length if lines.across else n_lines),
        n_cols=n_lines if lines.across else lines.length,
        x_dtype=x_dtype,
        y_dtype=y_dtype,
        vector=vector,
        inner=lines.length if lines.across else 1,
        batch_invariant=batch_invariant,
        depth=lines.depth,
        lines=lines,
        mask_step=mask_step,
        mask_vector=mask_vector,
        **fields,
    )
