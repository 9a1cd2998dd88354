"""Differences between the softmax and its gradient: two operands, two numbers of each row, and results made of all four.

          a   b              first                       second              result
softmax   x   exp(x - base)  max(x)                      sum(exp(x - first))  b * scale, or a - first - log(second) with LOG
gradient  dy  y              sum(dy * y), sum(dy) if LOG  0                    y * (dy - first), or dy - exp(y) * first with LOG

Before `weights`, b is x too. base is the first number, or a part's own; scale is then exp(base - first) / second.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import pointers
from portable_softmax.kernels.exchange import peak_of
from portable_softmax.kernels.exponents import add, base_of, exp, inverse_of, normalise, scale_of, sum_of, times


@triton.jit
def load(
    a, b, cols, mask, a_stride, b_stride, out_ptr,
    AXIS: tl.constexpr, BACKWARD: tl.constexpr, NEGATE: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(a, b) of columns of rows that start at these pointers; elsewhere what changes neither of the row's numbers.

    The input is as torch sees it: rounded to the output's type first, then negated.
    """
    if BACKWARD:
        first = tl.load(pointers(a, cols, a_stride, AXIS), mask=mask, other=0.0).to(COMPUTE)
        second = tl.load(pointers(b, cols, b_stride, AXIS), mask=mask, other=0.0).to(COMPUTE)
    else:
        padding = float("inf") if NEGATE else -float("inf")
        x = tl.load(pointers(a, cols, a_stride, AXIS), mask=mask, other=padding).to(out_ptr.dtype.element_ty).to(COMPUTE)
        first = -x if NEGATE else x  # not before: the interpreter keeps bfloat16 as integers, and would negate those
        second = first
    return first, second


@triton.jit
def along(numbers, AXIS: tl.constexpr):
    """Numbers of rows, to be used with elements of them."""
    return tl.max(numbers, axis=0) if AXIS is None else tl.expand_dims(numbers, AXIS)


@triton.jit
def weights(a, b, base, AXIS: tl.constexpr, BACKWARD: tl.constexpr, EXACT: tl.constexpr):
    """Makes b of what was loaded, by the rows' bases."""
    return b if BACKWARD else exp(a - along(base, AXIS), EXACT)


@triton.jit
def shares(a, b, BACKWARD: tl.constexpr, LOG: tl.constexpr):
    """Terms of the sum over a row."""
    if BACKWARD:
        terms = a if LOG else a * b
    else:
        terms = b
    return terms


@triton.jit
def add_shares(sums, a, b, BACKWARD: tl.constexpr, LOG: tl.constexpr):
    """Sums with the shares of as many more elements."""
    if BACKWARD and not LOG:
        sums = tl.fma(a, b, sums)
    else:
        sums += shares(a, b, BACKWARD, LOG)
    return sums


@triton.jit
def add_tile(
    first, second, a, b, AXIS: tl.constexpr, BACKWARD: tl.constexpr, LOG: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    """The running (first, second) of rows with a tile's."""
    if BACKWARD:
        first += tl.sum(shares(a, b, BACKWARD, LOG), axis=AXIS)
    else:
        first, second = add(first, second, a, 1.0, AXIS, EXACT)
    return first, second


@triton.jit
def lowest(BACKWARD: tl.constexpr):
    """The first number of no elements."""
    return 0.0 if BACKWARD else -float("inf")


@triton.jit
def combine(firsts, seconds, highest, BACKWARD: tl.constexpr, EXACT: tl.constexpr):
    """(first, second) of a row by those of all of its parts and their `highest_of`: [1] each."""
    if BACKWARD:
        first, second = tl.sum(firsts, axis=0), tl.cast(0.0, tl.float32)
    else:
        first = peak_of(highest)
        second = sum_of(firsts, seconds, first, EXACT)
    return tl.full((1,), first, tl.float32), tl.full((1,), second, tl.float32)


@triton.jit
def scale_from(base, first, second, PARTS: tl.constexpr, BACKWARD: tl.constexpr, EXACT: tl.constexpr):
    """(scale, what its rounding left) for `finish`."""
    if BACKWARD:
        scale, rest = first, first  # it has none
    elif PARTS == 1:
        scale, rest = inverse_of(second, EXACT)
    else:
        scale, rest = scale_of(base, first, second, EXACT)
    return scale, rest


@triton.jit
def gradient(dy, y, total, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr):
    """The gradient of the input from that of the output, the output, and their rows' sums."""
    if LOG:
        dx = dy - exp(y, EXACT) * total
    else:
        dx = y * (dy - total)
    return -dx if NEGATE else dx


@triton.jit
def finish(
    a, b, first, second, scale, rest,
    AXIS: tl.constexpr, BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Results of elements, by the numbers of their rows."""
    if BACKWARD:
        result = gradient(a, b, along(first, AXIS), LOG, NEGATE, EXACT)
    elif LOG:
        result = normalise(a, along(first, AXIS), along(second, AXIS), LOG, EXACT)
    else:
        result = times(b, along(scale, AXIS), along(rest, AXIS), EXACT)
    return result
