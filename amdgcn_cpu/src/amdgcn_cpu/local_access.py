"""Loads and stores of LDS: DS_READ and DS_WRITE, DS_LOAD and DS_STORE from gfx11 on ("Data Share" in the guides)."""

from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.atomics import compile_atomic
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.shapes import Access, offset_of, put, register_of, take
from amdgcn_cpu.state import Wave


def compile_local(
    instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool, two: bool, stride: int
) -> Callable[[Wave], None]:
    """Compiles a DS instruction with a byte address per lane.

    An instruction with two accesses counts its offsets in elements, or in units of 64 elements.
    """
    texts = instruction.operands
    address = register_of(instruction, texts[0] if is_store else texts[1])
    data = [register_of(instruction, text) for text in (texts[1:] if is_store else texts[:1])]
    if two:
        offsets = [offset_of(modifiers, name) * stride * access.size for name in ("offset0", "offset1")]
        data = data if is_store else [data[0], data[0] + access.size // 4]
    else:
        offsets = [offset_of(modifiers)]
    pairs = list(zip(data, offsets, strict=True))

    def load(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        base = wave.bits[address, lanes]
        loaded = [
            wave.local.load((base + np.uint32(offset)).astype(np.int64), access.size, wave.index, wave.signals, wave.waits)
            for offset in offsets
        ]  # read here, because a result may overwrite the address
        for (register, _), bytes_ in zip(pairs, loaded, strict=True):
            put(wave, register, access, lanes, bytes_)

    def store(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        base = wave.bits[address, lanes]
        for register, offset in pairs:
            values = take(wave, register, access, lanes)
            wave.local.store((base + np.uint32(offset)).astype(np.int64), values, wave.index, wave.signals, wave.waits)

    return store if is_store else load


def compile_local_atomic(
    instruction: Instruction, modifiers: dict[str, str], operation: str, size: int, returns: bool
) -> Callable[[Wave], None]:
    """Compiles a DS instruction that reads and writes a word at once."""
    texts, offset = list(instruction.operands), np.uint32(offset_of(modifiers))
    result = texts.pop(0) if returns else None
    address = register_of(instruction, texts.pop(0))
    data = texts[::-1] if instruction.mnemonic.startswith("ds_cmpst_") else texts  # up to gfx10 the expected word comes first

    def places(wave: Wave) -> tuple[Array, Array]:
        lanes = np.flatnonzero(wave.active)
        return lanes, wave.bits[address, lanes] + offset

    def exchange(wave: Wave, place: int, value: int) -> int:
        return wave.local.exchange(place, value, size, operation, wave.index, wave.signals, wave.waits)

    return compile_atomic(instruction, result, data, size, operation == "cmpswap", places, exchange)
