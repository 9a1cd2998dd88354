"""Loads, stores and atomics of lanes: GLOBAL_*, BUFFER_* and DS_* in the guides' chapters on vector memory and data share.

Cache modifiers are checked against those of the architecture, and change nothing: there is no cache here.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from portable_softmax.virtual_amd.memory import ATOMICS
from portable_softmax.virtual_amd.operands import scalar_register, scalar_source, vector_register
from portable_softmax.virtual_amd.parsing import Instruction
from portable_softmax.virtual_amd.state import Array, Wave

_BYTES = {
    "ubyte": 1, "u8": 1, "sbyte": 1, "i8": 1, "byte": 1, "b8": 1,
    "ushort": 2, "u16": 2, "sshort": 2, "i16": 2, "short": 2, "b16": 2,
    "dword": 4, "b32": 4, "u32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12, "b96": 12, "dwordx4": 16, "b128": 16,
}  # fmt: skip
_SIGNED = {"sbyte", "i8", "sshort", "i16"}
_NAME = re.compile(
    r"(?P<space>global|buffer|ds)_(?:(?P<action>load|store|read|write)_?)"
    r"(?P<two>2(?:addr)?(?P<stride>_?st(?:ride)?64)?_)?(?P<type>\w+)"
)


class Access(NamedTuple):
    """Shape of an access: bytes of a lane, and which half of the register they are if they are two or fewer.

    Args:
        size: bytes.
        high: the upper half.
        keeps: a load leaves the other half (D16).
        signed: a load extends the sign.
    """

    size: int
    high: bool = False
    keeps: bool = False
    signed: bool = False


def _access(text: str) -> Access | None:
    """Reads the last part of a name: `dwordx4`, `b128`, `ushort`, `short_d16_hi`, `d16_hi_b16`."""
    name = re.sub(r"_?d16(_hi)?_?", "", text)
    return Access(_BYTES[name], "d16_hi" in text, "d16" in text, name in _SIGNED) if name in _BYTES else None


def _cache_modifiers(arch: str) -> set[str]:
    if arch.startswith("gfx12"):
        return {"th", "scope"}
    return {"sc0", "sc1", "nt"} if arch in ("gfx942", "gfx950") else {"glc", "slc", "dlc"}


def compile_access(instruction: Instruction, arch: str) -> Callable[[Wave], None]:
    """Returns what a load, a store or an atomic does.

    Raises:
        UnknownInstruction: nothing here knows it, or a modifier of it.
    """
    modifiers = dict(instruction.modifiers)
    cache = {name: modifiers.pop(name) for name in _cache_modifiers(arch) & modifiers.keys()}
    if found := re.fullmatch(r"global_atomic_(\w+?)(_x2|_b64|_b32|_u64|_u32)?", instruction.mnemonic):
        step = _atomic(instruction, modifiers, cache, found[1], 8 if found[2] in ("_x2", "_b64", "_u64") else 4)
    else:
        found = _NAME.fullmatch(instruction.mnemonic)
        access = _access(found["type"]) if found else None
        if not found or access is None:
            raise instruction.unknown("unknown instruction")
        is_store = found["action"] in ("store", "write")
        if found["space"] == "ds":
            step = _local(instruction, modifiers, access, is_store, bool(found["two"]), 64 if found["stride"] else 1)
        elif found["space"] == "global" and not found["two"]:
            step = _global(instruction, modifiers, access, is_store)
        elif found["space"] == "buffer" and not found["two"]:
            step = _buffer(instruction, modifiers, access, is_store)
        else:
            raise instruction.unknown("unknown instruction")
    if modifiers:
        raise instruction.unknown("unknown modifier")
    return step


def _offset(modifiers: dict[str, str], name: str = "offset") -> int:
    return int(modifiers.pop(name, "0"), 0)


def _register(instruction: Instruction, text: str) -> int:
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


def _addresses(instruction: Instruction, vector: str, base: str, offset: int) -> Callable[[Wave, Array], Array]:
    """GLOBAL: a 64-bit address of each lane, or a scalar one and 32 bits of each lane."""
    register = _register(instruction, vector)
    if base == "off":
        return lambda wave, lanes: (
            wave.bits[register, lanes].astype(np.int64) + (wave.bits[register + 1, lanes].astype(np.int64) << 32) + offset
        )
    scalar = scalar_source(base, 64)
    return lambda wave, lanes: wave.bits[register, lanes].astype(np.int64) + (scalar(wave) + offset)


def _global(instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool) -> Callable[[Wave], None]:
    first, second, base = instruction.operands
    data, address = (second, first) if is_store else (first, second)
    register = _register(instruction, data)
    where = _addresses(instruction, address, base, _offset(modifiers))

    def load(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        put(wave, register, access, lanes, wave.memory.load(where(wave, lanes), access.size))

    def store(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        wave.memory.store(where(wave, lanes), take(wave, register, access, lanes))

    return store if is_store else load


def _buffer(instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool) -> Callable[[Wave], None]:
    """BUFFER: offsets from the base of a descriptor (V#); those beyond its range read 0 and write nothing."""
    data, address, descriptor, scalar = instruction.operands
    register, first = _register(instruction, data), scalar_register(descriptor)
    if first is None:
        raise instruction.unknown("unknown descriptor")
    v_sharp, soffset, more = first, scalar_source(scalar, 32), _offset(modifiers)
    offsets = _register(instruction, address) if "offen" in modifiers else None
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


def _local(
    instruction: Instruction, modifiers: dict[str, str], access: Access, is_store: bool, two: bool, stride: int
) -> Callable[[Wave], None]:
    """DS: byte addresses of each lane; of two accesses, offsets count elements, or 64 of them."""
    texts = instruction.operands
    address = _register(instruction, texts[0] if is_store else texts[1])
    data = [_register(instruction, text) for text in (texts[1:] if is_store else texts[:1])]
    if two:
        offsets = [_offset(modifiers, name) * stride * access.size for name in ("offset0", "offset1")]
        data = data if is_store else [data[0], data[0] + access.size // 4]
    else:
        offsets = [_offset(modifiers)]
    pairs = list(zip(data, offsets, strict=True))

    def load(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        base = wave.bits[address, lanes].astype(np.int64)
        loaded = [
            wave.local.load(base + offset, access.size, wave.index, wave.signals, wave.waits) for offset in offsets
        ]  # before a result overwrites the address
        for (register, _), bytes_ in zip(pairs, loaded, strict=True):
            put(wave, register, access, lanes, bytes_)

    def store(wave: Wave) -> None:
        lanes = np.flatnonzero(wave.active)
        base = wave.bits[address, lanes].astype(np.int64)
        for register, offset in pairs:
            values = take(wave, register, access, lanes)
            wave.local.store(base + offset, values, wave.index, wave.signals, wave.waits)

    return store if is_store else load


def _atomic(
    instruction: Instruction, modifiers: dict[str, str], cache: dict[str, str], operation: str, size: int
) -> Callable[[Wave], None]:
    """GLOBAL_ATOMIC: of each lane in turn; GLC, SC0 or TH_ATOMIC_RETURN ask for what was there before."""
    returns = "glc" in cache or "sc0" in cache or "RETURN" in cache.get("th", "")
    *result, address, data, base = instruction.operands
    if operation not in ATOMICS or len(result) != int(returns):
        raise instruction.unknown("unknown atomic")
    where = _addresses(instruction, address, base, _offset(modifiers))
    operand = _register(instruction, data)
    target = _register(instruction, result[0]) if result else None
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
