"""Exponentials as exact as the type of the result needs, and the running (maximum, sum) of a row."""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E); GPUs have an instruction for exp2
LN2 = tl.constexpr(0.6931471824645996)  # ln 2 in float32
LN2_REST = tl.constexpr(-1.9046542121259336e-09)
LOWEST = tl.constexpr(-110.0)  # exp of less is 0 in float32, subnormal numbers included


@triton.jit
def exp(x, EXACT: tl.constexpr):
    """exp(x) for x <= 0 or nan: within the exp2 instruction's error for EXACT float32, else within |x| * 2**-24 of it.

    The product x * LOG2E is rounded, by up to 2**-18 at x = -80. EXACT finds by how much, x - rounded * ln 2, with fused
    multiply-adds, and puts it back as exp(rest) = 1 + rest.
    """
    if x.dtype == tl.float64:
        y = tl.exp(x)
    elif EXACT:
        x = tl.maximum(x, LOWEST, propagate_nan=tl.PropagateNan.ALL)  # -inf leaves no rest
        rounded = x * LOG2E
        rest = tl.fma(rounded, -LN2_REST, tl.fma(rounded, -LN2, x))
        y = tl.exp2(rounded)
        y = tl.fma(y, rest, y)
    else:
        y = tl.exp2(x * LOG2E)
    return y


@triton.jit
def base_of(peak):
    """The maximum, but 0 for rows that are all -inf: -inf - -inf is nan."""
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def add(peak, total, peaks, totals, AXIS: tl.constexpr, EXACT: tl.constexpr):
    """The running (maximum, sum of exp(x - maximum)) of rows, with those of more parts of them; an element has a sum of 1."""
    new_peak = tl.maximum(peak, tl.max(peaks, axis=AXIS))
    base = base_of(new_peak)
    more = tl.sum(totals * exp(peaks - tl.expand_dims(base, AXIS), EXACT), axis=AXIS)
    return new_peak, total * exp(peak - base, EXACT) + more


@triton.jit
def inverse_of(total, EXACT: tl.constexpr):
    """(1 / total, what its rounding left for EXACT): as a factor for many numbers, see `times`."""
    inverse = 1.0 / total
    if EXACT:
        rest = tl.fma(-inverse, total, 1.0) * inverse
    else:
        rest = tl.zeros_like(inverse)
    return inverse, rest


@triton.jit
def scale_of(base, peak, total, EXACT: tl.constexpr):
    """(exp(base - peak) / total, what its rounding left for EXACT): takes exp(x - base) of a part of a row to its softmax.

    base is 0 above a lower maximum where a part is all -inf: then any factor is right.
    """
    down = exp(tl.minimum(base - peak, 0.0), EXACT)
    inverse, rest = inverse_of(total, EXACT)
    scale = down * inverse
    if EXACT:
        rest = tl.fma(down, inverse, -scale) + down * rest
    return scale, rest


@triton.jit
def times(e, scale, rest, EXACT: tl.constexpr):
    """e * (scale + rest), rounded once."""
    return tl.fma(e, scale, e * rest) if EXACT else e * scale
