"""Scratch memory: bytes of a lane, for spilled registers and arrays (SCRATCH_*, and BUFFER_* of gfx9 and gfx10)."""

from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.faults import OutOfBounds
from amdgcn_cpu.operands import scalar_source
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.shapes import Access, offset_of, put, register_of, take
from amdgcn_cpu.state import Wave

DESCRIPTOR = [0, 0x7FFF, 0xFFFFFFFF, 0]  # of the segment, at entry; an address that no allocation has


def compile_scratch(
    instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool
) -> Callable[[Wave], None]:
    """Compiles SCRATCH_LOAD or _STORE: an address is a register of lanes, plus a scalar, plus a constant."""
    first, second, base = instruction.operands
    data, vector = (second, first) if is_store else (first, second)
    register, more = register_of(instruction, data), offset_of(modifiers)
    scalar = (lambda wave: 0) if base == "off" else scalar_source(base, 32)
    offsets = None if vector == "off" else register_of(instruction, vector)

    def places(wave: Wave, lanes: Array) -> Array:
        own = wave.bits[offsets, lanes].astype(np.int64) if offsets is not None else np.zeros(len(lanes), np.int64)
        return own + scalar(wave) + more

    def access_all(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        move(wave, register, access, lanes, places(wave, lanes), is_store)

    return access_all


def move(wave: Wave, register: int, access: Access, lanes: Array, places: Array, is_store: bool) -> None:
    """Loads or stores registers of lanes, at places of their scratch memory.

    Raises:
        OutOfBounds: a place is outside of it.
    """
    if ((places < 0) | (places + access.size > wave.scratch.shape[1])).any():
        raise OutOfBounds(f"{access.size} bytes of scratch memory at {int(places.max())}, of {wave.scratch.shape[1]}")
    where = lanes[:, None], places[:, None] + np.arange(access.size)
    if is_store:
        wave.scratch[where] = take(wave, register, access, lanes)
    else:
        put(wave, register, access, lanes, wave.scratch[where])
