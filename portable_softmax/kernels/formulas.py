"""Softmax and gradient side by side: operands a and b, two statistics of each row, and the result.

          a   b              first                        second              result
softmax   x   exp(x - base)  max(x)                       sum(exp(x - first)) b * scale; a - first - log(second) if log
gradient  dy  y              sum(dy * y); sum(dy) if log  0                   y * (dy - first); dy - exp(y) * first if log

base is the first number of the row, or of a split of it; scale is then exp(base - first) / second.
AXIS is the axis of a row's elements in a tile. AXIS None means edges of unaligned rows, which are [rows, elements].
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import pointers
from portable_softmax.kernels.exponents import exp, finite, fma, inverse_of, scale_of, steep, times
from portable_softmax.kernels.scores import load_scores, unscaled


@triton.jit
def load(a, b, cols, read, seen, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns (a, b) at columns of rows that start at a and b. b is as it is in memory.

    The softmax of scores reads their mask as b, and needs what is `seen` of the columns alone.

    Masked elements get a value that does not change the row's statistics. An input of the softmax is rounded to the output's
    type first, as torch does.
    """
    if FORM.backward:
        loaded_a = tl.load(pointers(a, cols, a_stride, FORM.axis), mask=read, other=0.0).to(tl.float32)
        loaded_b = tl.load(pointers(b, cols, b_stride, FORM.axis), mask=read, other=0.0).to(tl.float32)
    elif FORM.scored:
        loaded_a = load_scores(a, b, cols, read, seen, a_stride, b_stride, factor, FORM)
        loaded_b = loaded_a
    else:
        x = tl.load(pointers(a, cols, a_stride, FORM.axis), mask=read, other=-float("inf"))
        loaded_a = x.to(FORM.rounded_to).to(tl.float32)
        loaded_b = loaded_a
    return loaded_a, loaded_b


@triton.jit
def of_rows(statistics):
    """Returns statistics of rows; for a single row as a scalar, which the compiler need not move between threads."""
    return tl.max(statistics, axis=0) if statistics.shape[0] == 1 else statistics


@triton.jit
def along(statistics, AXIS: tl.constexpr):
    """Returns statistics of rows in a shape that broadcasts against the rows' elements."""
    if AXIS is None:
        shaped = of_rows(statistics) if statistics.shape[0] == 1 else tl.expand_dims(statistics, 1)
    else:
        shaped = tl.expand_dims(statistics, AXIS)
    return shaped


@triton.jit
def weights(a, b, base, factor, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Returns exp(a - base) for softmax, and y itself for the gradient."""
    ACROSS: tl.constexpr = 1 if AXIS is None else AXIS
    return b if FORM.backward else exp(steep(a - along(base, AXIS), factor, ACROSS, FORM), FORM.exact)


@triton.jit
def shares(a, b, FORM: tl.constexpr):
    """Returns the terms whose sum over a row is its sum: b for softmax; dy * y, or dy with FORM.log, for the gradient."""
    if FORM.backward:
        terms = a if FORM.log else a * b
    else:
        terms = b
    return terms


@triton.jit
def add_shares(sums, a, b, FORM: tl.constexpr):
    """Adds the shares of as many more elements to the sums, and returns the new sums."""
    return fma(a, b, sums) if FORM.products else sums + shares(a, b, FORM)


@triton.jit
def falls_of(a, base, factor, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Returns a - base, finite, whose sum with the weights exp(a - base) is what an entropy needs."""
    ACROSS: tl.constexpr = 1 if AXIS is None else AXIS
    return finite(steep(a - along(base, AXIS), factor, ACROSS, FORM))


@triton.jit
def scale_from(base, first, second, factor, WHOLE: tl.constexpr, FORM: tl.constexpr):
    """Returns (scale, its rounding error) of rows. WHOLE: their base is the first number of the whole row."""
    if FORM.backward:
        scale, rest = first, first  # a gradient has no scale
    elif WHOLE:
        scale, rest = inverse_of(second, FORM.exact)
    else:
        scale, rest = scale_of(base, first, second, factor, FORM)
    return scale, rest


@triton.jit
def finish(a, b, first, second, scale, rest, factor, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Returns the results of elements, given the statistics of their rows."""
    ACROSS: tl.constexpr = 1 if AXIS is None else AXIS
    if FORM.backward:
        result = unscaled(gradient(a, b, along(first, AXIS), FORM), b, factor, ACROSS, FORM)
    elif FORM.log:
        result = steep(a - along(first, AXIS), factor, ACROSS, FORM) - tl.log(along(second, AXIS))
    else:
        result = times(b, along(scale, AXIS), along(rest, AXIS), FORM.exact)
    return result


@triton.jit
def gradient(a, b, total, FORM: tl.constexpr):
    """Returns the gradients of elements; `total` is the sum of each row in a shape that broadcasts against them."""
    if FORM.log:
        dx = a - exp(b, FORM.exact) * total
    else:
        dx = b * (a - total)
    return dx


@triton.jit
def store(ptrs, value, mask):
    """Stores results, rounded to the type of the tensor."""
    tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)
