"""Numbers as the instructions compute them. Each function takes and returns arrays of lanes.

Triton's descriptors request rounding to nearest, ties to even, with denormals.
"""

from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array

_TINY = np.float32(2.0**-126)
_ATOMIC: dict[str, Callable[[Array, Array], Array]] = {
    "swap": lambda old, value: value,
    "add": np.add, "sub": np.subtract, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "min": np.fmin, "max": np.fmax,
}  # fmt: skip


def fma(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float32, rounded once; the last bit of a denormal result may be off."""
    product = a.astype(np.float64) * b  # exact
    total = product + c
    halfway = (total.view(np.int64) & 0x1FFFFFFF) == 0x10000000  # a tie: a second rounding would ignore dropped bits
    if halfway.any():
        part = total - product
        cut = (product - (total - part)) + (c - part)
        up = halfway & (cut != 0) & np.isfinite(total)
        away = np.where((cut > 0) == (total > 0), 1, -1)
        total = np.where(up, (total.view(np.int64) + away).view(np.float64), total)
    return total.astype(np.float32)


def fused(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float64, float32 or float16, rounded once."""
    return {"float64": fma64, "float32": fma, "float16": fma16}[a.dtype.name](a, b, c)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float16, rounded once; float64 holds all of it."""
    return (a.astype(np.float64) * b + c).astype(np.float16)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """Returns a * b + c of float64. The error of each step is added at the end, so the last bit may be off."""
    product = a * b
    high, low = zip(*(_halves(x) for x in (a, b)), strict=True)
    lost = low[0] * low[1] - (((product - high[0] * high[1]) - low[0] * high[1]) - high[0] * low[1])
    total = product + c
    part = total - product
    result = total + ((product - (total - part)) + (c - part) + lost)
    return np.where(np.isfinite(result), result, total)


def _halves(x: Array) -> tuple[Array, Array]:
    """Returns a float64 as the sum of two numbers with half its digits (Dekker)."""
    far = x * 134217729.0
    high = far - (far - x)
    return high, x - high


def dot2(a: Array, b: Array, c: Array) -> Array:
    """Returns V_DOT2: the sum of two products of float16 and a float32, rounded once."""
    pairs = [np.ascontiguousarray(x).view(np.float16).reshape(-1, 2).astype(np.float64) for x in (a, b)]
    return ((pairs[0] * pairs[1]).sum(axis=1) + c).astype(np.float32)


def mac(a: Array, b: Array, c: Array) -> Array:
    """Returns V_MAC_F32: a * b + c, with two roundings; denormal operands and results are 0."""
    return _flushed(_flushed(_flushed(a) * _flushed(b)) + _flushed(c))


def half_of_digits(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns V_RCP, V_RSQ or V_SQRT of float64, which is exact in half of its digits only; the kernel's code refines it."""
    return lambda x: (function(x).view(np.uint64) & np.uint64(2**64 - 2**28)).view(np.float64)


def median(a: Array, b: Array, c: Array) -> Array:
    """Returns V_MED3 of floats: the median, or the least number where an operand is nan."""
    least = np.fmin(np.fmin(a, b), c)
    return np.where(np.isnan(a + b + c), least, np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))).astype(a.dtype)


_TWO_OVER_PI = int(  # the first 1201 bits of the fraction, as V_TRIG_PREOP's table has them
    "145F306DC9C882A53F84EAFA3EA69BB81B6C52B3278872083FCA2C757BD778AC36E48DC74849BA5C00C925DD413A32439FC3BD63962534"
    "E7DD1046BEA5D768909D338E04D68BEFC827323AC7306A673E93908BF177BF250763FF12FFFBC0B301FDE5E2316B414DA3EDA6CFD9E4F9"
    "6136E9E8C7ECD3CBFD45AEA4F758FD7CBE2F67A0E73EF14A525D4D7F6BF623F1ABA10AC06608DF8F6",
    16,
)


def part_of_two_over_pi(x: Array, part: Array) -> Array:
    """Returns V_TRIG_PREOP_F64: 53 bits of 2/pi, from a place on that the operand's exponent and the part's number choose."""
    exponent = (np.ascontiguousarray(x).view(np.uint64) >> np.uint64(52) & np.uint64(2047)).astype(np.int64)
    shift = (part & np.uint32(31)).astype(np.int64) * 53 + np.where(exponent > 1077, exponent - 1077, 0)
    places = np.broadcast_to(shift, np.broadcast_shapes(x.shape, part.shape))
    length = _TWO_OVER_PI.bit_length()
    bits = [_TWO_OVER_PI >> length - 53 - int(place) & 2**53 - 1 for place in places]
    return np.ldexp(np.array(bits, np.float64), -53 - places + np.where(exponent >= 1968, 128, 0))


def towards_zero(x: Array) -> Array:
    """Returns float32 as float16, rounded towards zero."""
    near = x.astype(np.float16)
    too_far = np.abs(near.astype(np.float32)) > np.abs(x)
    return np.where(too_far, np.nextafter(near, np.float16(0)), near).astype(np.float16)


def mantissa(x: Array) -> Array:
    """Returns V_FREXP_MANT: the number without its exponent, from 0.5 to 1."""
    return np.where(np.isfinite(x), np.frexp(x)[0], x)


def exponent(x: Array) -> Array:
    """Returns V_FREXP_EXP: the exponent that goes with V_FREXP_MANT; 0 for infinities and nan."""
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(np.int32)


def scale_by_power(x: Array, power: Array) -> Array:
    """Returns V_LDEXP: x * 2 ** power, rounded once."""
    wide = np.ldexp(x.astype(np.float64), np.clip(power.astype(np.int32), -4000, 4000))
    return wide.astype(x.dtype)


def is_class(x: Array, wanted: Array) -> Array:
    """Returns V_CMP_CLASS: whether a number is in one of the classes whose bits are set. Every nan is quiet."""
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)
    minus, nan, infinite, zero = np.signbit(x), np.isnan(x), np.isinf(x), x == 0
    denormal = ~(nan | infinite | zero | normal)
    below = [infinite & minus, normal & minus, denormal & minus, zero & minus]
    above = [zero & ~minus, denormal & ~minus, normal & ~minus, infinite & ~minus]
    classes = [np.zeros_like(nan), nan, *below, *above]
    return np.logical_or.reduce([member & (wanted >> np.uint32(bit) & 1 != 0) for bit, member in enumerate(classes)])


def whole(kind: str) -> Callable[[Array], Array]:
    """Returns a conversion to integers of a kind: towards 0, nan to 0, and out of range to the nearest integer in range."""
    limits = np.iinfo(kind)

    def convert(x: Array) -> Array:
        return np.clip(np.trunc(np.nan_to_num(x.astype(np.float64), nan=0)), limits.min, limits.max).astype(kind)

    return convert


def converted(kind: str) -> Callable[[Array], Array]:
    """Returns V_CVT to a kind: rounded to nearest for floats, towards 0 from floats to integers."""
    name = f"{kind[0]}{int(kind[1:]) // 8}"
    return lambda x: whole(name)(x) if kind[0] in "iu" and x.dtype.kind == "f" else x.astype(name)


def bfloat16(x: Array) -> Array:
    """Returns the bits of float32 numbers rounded to bfloat16, as uint32."""
    bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint32)


def transcendental(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns V_EXP, V_LOG, V_RCP, V_RSQ or V_SQRT of float32, computed in float64; denormal operands and results are 0."""
    return lambda x: _flushed(rounded(function(_flushed(x).astype(np.float64))))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp2, "log": np.log2, "rcp": np.reciprocal, "rsq": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt,
    "sin": lambda x: np.sin(2 * np.pi * x), "cos": lambda x: np.cos(2 * np.pi * x),
}  # fmt: skip


def half(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns a function of float16, rounded to the nearest float16."""
    return lambda x: function(x.astype(np.float64)).astype(np.float16)


def rounded(x: Array) -> Array:
    """Returns a transcendental result as the nearest float32. Hardware may return a neighbour; a test may override this."""
    return x.astype(np.float32)


def _flushed(x: Array) -> Array:
    return np.where(np.abs(x) < _TINY, np.copysign(np.float32(0), x), x).astype(np.float32)


def combine(operation: str, old: int, value: int, size: int) -> int:
    """Returns the new word of an atomic operation, from the old one and the operand.

    Raises:
        KeyError: there is no such operation.
    """
    if operation == "cmpswap":  # the operand is the new word, and above it the one that is expected
        expected = value >> 8 * size
        return value & (1 << 8 * size) - 1 if old == expected else old
    if operation.startswith("pk_add"):
        return _add_halves(old, value, operation.endswith("bf16"))
    name, _, letter = operation.partition("_")
    kind = np.dtype(f"{letter or 'u'}{size}")
    a, b = (np.frombuffer(number.to_bytes(size, "little"), kind) for number in (old, value))
    return int.from_bytes(_ATOMIC[name](a, b).astype(kind).tobytes(), "little")


def _add_halves(old: int, value: int, bfloat: bool) -> int:
    words = np.array([old, value], np.uint32).view(np.uint16).reshape(2, 2)
    if bfloat:
        low, high = bfloat16((words.astype(np.uint32) << np.uint32(16)).view(np.float32).sum(0))
        return int(low) | int(high) << 16
    a, b = words.view(np.float16)
    return int((a + b).view(np.uint32)[0])
