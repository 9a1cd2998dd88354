"""Integers and bits as the instructions compute them. Each function takes and returns arrays of lanes."""

from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array


def shift(count: Array, shifted: Array) -> Array:
    """Returns the bits of a count that a shift of these numbers uses, in their type."""
    return (count & np.asarray(count).dtype.type(8 * shifted.itemsize - 1)).astype(shifted.dtype)


def carry(a: Array, b: Array, c: Array | int = 0) -> tuple[Array, Array]:
    """Returns the sum and its carry."""
    whole = a.astype(np.uint64) + b + np.asarray(c, np.uint64)
    return whole.astype(np.uint32), whole >> np.uint64(32) != 0


def saturated(name: str, kind: str) -> Callable[[Array, Array], Array]:
    """Returns a sum or a difference that is clamped to its type's range."""
    limits = np.iinfo(f"{kind[0]}{int(kind[1:]) // 8}")

    def compute(a: Array, b: Array) -> Array:
        wide = np.add(a, b, dtype=np.int64) if name == "add" else np.subtract(a, b, dtype=np.int64)
        return np.clip(wide, limits.min, limits.max).astype(limits.dtype)

    return compute


def borrow(a: Array, b: Array, c: Array | int = 0) -> tuple[Array, Array]:
    """Returns the difference and its borrow."""
    whole = a.astype(np.int64) - b - np.asarray(c, np.int64)
    return whole.astype(np.uint32), whole < 0


def multiply_add(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Returns V_MAD_U64_U32: a 64-bit product plus another number, and the carry."""
    whole = a.astype(np.uint64) * b + c
    return whole, whole < c


def signed_multiply_add(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """Returns V_MAD_I64_I32: a 64-bit product plus another number, and whether the sum overflows."""
    whole = a.astype(np.int64) * b + c
    return whole, (a.astype(np.int64) * b < 0) ^ (whole < c)


def count_ones(x: Array) -> Array:
    """Returns the number of bits that are 1."""
    return np.unpackbits(np.ascontiguousarray(x, np.uint32).view(np.uint8)).reshape(-1, 32).sum(1, dtype=np.uint32)


def ones_of_lanes_below(first: int) -> Callable[[Array, Array, Array], Array]:
    """Returns V_MBCNT_LO, for lanes from 0, or _HI, from 32: a number, plus the ones of a mask of 32 lanes below the lane."""

    def count(mask: Array, number: Array, lane: Array) -> Array:
        below = (np.uint64(1) << np.clip(lane.astype(np.int64) - first, 0, 32).astype(np.uint64)) - np.uint64(1)
        return count_ones((mask & below).astype(np.uint32)) + number

    return count


def first_one(from_high: bool, signed: bool = False) -> Callable[[Array], Array]:
    """Returns V_FFBH or V_FFBL: the place of the first 1 from the high or low end, -1 where there is none.

    With a sign, the place of the first bit that differs from the sign.
    """

    def place(x: Array) -> Array:
        bits = np.where(x.view(np.int32) < 0, ~x, x) if signed else x
        one = bits.astype(np.uint64) if from_high else (bits & (~bits + np.uint32(1))).astype(np.uint64)
        length = np.frexp(one.astype(np.float64))[1]  # exact, as float64 holds 32 bits
        return np.where(bits == 0, -1, 32 - length if from_high else length - 1).astype(np.int32).view(np.uint32)

    return place


def wide(function: Callable[[Array, Array], Array], bits: int, shift: int = 0) -> Callable[..., Array]:
    """Returns a function of two signed numbers of so many bits, plus a third one, in 32 bits."""
    sign, mask = np.int64(1 << bits - 1), np.int64((1 << bits) - 1)

    def compute(a: Array, b: Array, *more: Array) -> Array:
        a, b = (((x.astype(np.int64) & mask) ^ sign) - sign for x in (a, b))
        return (sum(more, function(a, b) >> np.int64(shift)) & np.int64(0xFFFFFFFF)).astype(np.uint32)

    return compute


def dot4(signs: tuple[bool, bool]) -> Callable[[Array, Array, Array], Array]:
    """Returns V_DOT4: the sum of four products of bytes, signed or unsigned, and a number of 32 bits."""
    kinds = [np.int8 if sign else np.uint8 for sign in signs]

    def compute(a: Array, b: Array, c: Array) -> Array:
        left, right = (
            np.ascontiguousarray(x).view(k).reshape(-1, 4).astype(np.int64) for x, k in zip((a, b), kinds, strict=True)
        )
        return ((left * right).sum(1) + c.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)

    return compute


def field(x: Array, first: Array, width: Array) -> Array:
    """Returns V_BFE_U32: the bits from `first` on."""
    width = width & np.uint32(31)
    return x >> shift(first, x) & ((np.uint32(1) << width) - np.uint32(1))


def signed_field(x: Array, first: Array, width: Array) -> Array:
    """Returns V_BFE_I32: the bits from `first` on, as a signed number."""
    width = (width & np.uint32(31)).astype(np.int64)
    bits = x.astype(np.int64) >> (first & np.uint32(31)).astype(np.int64) & (np.int64(1) << width) - 1
    sign = np.where(width > 0, np.int64(1) << np.maximum(width - 1, 0), 0)
    return ((bits ^ sign) - sign).astype(np.int32)


def median(a: Array, b: Array, c: Array) -> Array:
    """Returns the median of three numbers."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def pack(low: Array, high: Array) -> Array:
    """Returns two float16 as the halves of 32 bits."""
    return low.view(np.uint16) | high.view(np.uint16).astype(np.uint32) << np.uint32(16)


def _both(a: Array, b: Array, c: Array) -> Callable[[int], Array]:
    """Returns the function that selects the bits of three operands at one row of V_BITOP3's truth table.

    The first operand is bit 2 of the row's number.
    """
    return lambda row: (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)


def bitop3(table: int) -> Callable[[Array, Array, Array], Array]:
    """Returns V_BITOP3_B32 for a truth table of eight bits."""
    rows = [row for row in range(8) if table >> row & 1]

    def function(a: Array, b: Array, c: Array) -> Array:
        bits, none = _both(a, b, c), np.zeros_like(a)
        return np.bitwise_or.reduce(np.broadcast_arrays(none, *(bits(row) for row in rows)), axis=0)

    return function


def permute_bytes(high: Array, low: Array, selector: Array) -> Array:
    """Returns V_PERM_B32's bytes: each byte of the selector names one of eight, a sign, or 0 or 255."""
    both = high.astype(np.uint64) << np.uint64(32) | low
    result = np.zeros(np.broadcast(high, low, selector).shape, np.uint32)
    for place in range(4):
        wanted = (selector >> np.uint32(8 * place) & np.uint32(255)).astype(np.uint64)
        byte = both >> (np.minimum(wanted, 7) * np.uint64(8)) & np.uint64(255)
        sign = (both >> ((np.clip(wanted, 8, 11) - 8) * np.uint64(16) + np.uint64(15)) & np.uint64(1)) * np.uint64(255)
        chosen = np.select([wanted < 8, wanted < 12, wanted == 12], [byte, sign, np.zeros_like(byte)], default=np.uint64(255))
        result |= chosen.astype(np.uint32) << np.uint32(8 * place)
    return result


def align(unit: int) -> Callable[[Array, Array, Array], Array]:
    """Returns V_ALIGNBIT or V_ALIGNBYTE: 32 of the 64 bits of two registers, starting at a unit."""
    mask = np.uint64(31 // unit)

    def function(high: Array, low: Array, count: Array) -> Array:
        both = high.astype(np.uint64) << np.uint64(32) | low
        return (both >> (count & mask) * np.uint64(unit)).astype(np.uint32)

    return function


def reverse_bits(x: Array) -> Array:
    """Returns the bits in reverse order."""
    return np.array([int(f"{int(number):032b}"[::-1], 2) for number in x], np.uint32)
