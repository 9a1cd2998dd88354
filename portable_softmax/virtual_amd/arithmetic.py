"""Numbers as the instructions compute them: each function takes and returns arrays of lanes.

Round modes are those that Triton's descriptors ask for: to nearest, ties to even, with denormals.
"""

from collections.abc import Callable

import numpy as np

from portable_softmax.virtual_amd.arrays import Array
from portable_softmax.virtual_amd.faults import Fault

_TINY = np.float32(2.0**-126)


def fma(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float32, rounded once (of a denormal result, the last bit may be off)."""
    product = a.astype(np.float64) * b  # exact
    total = product + c
    halfway = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000  # a second rounding would go to even, whatever was cut off
    if halfway.any():
        part = total - product
        cut = (product - (total - part)) + (c - part)
        up = halfway & (cut != 0) & np.isfinite(total)
        away = np.where((cut > 0) == (total > 0), 1, -1)
        total = np.where(up, (total.view(np.int64) + away).view(np.float64), total)
    return total.astype(np.float32)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float16, rounded once; float64 holds all of it."""
    return (a.astype(np.float64) * b + c).astype(np.float16)


def bfloat16(x: Array) -> Array:
    """Returns the bits of float32 numbers rounded to bfloat16, as uint32."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint32)


def transcendental(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns a V_EXP, V_LOG, V_RCP, V_RSQ or V_SQRT: float32, denormals taken and given as 0, computed in float64."""

    def flushed(x: Array) -> Array:
        return np.where(np.abs(x) < _TINY, np.copysign(np.float32(0), x), x).astype(np.float32)

    return lambda x: flushed(function(flushed(x).astype(np.float64)).astype(np.float32))


def _exponent(x: Array) -> Array:
    return (np.ascontiguousarray(x).view(np.uint32) >> 23 & 255).astype(np.int32)


def _denormal(x: Array) -> Array:
    return (x != 0) & (np.abs(x) < _TINY)


def div_scale(chosen: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """Returns V_DIV_SCALE_F32's (operand, VCC): a division's operand scaled so that no step of it leaves the range."""
    chosen, denominator, numerator = np.broadcast_arrays(chosen, denominator, numerator)
    wide = denominator.astype(np.float64)
    inverse, quotient = _denormal(1 / wide), _denormal(numerator / wide)
    large = _exponent(numerator) - _exponent(denominator) >= 96
    up, down = chosen * np.float32(2.0**64), chosen * np.float32(2.0**-64)
    is_denominator, is_numerator = chosen == denominator, chosen == numerator
    cases: list[tuple[Array, Array]] = [
        ((numerator == 0) | (denominator == 0), np.full_like(chosen, np.nan)),
        (large, np.where(is_denominator, up, chosen)),
        (_denormal(denominator), up),
        (inverse & quotient, np.where(is_denominator, up, chosen)),
        (inverse, down),
        (quotient, np.where(is_numerator, up, chosen)),
        (_exponent(numerator) <= 23, up),
    ]
    conditions = [condition for condition, _ in cases]
    first = np.select(conditions, list(range(len(cases))), default=len(cases))
    return np.select(conditions, [value for _, value in cases], default=chosen), np.isin(first, (1, 3, 5))


def div_fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Returns V_DIV_FMAS_F32's fused multiply-add.

    Raises:
        Fault: a lane's VCC asks to undo a scaling; the guides give a factor that does not fit V_DIV_SCALE_F32's.
    """
    if scaled.any():
        raise Fault("a division whose operands had to be scaled is not modelled")
    return fma(a, b, c)


def div_fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """Returns V_DIV_FIXUP_F32's quotient: that of infinities, zeros and nan, or the one that was computed."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    sign = np.where(negative, np.float32(-1), np.float32(1))
    nothing = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
    conditions = [
        np.isnan(numerator) | np.isnan(denominator) | nothing,
        (denominator == 0) | np.isinf(numerator),
        np.isinf(denominator) | (numerator == 0),
    ]
    values = [np.full_like(sign, np.nan), sign * np.float32(np.inf), sign * np.float32(0)]
    return np.select(conditions, values, default=sign * np.abs(quotient)).astype(np.float32)
