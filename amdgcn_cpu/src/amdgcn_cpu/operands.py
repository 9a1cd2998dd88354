"""Operands as functions of a wave, after the guides' tables of operand encodings.

A kind defines how bits are read: a letter (b bits, u unsigned, i signed, f float) and a width. Constants are arrays of one
element; numpy broadcasts them over lanes.
"""

import re
from collections.abc import Callable
from operator import attrgetter

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.faults import UnknownInstruction
from amdgcn_cpu.state import EXEC, M0, TTMP, VCC, Wave

DTYPES = {
    f"{letter}{width}": np.dtype(f"{dtype}{width // 8}")
    for letter, dtype in {"b": "u", "u": "u", "i": "i", "f": "f"}.items()
    for width in (16, 32, 64)
}
_VIEWS = {"b32": "bits", "u32": "bits", "i32": "integers", "f32": "floats"}
_NAMED = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "m0": M0, "exec": EXEC, "exec_lo": EXEC, "exec_hi": EXEC + 1}
_SELECTIONS = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16), **{f"BYTE_{n}": (8 * n, 8) for n in range(4)}}

Lanes = Callable[[Wave], Array]
Scalar = Callable[[Wave], int]


def width_of(kind: str) -> int:
    """Returns the number of bits of a kind."""
    return int(kind[1:])


def scalar_register(text: str) -> int | None:
    """Returns the number of the first scalar register of an operand; None if it is not a scalar register."""
    if text in _NAMED:
        return _NAMED[text]
    match = re.fullmatch(r"(s|ttmp)(?:(\d+)|\[(\d+):\d+\])", text)
    return match and int(match[2] or match[3]) + (TTMP if match[1] == "ttmp" else 0)


def vector_register(text: str) -> int | None:
    """Returns the number of an operand's first vector register; None if there is none. ACC registers start at 256."""
    match = re.fullmatch(r"([va])(?:(\d+)|\[(\d+):\d+\])", text)
    return match and int(match[2] or match[3]) + (256 if match[1] == "a" else 0)


def constant(text: str, kind: str) -> int | None:
    """Returns the bits of a constant in an operand of this kind; None if the text is not a constant."""
    width = width_of(kind)
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        value = int(text, 0)
        return value << 32 if kind == "f64" and "0x" in text else value & (1 << width) - 1
    if re.fullmatch(r"-?\d+\.\d+(e[-+]?\d+)?", text):
        if kind in ("b64", "u64", "i64"):
            raise UnknownInstruction(f"{text} as an integer of 64 bits")
        dtype = DTYPES[f"f{width}"]
        return int.from_bytes(np.array(float(text), dtype).tobytes(), "little")
    return None


def scalar_source(text: str, width: int) -> Scalar:
    """Returns the function that reads a scalar operand as bits.

    Raises:
        UnknownInstruction: there is no such operand.
    """
    value = 0 if text == "null" else constant(text, f"b{width}")
    if value is not None:
        known = value
        return lambda wave: known
    if text in ("scc", "src_scc"):
        return lambda wave: wave.scc
    register = scalar_register(text)
    if register is None:
        raise UnknownInstruction(f"unknown scalar operand {text}")
    first = register
    if width == 64:
        return lambda wave: wave.scalars[first] | wave.scalars[first + 1] << 32
    return lambda wave: wave.scalars[first]


def scalar_target(text: str, width: int) -> Callable[[Wave, int], None]:
    """Returns the function that writes bits to a scalar operand.

    Raises:
        UnknownInstruction: there is no such operand.
    """
    register = scalar_register(text)
    if text == "null":
        return lambda wave, value: None
    if register is None:
        raise UnknownInstruction(f"unknown scalar result {text}")
    first = register

    def write(wave: Wave, value: int) -> None:
        wave.scalars[first] = value & 0xFFFFFFFF
        if width == 64:
            wave.scalars[first + 1] = value >> 32
        if first >= EXEC:
            wave.set_exec((wave.scalars[EXEC] | wave.scalars[EXEC + 1] << 32) & (1 << wave.size) - 1)

    return write


def source(text: str, kind: str, high: bool = False, selection: str = "DWORD") -> Lanes:
    """Returns the function that reads an operand of a vector instruction, with its negation and absolute value.

    Args:
        text: the operand: `v1`, `-v1`, `|v1|`, `neg(0)`, `sext(v1)`, `v1.h`, `s2`, `0x7f800000`, `1.0`.
        kind: how its bits are read.
        high: True for the upper half of a register (op_sel).
        selection: SDWA's word or byte.

    Raises:
        UnknownInstruction: there is no such operand.
    """
    width = width_of(kind)
    inner, negated, absolute = text, False, False
    if match := re.fullmatch(r"-(?=[vas|])(.*)|neg\((.*)\)", inner):
        inner, negated = match[1] or match[2], True
    if match := re.fullmatch(r"\|(.*)\||abs\((.*)\)", inner):
        inner, absolute = match[1] or match[2], True
    if match := re.fullmatch(r"sext\((v\d+)\)", inner):
        return _extended(int(match[1][1:]), kind, selection)
    plain = _plain(inner, kind, high, selection)
    if not negated and not absolute:
        return plain
    if kind[0] not in "fb":
        raise UnknownInstruction(f"{text} as an integer")
    bits, sign = DTYPES[f"u{width}"], 1 << (width - 1)

    def modified(wave: Wave) -> Array:
        value = plain(wave).view(bits)
        value = value & bits.type(sign - 1) if absolute else value
        return (value ^ bits.type(sign) if negated else value).view(DTYPES[kind])

    return modified


def _extended(register: int, kind: str, selection: str) -> Lanes:
    """Returns the function that reads SDWA's word or byte as a signed number."""
    shift, bits = _SELECTIONS[selection]
    left, right = np.uint32(32 - bits - shift), np.int32(32 - bits)
    return lambda wave: (
        ((wave.bits[register] << left).view(np.int32) >> right).astype(DTYPES[f"i{width_of(kind)}"]).view(DTYPES[kind])
    )


def _plain(text: str, kind: str, high: bool, selection: str) -> Lanes:
    width, dtype = width_of(kind), DTYPES[kind]
    if text.endswith((".l", ".h")):
        text, high = text[:-2], text.endswith(".h")
    value = constant(text, kind)
    if value is not None:
        fixed = np.array([value], DTYPES[f"u{width}"]).view(dtype)
        return lambda wave: fixed
    register = vector_register(text)
    if register is None:
        scalar = scalar_source(text, max(width, 32))
        shift, keep = 16 if high else 0, (1 << width) - 1
        return lambda wave: np.array([scalar(wave) >> shift & keep], DTYPES[f"u{width}"]).view(dtype)
    first = register
    if selection != "DWORD":
        shift, bits = _SELECTIONS[selection]
        narrow = DTYPES[f"u{width}"]
        return lambda wave: (wave.bits[first] >> np.uint32(shift) & np.uint32((1 << bits) - 1)).astype(narrow).view(dtype)
    if width == 32:
        rows = attrgetter(_VIEWS[kind])
        return lambda wave: rows(wave)[first]
    if width == 16:
        half = 1 if high else 0
        return lambda wave: wave.bits[first].view(dtype)[half::2]

    def pair(wave: Wave) -> Array:
        return (wave.bits[first] | wave.bits[first + 1].astype(np.uint64) << np.uint64(32)).view(dtype)

    return pair


def target(text: str, kind: str, keeps_high: bool, high: bool = False) -> Callable[[Wave, Array, Array], None]:
    """Returns the function `write(wave, values, lanes)` for the result of a vector instruction.

    Args:
        text: the register.
        kind: kind of the values.
        keeps_high: True: a 16-bit result leaves the other half of the register as it is. False: the other half becomes 0.
        high: True to write the upper half (op_sel).

    Raises:
        UnknownInstruction: there is no such register.
    """
    width = width_of(kind)
    if text.endswith((".l", ".h")):
        text, high = text[:-2], text.endswith(".h")
        keeps_high = True
    register = vector_register(text)
    if register is None:
        raise UnknownInstruction(f"unknown vector result {text}")
    first = register

    def whole(wave: Wave, values: Array, lanes: Array) -> None:
        np.copyto(getattr(wave, _VIEWS[kind])[first], values, where=lanes)

    def half(wave: Wave, values: Array, lanes: Array) -> None:
        if not keeps_high and not high:
            np.copyto(wave.bits[first].view(np.uint16)[1::2], 0, where=lanes)
        np.copyto(wave.bits[first].view(DTYPES[kind])[int(high) :: 2], values, where=lanes)

    def pair(wave: Wave, values: Array, lanes: Array) -> None:
        bits = values.view(np.uint64)
        np.copyto(wave.bits[first], (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), where=lanes)
        np.copyto(wave.bits[first + 1], (bits >> np.uint64(32)).astype(np.uint32), where=lanes)

    return {16: half, 32: whole, 64: pair}[width]


def part_of_register(text: str, part: str, rest: str) -> Callable[[Wave, Array, Array], None]:
    """Returns the function `write(wave, values, lanes)` for SDWA's result in a word or a byte.

    Args:
        text: the register.
        part: WORD_0, BYTE_2 and so on.
        rest: the other bits: UNUSED_PAD makes them 0, UNUSED_PRESERVE keeps them.

    Raises:
        UnknownInstruction: there is no such register.
    """
    register = vector_register(text)
    if register is None or rest not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise UnknownInstruction(f"unknown vector result {text} {rest}")
    first, (shift, bits) = register, _SELECTIONS[part]
    mask = np.uint32((1 << bits) - 1 << shift)
    keep = ~mask if rest == "UNUSED_PRESERVE" else np.uint32(0)

    def write(wave: Wave, values: Array, lanes: Array) -> None:
        bits_of = values.view(f"u{values.itemsize}").astype(np.uint32)
        np.copyto(wave.bits[first], wave.bits[first] & keep | bits_of << np.uint32(shift) & mask, where=lanes)

    return write
