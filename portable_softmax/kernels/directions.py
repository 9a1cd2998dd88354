"""Differences between the softmax and its gradient: operands a and b, two numbers of each row, results made of all four.

          a   b              first                        second              result
softmax   x   exp(x - base)  max(x)                       sum(exp(x - first)) b * scale; a - first - log(second) if LOG
gradient  dy  y              sum(dy * y); sum(dy) if LOG  0                   y * (dy - first); dy - exp(y) * first if LOG

A base is the first number, or that of a part of a row; scale is then exp(base - first) / second.
AXIS is that of the elements of a row, in tensors of [rows, cols] or [cols, rows]. So lies a, in memory too; b and the result
lie as LIES says.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import pointers
from portable_softmax.kernels.exchange import across_parts, by_row, highest_of, of_rows, settled, sum_over_parts
from portable_softmax.kernels.exponents import base_of, exp, inverse_of, scale_of, times


@triton.jit
def load(
    a, b, cols, mask, a_stride, b_stride,
    AXIS: tl.constexpr, LIES: tl.constexpr,
    BACKWARD: tl.constexpr, NEGATE: tl.constexpr, ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(a, b) of columns of rows that start at a and b, b as it is in memory; where masked, what changes no row's numbers.

    An input of the softmax is as torch sees it: rounded to the output's type, ROUND, first, then negated.
    """
    padding = 0.0 if BACKWARD else float("inf") if NEGATE else -float("inf")
    elements = tl.load(pointers(a, cols, a_stride, AXIS), mask=mask, other=padding)
    if BACKWARD:
        loaded_a = elements.to(COMPUTE)
        loaded_b = tl.load(pointers(b, cols, b_stride, LIES), mask=mask, other=padding).to(COMPUTE)
    else:
        x = elements.to(ROUND).to(COMPUTE)
        loaded_a = -x if NEGATE else x  # not before: the interpreter keeps bfloat16 as integers, and would negate those
        loaded_b = loaded_a
    return loaded_a, loaded_b


@triton.jit
def along(numbers, AXIS: tl.constexpr):
    """Numbers of rows in a shape that goes with elements of theirs; AXIS None: with their edges, [rows, elements]."""
    if AXIS is None:
        shaped = of_rows(numbers) if numbers.shape[0] == 1 else tl.expand_dims(numbers, 1)
    else:
        shaped = tl.expand_dims(numbers, AXIS)
    return shaped


@triton.jit
def weights(a, b, base, AXIS: tl.constexpr, BACKWARD: tl.constexpr, EXACT: tl.constexpr):
    """Makes b, of what was loaded and the base of each row."""
    return b if BACKWARD else exp(a - along(base, AXIS), EXACT)


@triton.jit
def shares(a, b, BACKWARD: tl.constexpr, LOG: tl.constexpr):
    """Makes of elements what their row's sum is the sum of."""
    if BACKWARD:
        terms = a if LOG else a * b
    else:
        terms = b
    return terms


@triton.jit
def nothing(n_cols, COMPUTE: tl.constexpr):
    """-0.0, which changes no number that is added to it, 0.0 included; the compiler does not know it, as it knows no n_cols.

    It would take the addition away, join products with the next one, and round otherwise than where there is none.
    """
    return tl.where(n_cols < 0, 1.0, -0.0).to(COMPUTE)


@triton.jit
def first_shares(a, b, n_cols, ALONE: tl.constexpr, BACKWARD: tl.constexpr, LOG: tl.constexpr):
    """Makes the shares of a tile's first piece. ALONE: there is no other; they are added to nothing, as in `reduce_part`."""
    if ALONE and (BACKWARD and not LOG):  # no chain of three: Triton 3.2 has none
        terms = tl.fma(a, b, nothing(n_cols, a.dtype))
    else:
        terms = shares(a, b, BACKWARD, LOG)
    return terms


@triton.jit
def add_shares(sums, a, b, BACKWARD: tl.constexpr, LOG: tl.constexpr):
    """Adds the shares of as many more elements."""
    return tl.fma(a, b, sums) if BACKWARD and not LOG else sums + shares(a, b, BACKWARD, LOG)


@triton.jit
def combine(firsts, seconds, top, ROWS: tl.constexpr, COLS: tl.constexpr, BACKWARD: tl.constexpr, EXACT: tl.constexpr):
    """(first, second) of rows, [rows] each, by those of all of their parts of COLS columns and their `top_of`."""
    if BACKWARD:
        first = sum_over_parts(firsts, tl.max(tl.abs(firsts), axis=0), ROWS)
        second = tl.zeros_like(first)
    else:
        first = highest_of(firsts, top, ROWS)
        down = exp(firsts - across_parts(base_of(first), ROWS), EXACT)
        second = sum_over_parts(seconds * down, tl.full((ROWS,), COLS, tl.float32), ROWS)
    return settled(by_row(first, ROWS)), settled(by_row(second, ROWS))


@triton.jit
def scale_from(base, first, second, WHOLE: tl.constexpr, BACKWARD: tl.constexpr, EXACT: tl.constexpr):
    """(scale, what its rounding left) of rows; WHOLE: their base is the first number."""
    if BACKWARD:
        scale, rest = first, first  # it has none
    elif WHOLE:
        scale, rest = inverse_of(second, EXACT)
    else:
        scale, rest = scale_of(base, first, second, EXACT)
    return scale, rest


@triton.jit
def finish(
    a, b, first, second, scale, rest,
    AXIS: tl.constexpr, BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Results of elements, by the numbers of their rows."""
    if BACKWARD:
        result = gradient(a, b, along(first, AXIS), LOG, NEGATE, EXACT)
    elif LOG:
        result = a - along(first, AXIS) - tl.log(along(second, AXIS))
    else:
        result = times(b, along(scale, AXIS), along(rest, AXIS), EXACT)
    return result


@triton.jit
def gradient(a, b, total, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr):
    """Gradients of elements, by the sum of their row in a shape that goes with them."""
    if LOG:
        dx = a - exp(b, EXACT) * total
    else:
        dx = b * (a - total)
    return -dx if NEGATE else dx
