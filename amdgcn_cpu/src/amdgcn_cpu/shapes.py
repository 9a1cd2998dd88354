"""Shapes of memory accesses, and the registers that they move."""

import re
from typing import NamedTuple

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.operands import vector_register
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.state import Wave

_BYTES = {
    "ubyte": 1, "u8": 1, "sbyte": 1, "i8": 1, "byte": 1, "b8": 1,
    "ushort": 2, "u16": 2, "sshort": 2, "i16": 2, "short": 2, "b16": 2,
    "dword": 4, "b32": 4, "u32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12, "b96": 12, "dwordx4": 16, "b128": 16,
}  # fmt: skip
_SIGNED = {"sbyte", "i8", "sshort", "i16"}


class Access(NamedTuple):
    """Shape of a memory access.

    Args:
        size: bytes of a lane.
        high: the access uses the upper half of the register.
        keeps: a load leaves the other half unchanged (D16).
        signed: a load extends the sign.
    """

    size: int
    high: bool = False
    keeps: bool = False
    signed: bool = False


def shape_of(text: str) -> Access | None:
    """Reads the last part of a mnemonic: `dwordx4`, `b128`, `ushort`, `short_d16_hi`, `d16_hi_b16`."""
    name = re.sub(r"_?d16(_hi)?_?", "", text)
    return Access(_BYTES[name], "d16_hi" in text, "d16" in text, name in _SIGNED) if name in _BYTES else None


def cache_modifiers(arch: str) -> set[str]:
    """Returns the architecture's modifiers for caches."""
    if arch.startswith("gfx12"):
        return {"th", "scope"}
    return {"sc0", "sc1", "nt"} if arch in ("gfx942", "gfx950") else {"glc", "slc", "dlc"}


def returns_old(modifiers: dict[str, str]) -> bool:
    """True if an atomic returns the old value."""
    return "glc" in modifiers or "sc0" in modifiers or "RETURN" in modifiers.get("th", "")


def offset_of(modifiers: dict[str, str], name: str = "offset") -> int:
    """Takes a constant offset from the modifiers."""
    return int(modifiers.pop(name, "0"), 0)


def register_of(instruction: Instruction, text: str) -> int:
    """Returns the number of a vector register.

    Raises:
        UnknownInstruction: the operand is not a vector register.
    """
    number = vector_register(text)
    if number is None:
        raise instruction.unknown("unknown vector register")
    return number


def take(wave: Wave, register: int, access: Access, lanes: Array) -> Array:
    """Returns [lanes, size] bytes of registers."""
    count = -(-access.size // 4)
    data = np.ascontiguousarray(wave.bits[register : register + count, lanes].T).view(np.uint8)
    first = 2 if access.high else 0
    return data[:, first : first + access.size]


def put(wave: Wave, register: int, access: Access, lanes: Array, data: Array) -> None:
    """Writes [lanes, size] bytes to registers."""
    if access.size >= 4:
        words = np.ascontiguousarray(data).view(np.uint32)
        wave.bits[register : register + words.shape[1], lanes] = words.T
        return
    dtype = f"{'i' if access.signed else 'u'}{access.size}"
    values = np.ascontiguousarray(data).view(dtype)[:, 0].astype(np.int64) & 0xFFFFFFFF
    if access.keeps:
        old, shift = wave.bits[register, lanes].astype(np.int64), 16 if access.high else 0
        values = old & 0xFFFF << (16 - shift) | (values & 0xFFFF) << shift
    wave.bits[register, lanes] = values.astype(np.uint32)
