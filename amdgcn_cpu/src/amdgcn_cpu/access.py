"""Loads, stores and atomics of global memory: GLOBAL_* and BUFFER_* in the guides' chapters on vector memory.

Cache modifiers are checked against those of the architecture, and change nothing: there is no cache here.
"""

import re
from collections.abc import Callable

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.atomics import Places, atomic_of, compile_atomic
from amdgcn_cpu.local_access import compile_local, compile_local_atomic
from amdgcn_cpu.operands import scalar_register, scalar_source
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.scratch import DESCRIPTOR, compile_scratch, move
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
    r"(?P<space>global|buffer|scratch|ds)_(?:(?P<action>load|store|read|write)_?)"
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
    elif match := re.fullmatch(r"(global|buffer)_atomic_(\w+)", instruction.mnemonic):
        step = _atomic(instruction, modifiers, cache, match[1] == "buffer", match[2])
    elif (match := re.fullmatch(r"ds_(\w+)", instruction.mnemonic)) and (atomic := atomic_of(match[1])):
        step = compile_local_atomic(instruction, modifiers, *atomic)
    else:
        match = _NAME.fullmatch(instruction.mnemonic)
        access = shape_of(match["type"]) if match else None
        if not match or access is None:
            raise instruction.unknown("unknown instruction")
        is_store = match["action"] in ("store", "write")
        if match["space"] == "ds":
            step = compile_local(instruction, modifiers, access, is_store, bool(match["two"]), 64 if match["stride"] else 1)
        elif match["space"] == "global" and not match["two"]:
            step = _global(instruction, modifiers, access, is_store)
        elif match["space"] == "scratch" and not match["two"]:
            step = compile_scratch(instruction, modifiers, access, is_store)
        elif match["space"] == "buffer" and not match["two"]:
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


def _in_buffer(instruction: Instruction, modifiers: dict[str, str], operands: tuple[str, ...], size: int) -> Places:
    """Returns the function that computes places of a BUFFER instruction, whose offsets start at the base of a descriptor (V#).

    Lanes beyond the descriptor's range are left out.
    """
    address, descriptor, scalar = operands
    first = scalar_register(descriptor)
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
        inside = offset + size <= n_records - soffset(wave)
        return lanes[inside], offset[inside] + soffset(wave) + (low | (high & 0xFFFF) << 32)

    return places


def _buffer(instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool) -> Callable[[Wave], None]:
    """Compiles a BUFFER load or store; beyond the range, lanes read 0 and write nothing. Its memory may be scratch memory."""
    register = register_of(instruction, instruction.operands[0])
    places, scratch = _in_buffer(instruction, modifiers, instruction.operands[1:], access.size), DESCRIPTOR[1]

    def load(wave: Wave) -> None:
        lanes, addresses = places(wave)
        if len(addresses) and int(addresses[0]) >> 32 == scratch:
            move(wave, register, access, lanes, addresses & 0xFFFFFFFF, False)
            return
        put(wave, register, access, (every := np.flatnonzero(wave.active)), np.zeros((len(every), access.size), np.uint8))
        put(wave, register, access, lanes, wave.memory.load(addresses, access.size))

    def store(wave: Wave) -> None:
        lanes, addresses = places(wave)
        if len(addresses) and int(addresses[0]) >> 32 == scratch:
            move(wave, register, access, lanes, addresses & 0xFFFFFFFF, True)
        else:
            wave.memory.store(addresses, take(wave, register, access, lanes))

    return store if is_store else load


def _atomic(
    instruction: Instruction, modifiers: dict[str, str], cache: dict[str, str], in_buffer: bool, name: str
) -> Callable[[Wave], None]:
    """Compiles GLOBAL_ATOMIC or BUFFER_ATOMIC. GLC, SC0 or TH_ATOMIC_RETURN request the old value."""
    atomic = atomic_of(name)
    if atomic is None:
        raise instruction.unknown("unknown atomic")
    operation, size, _ = atomic
    texts, returns = list(instruction.operands), returns_old(cache)
    if in_buffer:  # the old value replaces the operand
        data, result = texts[0], texts[0] if returns else None
        places = _in_buffer(instruction, modifiers, tuple(texts[1:]), size)
    else:
        result = texts.pop(0) if returns else None
        address, data, base = texts
        where = _addresses(instruction, address, base, offset_of(modifiers))

        def places(wave: Wave) -> tuple[Array, Array]:
            lanes = np.flatnonzero(wave.active)
            return lanes, where(wave, lanes)

    def exchange(wave: Wave, place: int, value: int) -> int:
        return wave.memory.exchange(place, value, size, operation)

    return compile_atomic(instruction, result, [data], size, operation == "cmpswap", places, exchange)
