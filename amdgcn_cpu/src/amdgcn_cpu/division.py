"""The steps of a division of float32 or float64: V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP, after the guides' pages."""

from typing import NamedTuple

import numpy as np

from amdgcn_cpu.arithmetic import fused, scale_by_power
from amdgcn_cpu.arrays import Array


class Scaling(NamedTuple):
    """Constants of V_DIV_SCALE for a type: the place of its exponent, the factor that scales, and what is large and small."""

    bits: type
    mantissa: int
    exponents: int
    factor: float
    large: int
    small: int

    def exponent(self, x: Array) -> Array:
        """Returns the biased exponent."""
        return (np.ascontiguousarray(x).view(self.bits) >> self.mantissa & self.exponents).astype(np.int32)

    def denormal(self, x: Array) -> Array:
        """True for numbers that are denormal in the type."""
        return (x != 0) & (np.abs(x) < 2.0 ** (1 - self.exponents // 2))


_SINGLE = Scaling(np.uint32, 23, 255, 2.0**64, 96, 23)
_DOUBLE = Scaling(np.uint64, 52, 2047, 2.0**128, 768, 53)


def scale(chosen: Array, denominator: Array, numerator: Array) -> tuple[Array, Array]:
    """Returns V_DIV_SCALE's (operand, VCC): an operand of a division, scaled so that every step stays in range."""
    chosen, denominator, numerator = np.broadcast_arrays(chosen, denominator, numerator)
    of = _SINGLE if chosen.dtype == np.float32 else _DOUBLE
    wide = denominator.astype(np.float64)
    inverse, quotient = of.denormal(1 / wide), of.denormal(numerator / wide)
    large = of.exponent(numerator) - of.exponent(denominator) >= of.large
    up, down = chosen * chosen.dtype.type(of.factor), chosen * chosen.dtype.type(1 / of.factor)
    is_denominator, is_numerator = chosen == denominator, chosen == numerator
    cases: list[tuple[Array, Array]] = [
        ((numerator == 0) | (denominator == 0), np.full_like(chosen, np.nan)),
        (large, np.where(is_denominator, up, chosen)),
        (of.denormal(denominator), up),
        (inverse & quotient, np.where(is_denominator, up, chosen)),
        (inverse, down),
        (quotient, np.where(is_numerator, up, chosen)),
        (of.exponent(numerator) <= of.small, up),
    ]
    conditions = [condition for condition, _ in cases]
    first = np.select(conditions, list(range(len(cases))), default=len(cases))
    return np.select(conditions, [value for _, value in cases], default=chosen), np.isin(first, (1, 3, 5))


def fmas(a: Array, b: Array, c: Array, scaled: Array) -> Array:
    """Returns V_DIV_FMAS's fused multiply-add; VCC undoes V_DIV_SCALE's factor.

    A quotient of 1 or more was scaled down, and a smaller one up. The guides print half of the factor's exponent, which would
    not undo it.
    """
    quotient = fused(a, b, c)
    of = _SINGLE if a.dtype == np.float32 else _DOUBLE
    power = np.where(np.abs(c) >= 1, 1, -1) * int(np.log2(of.factor))
    return np.where(scaled, scale_by_power(quotient, power), quotient).astype(a.dtype)


def fixup(quotient: Array, denominator: Array, numerator: Array) -> Array:
    """Returns V_DIV_FIXUP's quotient: the special result for infinities, zeros and nan, else the computed one."""
    negative = np.signbit(denominator) ^ np.signbit(numerator)
    kind = quotient.dtype.type
    sign = np.where(negative, kind(-1), kind(1))
    nothing = (denominator == 0) & (numerator == 0) | np.isinf(denominator) & np.isinf(numerator)
    conditions = [
        np.isnan(numerator) | np.isnan(denominator) | nothing,
        (denominator == 0) | np.isinf(numerator),
        np.isinf(denominator) | (numerator == 0),
    ]
    values = [np.full_like(sign, np.nan), sign * kind(np.inf), sign * kind(0)]
    return np.select(conditions, values, default=sign * np.abs(quotient)).astype(kind)
