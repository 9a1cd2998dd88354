"""Softmax and gradient side by side: operands a and b, two numbers of each row, results made of all four.

          a   b              first                        second              result
softmax   x   exp(x - base)  max(x)                       sum(exp(x - first)) b * scale; a - first - log(second) if log
gradient  dy  y              sum(dy * y); sum(dy) if log  0                   y * (dy - first); dy - exp(y) * first if log

A base is the first number, or that of a part of a row; scale is then exp(base - first) / second.
AXIS is that of the elements of a row in a tile; None for edges of ragged rows, which are [rows, elements].
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import pointers
from portable_softmax.kernels.exponents import exp, fma, inverse_of, scale_of, times


@triton.jit
def load(a, b, cols, mask, a_stride, b_stride, FORM: tl.constexpr):
    """(a, b) of columns of rows that start at a and b, b as it is in memory; where masked, what changes no row's numbers.

    An input of the softmax is as torch sees it: rounded to the output's type first, then negated.
    """
    padding = 0.0 if FORM.backward else float("inf") if FORM.negate else -float("inf")
    elements = tl.load(pointers(a, cols, a_stride, FORM.axis), mask=mask, other=padding)
    if FORM.backward:
        loaded_a = elements.to(FORM.compute)
        loaded_b = tl.load(pointers(b, cols, b_stride, FORM.out_axis), mask=mask, other=padding).to(FORM.compute)
    else:
        x = elements.to(FORM.rounded_to).to(FORM.compute)
        loaded_a = -x if FORM.negate else x
        loaded_b = loaded_a
    return loaded_a, loaded_b


@triton.jit
def of_rows(numbers):
    """Numbers of rows; that of a single row as a scalar: compilers need not move it between threads."""
    return tl.max(numbers, axis=0) if numbers.shape[0] == 1 else numbers


@triton.jit
def along(numbers, AXIS: tl.constexpr):
    """Numbers of rows in a shape that goes with elements of theirs."""
    if AXIS is None:
        shaped = of_rows(numbers) if numbers.shape[0] == 1 else tl.expand_dims(numbers, 1)
    else:
        shaped = tl.expand_dims(numbers, AXIS)
    return shaped


@triton.jit
def weights(a, b, base, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Makes b, of what was loaded and the base of each row."""
    return b if FORM.backward else exp(a - along(base, AXIS), FORM.exact)


@triton.jit
def shares(a, b, FORM: tl.constexpr):
    """Makes of elements what their row's sum is the sum of."""
    if FORM.backward:
        terms = a if FORM.log else a * b
    else:
        terms = b
    return terms


@triton.jit
def add_shares(sums, a, b, FORM: tl.constexpr):
    """Adds the shares of as many more elements."""
    return fma(a, b, sums) if FORM.products else sums + shares(a, b, FORM)


@triton.jit
def scale_from(base, first, second, WHOLE: tl.constexpr, FORM: tl.constexpr):
    """(scale, what its rounding left) of rows; WHOLE: their base is the first number."""
    if FORM.backward:
        scale, rest = first, first  # it has none
    elif WHOLE:
        scale, rest = inverse_of(second, FORM.exact)
    else:
        scale, rest = scale_of(base, first, second, FORM.exact)
    return scale, rest


@triton.jit
def finish(a, b, first, second, scale, rest, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Results of elements, by the numbers of their rows."""
    if FORM.backward:
        result = gradient(a, b, along(first, AXIS), FORM)
    elif FORM.log:
        result = a - along(first, AXIS) - tl.log(along(second, AXIS))
    else:
        result = times(b, along(scale, AXIS), along(rest, AXIS), FORM.exact)
    return result


@triton.jit
def gradient(a, b, total, FORM: tl.constexpr):
    """Gradients of elements, by the sum of their row in a shape that goes with them."""
    if FORM.log:
        dx = a - exp(b, FORM.exact) * total
    else:
        dx = b * (a - total)
    return -dx if FORM.negate else dx


@triton.jit
def store(ptrs, value, mask):
    """Stores results, rounded to the type of the tensor."""
    tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)
