"""From x to the scores whose softmax is taken: a factor for each row, a cap, a mask, and a sink.

A score is x * factor, or x / factor with FORM.divides; then FORM.cap * tanh(score / FORM.cap); then -inf where a mask says so,
or the mask is added. The denominator has one more logit, the row's sink. Rows that are divided by 0 are greedy: their scores
are x, whatever cap and sink are, and an added mask counts only where it is -inf. `exponents.steep` does the rest.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import pointers
from portable_softmax.kernels.exponents import exp

SMALL = tl.constexpr(0.2)  # below it, tanh is its series: the quotient would lose digits


@triton.jit
def number_of(bits, FORM: tl.constexpr):
    """Returns the number whose bits these are, of the type that is computed in: launches pass integers alone."""
    if FORM.compute == tl.float64:
        number = bits.to(tl.float64, bitcast=True)
    else:
        number = bits.to(tl.int32).to(tl.float32, bitcast=True)
    return number


@triton.jit
def of_each_row(ptr, matrix, line, per_matrix, n_rows, FORM: tl.constexpr):
    """Loads one number for each row of a tile, [rows]; 1 for rows past the last."""
    return tl.load(ptr + tl.cast(matrix, tl.int64) * per_matrix + line, mask=line < n_rows, other=1.0).to(FORM.compute)


@triton.jit
def starts_of_mask(ptr, matrix, line, lead, n_matrices, col, row, matrix_stride, block_stride, FORM: tl.constexpr):
    """Returns pointers to the mask's element of each row's first column: [rows, 1] for FORM.axis 1, [1, rows] for FORM.axis 0.

    Columns of a ragged row are counted from the start of its first vector, so these are `lead` columns ahead.
    """
    block = matrix // n_matrices
    outer = block * block_stride + (matrix - block * n_matrices) * matrix_stride
    return ptr + outer + tl.expand_dims(line * row, FORM.axis) - lead * col


@triton.jit
def before_diagonal(mask, rows, cols, lead, n_rows, n_cols, FORM: tl.constexpr):
    """Returns the mask without the columns that causal masking takes from each row."""
    seen = mask
    if FORM.causal != "":
        last = rows.to(tl.int32)
        if FORM.causal == "lower_right":
            last += (n_cols - n_rows).to(tl.int32)
        seen = mask & (cols - lead <= tl.expand_dims(last, FORM.axis))
    return seen


@triton.jit
def along_rows(factor, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Returns the factor in a shape that broadcasts against the rows' elements."""
    return tl.expand_dims(factor, AXIS) if FORM.by_row else factor


@triton.jit
def load_scores(a, b, cols, mask, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns the scores of elements; -inf where a mask, read at b, says so. There x is not read."""
    seen = mask
    if FORM.mask != "":
        given = tl.load(b + cols * b_stride, mask=mask, other=0)
        if FORM.mask == "bool":
            seen = mask & (given != 0)
    elements = tl.load(pointers(a, cols, a_stride, FORM.axis), mask=seen, other=0.0)
    x = elements.to(FORM.rounded_to).to(FORM.compute)
    x = -x if FORM.negate else x
    factor = along_rows(factor, FORM.axis, FORM)
    score = capped(x / tl.where(factor == 0, 1.0, factor) if FORM.divides else x * factor, FORM)
    # No product may be fused with the subtraction of the maximum, which is one of the rounded scores: a weight would exceed 1.
    score += tl.where(factor == factor, -0.0, factor)
    if FORM.mask == "added":
        score += given.to(FORM.compute)
    if FORM.divides:
        greedy = x
        if FORM.mask == "added":
            greedy = tl.where(given.to(FORM.compute) == -float("inf"), -float("inf"), x)
        score = tl.where(factor == 0, greedy, score)
    return tl.where(seen, score, -float("inf"))


@triton.jit
def capped(score, FORM: tl.constexpr):
    """Returns cap * tanh(score / cap), or the score itself without a cap."""
    if FORM.cap != 0:
        u = score / FORM.cap
        down = exp(-2.0 * tl.abs(u), FORM.exact)
        quotient = (1.0 - down) / (1.0 + down)
        square = u * u
        series = u * (1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * (62 / 2835)))))
        is_small = (tl.abs(u) < SMALL) if FORM.compute == tl.float32 else (u == 0)
        score = FORM.cap * tl.where(is_small, series, tl.where(u < 0, -quotient, quotient))
    return score


@triton.jit
def with_sink(first, second, factor, sink, FORM: tl.constexpr):
    """Returns (first, second) of whole rows with their sinks, and such that rows without a score give 0 if they shall."""
    if FORM.empty:
        is_empty = first == -float("inf")
        if FORM.sink:
            if FORM.divides:
                sink = tl.where(factor == 0, -float("inf"), sink)
            top = tl.maximum(tl.where(is_empty, 0.0, first), sink) if FORM.log else tl.where(is_empty, 0.0, first)
            down = exp(tl.minimum(first - top, 0.0), FORM.exact)
            second = second * down + exp(tl.minimum(sink - top, 80.0), FORM.exact)
            first = top
        first, second = tl.where(is_empty, 0.0, first), tl.where(is_empty, 1.0, second)
    return first, second


@triton.jit
def unscaled(dx, y, factor, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Returns the gradient of x from that of its scores; 0 for greedy rows, and where a mask hides x."""
    if FORM.scored:
        factor = along_rows(factor, AXIS, FORM)
        if FORM.divides:
            dx = tl.where(factor == 0, 0.0, dx / tl.where(factor == 0, 1.0, factor))
        else:
            dx = dx * factor
        if FORM.hides:
            dx = tl.where(y == (-float("inf") if FORM.log else 0.0), 0.0, dx)
    return dx
