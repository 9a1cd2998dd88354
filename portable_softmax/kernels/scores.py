"""From x to the scores whose softmax is taken: a factor for each row, a cap, a mask, and a sink.

A score is FORM.cap * tanh(FORM.cap_scale * x / FORM.cap), or x without a cap; times the factor, or its inverse with
FORM.divides; then -inf where a mask says so, or the mask is added. The denominator has one more logit, the row's sink. Rows
that are divided by 0 are greedy: they are not divided, whatever the sink is, and an added mask counts only where it is -inf.
`exponents.steep` does the rest.

A number that is the factor of all rows is positive. So -inf stays -inf, and what is loaded past the end of a row hides itself.
Factors of rows may be anything, so these elements are hidden one by one.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import pointers
from portable_softmax.kernels.exponents import base_of, exp, fma
from portable_softmax.kernels.masks import in_vectors_with_any, mask_pointers

MOST = tl.constexpr(3e38)  # nearly the largest number of float32


@triton.jit
def number_of(bits):
    """Returns the number whose bits these are, in float32: launches pass integers alone. None is None."""
    if bits is None:
        number = None
    else:
        number = tl.cast(bits, tl.int32).to(tl.float32, bitcast=True)
    return number


@triton.jit
def of_each_row(ptr, matrix, line, per_matrix, n_rows, FORM: tl.constexpr):
    """Loads one number for each row of a tile, [rows]; 1 for rows past the last."""
    return tl.load(ptr + tl.cast(matrix, tl.int64) * per_matrix + line, mask=line < n_rows, other=1.0).to(tl.float32)


@triton.jit
def factors_of(factor, matrix, line, per_matrix, n_rows, FORM: tl.constexpr):
    """Returns the factor of each row of a tile, [rows], from a pointer to all or a number; None without scores."""
    if FORM.by_row:
        factors = of_each_row(factor, matrix, line, per_matrix, n_rows, FORM)
    elif FORM.scored:
        factors = tl.full((FORM.tile_rows,), 0.0, tl.float32) + factor
    else:
        factors = None
    return factors


@triton.jit
def load_scores(a, b, cols, read, seen, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns the scores of elements that are seen, and not hidden by a mask, which is at b; else -inf.

    `read` has the vectors that hold any of them. Elements that are masked are not read, where whole vectors of them are.
    """
    added = 0.0
    if FORM.mask != "":
        asked = tl.expand_dims(tl.max(seen.to(tl.int32), axis=1), 1) != 0 if FORM.mask_by_row else seen
        given = tl.load(mask_pointers(b, cols, b_stride, FORM), mask=asked, other=0)
        if FORM.mask == "added":
            added = given.to(tl.float32)
        elif FORM.mask_by_row:
            seen = seen & (given != 0)
            read = read & (given != 0)
        else:
            seen = given != 0  # False where nothing was asked
            read = read & in_vectors_with_any(given, FORM)
    x = tl.load(pointers(a, cols, a_stride, FORM.axis), mask=read, other=-float("inf"))
    x = x.to(FORM.rounded_to).to(tl.float32)
    factor = tl.expand_dims(factor, FORM.axis)
    x = capped(x, FORM)
    if FORM.mask == "added":
        score = fma(x, multiplier(factor, FORM), added)
        if FORM.divides:
            score = tl.where(factor == 0, tl.where(added == -float("inf"), added, x), score)
    else:
        score = product(x, multiplier(factor, FORM))
    if FORM.selects:
        score = tl.where(seen, score, -float("inf"))
    return score


@triton.jit
def product(x, factor):
    """Returns x * factor, rounded: a compiler that fused it with the subtraction of the maximum would make weights above 1.

    So -0.0 is added, in a form that no compiler folds.
    """
    return fma(x, factor, tl.where(factor == factor, -0.0, factor))


@triton.jit
def multiplier(factor, FORM: tl.constexpr):
    """Returns what x of each row is multiplied by: the factor, or its inverse; 1 for greedy rows.

    The inverse's rounding is one of the temperature: it moves a score's distance to the maximum by 2**-23 of itself. A division
    of each element would be five instructions.
    """
    if FORM.divides:
        inverse = 1.0 / factor
        inverse = tl.where(inverse > MOST, MOST, inverse)  # finite: 0 over a subnormal number is 0
        inverse = tl.where(inverse < -MOST, -MOST, inverse)
        factor = tl.where(factor == 0, 1.0, inverse)
    return factor


@triton.jit
def constant(number: tl.constexpr):
    """Returns a number as a tensor of float32."""
    return tl.full((1, 1), number, tl.float32)


@triton.jit
def capped(score, FORM: tl.constexpr):
    """Returns cap * tanh(cap_scale * score / cap), or the score itself without a cap.

    tanh is (1 - e) / (1 + e) with e = exp(-2 |u|); for |u| below 0.625, where that cancels, u + u^3 P / Q by Cephes (Moshier),
    to the last bits of float64.
    """
    if FORM.cap != 0:
        u = score * (FORM.cap_scale / FORM.cap)
        size, square = tl.abs(u), u * u
        p = fma(square, constant(-9.64399179425052238628e-1), constant(-9.92877231001918586564e1))
        p = fma(p, square, constant(-1.61468768441708447952e3))
        q = fma(square + 1.12811678491632931402e2, square, constant(2.23548839060100448583e3))
        q = fma(q, square, constant(4.84406305325125486048e3))
        e = exp(-2.0 * size, True)
        small = size < 0.625
        tanh = tl.where(small, size * fma(square, p, q), 1.0 - e) / tl.where(small, q, 1.0 + e)
        score = product(tl.where(u < 0, -tanh, tanh), constant(FORM.cap))
    return score


@triton.jit
def with_sink(first, second, factor, sink, FORM: tl.constexpr):
    """Returns (first, second) of whole rows with their sinks, and such that rows without a score give 0 if they shall."""
    if FORM.empty:
        is_empty = (first == -float("inf")) & (second == 0)  # a maximum leaves nan out, the sum has it
        if FORM.sink:
            if FORM.divides:
                sink = tl.where(factor == 0, -float("inf"), sink)
            top = tl.maximum(base_of(first), sink)
            second = second * exp(first - top, FORM.exact) + exp(sink - top, FORM.exact)
            first = top
        first, second = tl.where(is_empty, 0.0, first), tl.where(is_empty, 1.0, second)
    return first, second


@triton.jit
def unscaled(dx, y, factor, AXIS: tl.constexpr, FORM: tl.constexpr):
    """Returns the gradient of x from that of its scores; 0 for greedy rows, and where a mask hides x."""
    if FORM.scored:
        factor = tl.expand_dims(factor, AXIS)
        dx = dx * multiplier(factor, FORM)
        if FORM.divides:
            dx = tl.where(factor == 0, 0.0, dx)
        nothing = -float("inf") if FORM.log else 0.0
        if FORM.voids:
            dx = tl.where(y > nothing, dx, 0.0)
        elif FORM.hides:
            dx = tl.where(y == nothing, 0.0, dx)
    return dx
