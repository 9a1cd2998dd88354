"""Loads, stores and atomics of global memory: GLOBAL_* and BUFFER_* in the guides' chapters on vector memory.

Cache modifiers are checked against those of the architecture, and change nothing: there is no cache here.
"""

import re
from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.local_access import compile_local
from amdgcn_cpu.memory import ATOMICS
from amdgcn_cpu.operands import scalar_register, scalar_source
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.shapes import (
    Access,
    cache_modifiers,
    offset_of,
    put,
    register_of,
    returns_old,
    shape_of,
    take,
)
from amdgcn_cpu.state import Wave

_NAME = re.compile(
    r"(?P<space>global|buffer|ds)_(?:(?P<action>load|store|read|write)_?)"
    r"(?P<two>2(?:addr)?(?P<stride>_?st(?:ride)?64)?_)?(?P<type>\w+)"
)

# Instructions that invalidate a cache or write it back.
_CACHES = {
    "buffer_gl0_inv", "buffer_gl1_inv", "buffer_inv", "buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_wbl2", "buffer_invl2",
    "global_inv", "global_wb", "global_wbinv",
}  # fmt: skip


def compile_access(instruction: Instruction, arch: str) -> Callable[[Wave], None]:
    """Returns the function of a wave that a load, a store or an atomic performs.

    Raises:
        UnknownInstruction: the instruction or a modifier of it is not known.
    """
    modifiers = dict(instruction.modifiers)
    cache = {name: modifiers.pop(name) for name in cache_modifiers(arch) & modifiers.keys()}
    if instruction.mnemonic in _CACHES:
        step: Callable[[Wave], None] = _nothing
    elif found := re.fullmatch(r"global_atomic_(\w+?)(_x2|_b64|_b32|_u64|_u32)?", instruction.mnemonic):
        step = _atomic(instruction, modifiers, cache, found[1], 8 if found[2] in ("_x2", "_b64", "_u64") else 4)
    else:
        found = _NAME.fullmatch(instruction.mnemonic)
        access = shape_of(found["type"]) if found else None
        if not found or access is None:
            raise instruction.unknown("unknown instruction")
        is_store = found["action"] in ("store", "write")
        if found["space"] == "ds":
            step = compile_local(instruction, modifiers, access, is_store, bool(found["two"]), 64 if found["stride"] else 1)
        elif found["space"] == "global" and not found["two"]:
            step = _global(instruction, modifiers, access, is_store)
        elif found["space"] == "buffer" and not found["two"]:
            step = _buffer(instruction, modifiers, access, is_store)
        else:
            raise instruction.unknown("unknown instruction")
    if modifiers:
        raise instruction.unknown("unknown modifier")
    return step


def _nothing(wave: Wave) -> None:
    """Does nothing: there is no cache."""


def _addresses(instruction: Instruction, vector: str, base: str, offset: int) -> Callable[[Wave, Array], Array]:
    """Returns the function that computes addresses of a GLOBAL instruction.

    They are 64-bit addresses of the lanes, or a scalar address and 32-bit offsets of the lanes.
    """
    register = register_of(instruction, vector)
    if base == "off":
        return lambda wave, lanes: (
            wave.bits[register, lanes].astype(np.int64) + (wave.bits[register + 1, lanes].astype(np.int64) << 32) + offset
        )
    scalar = scalar_source(base, 64)
    return lambda wave, lanes: wave.bits[register, lanes].astype(np.int64) + (scalar(wave) + offset)


def _global(instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool) -> Callable[[Wave], None]:
    first, second, base = instruction.operands
    data, address = (second, first) if is_store else (first, second)
    register = register_of(instruction, data)
    where = _addresses(instruction, address, base, offset_of(modifiers))

    def load(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        put(wave, register, access, lanes, wave.memory.load(where(wave, lanes), access.size))

    def store(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        wave.memory.store(where(wave, lanes), take(wave, register, access, lanes))

    return store if is_store else load


def _buffer(instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool) -> Callable[[Wave], None]:
    """Compiles a BUFFER instruction, whose offsets start at the base of a descriptor (V#).

    Beyond the descriptor's range, lanes read 0 and write nothing.
    """
    data, address, descriptor, scalar = instruction.operands
    register, first = register_of(instruction, data), scalar_register(descriptor)
    if first is None:
        raise instruction.unknown("unknown descriptor")
    v_sharp, soffset, more = first, scalar_source(scalar, 32), offset_of(modifiers)
    offsets = register_of(instruction, address) if "offen" in modifiers else None
    modifiers.pop("offen", None)

    def places(wave: Wave) -> tuple[Array, Array]:
        low, high, n_records, _ = wave.scalars[v_sharp : v_sharp + 4]
        if high >> 16 & 0x3FFF:
            raise instruction.unknown("a buffer with a stride")
        lanes = np.flatnonzero(wave.active)
        offset = more + (wave.bits[offsets, lanes].astype(np.int64) if offsets is not None else np.zeros(len(lanes), np.int64))
        inside = offset + access.size <= n_records - soffset(wave)
        return lanes[inside], offset[inside] + soffset(wave) + (low | (high & 0xFFFF) << 32)

    def load(wave: Wave) -> None:
        lanes, addresses = places(wave)
        put(wave, register, access, (every := np.flatnonzero(wave.active)), np.zeros((len(every), access.size), np.uint8))
        put(wave, register, access, lanes, wave.memory.load(addresses, access.size))

    def store(wave: Wave) -> None:
        lanes, addresses = places(wave)
        wave.memory.store(addresses, take(wave, register, access, lanes))

    return store if is_store else load


def _atomic(
    instruction: Instruction, modifiers: dict[str, str], cache: dict[str, str], operation: str, size: int
) -> Callable[[Wave], None]:
    """Compiles a GLOBAL_ATOMIC, which takes one lane after another. GLC, SC0 or TH_ATOMIC_RETURN ask for the old value."""
    returns = returns_old(cache)
    *result, address, data, base = instruction.operands
    if operation not in ATOMICS or len(result) != int(returns):
        raise instruction.unknown("unknown atomic")
    where = _addresses(instruction, address, base, offset_of(modifiers))
    operand = register_of(instruction, data)
    target = register_of(instruction, result[0]) if result else None
    access = Access(size)

    def atomic(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        values = take(wave, operand, access, lanes)
        for lane, place, value in zip(lanes, where(wave, lanes), values, strict=True):
            old = wave.memory.exchange(int(place), int.from_bytes(value.tobytes(), "little"), size, operation)
            if target is not None:
                before = np.frombuffer(old.to_bytes(size, "little"), np.uint8)[None]
                put(wave, target, access, np.array([lane]), before)

    return atomic
