"""Instructions that read other lanes: V_READLANE, V_PERMLANE, DS_BPERMUTE, DS_SWIZZLE and the like, after the guides' pages."""

import re
from collections.abc import Callable

import numpy as np

from amdgcn_cpu.operands import scalar_source, scalar_target, vector_register
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.state import Wave


def compile_lanes(instruction: Instruction) -> Callable[[Wave], None] | None:
    """Returns the function of a wave for an instruction that reads other lanes; None for all other instructions.

    Raises:
        UnknownInstruction: it has a modifier that is not known.
    """
    name = re.sub(r"_e(32|64)$", "", instruction.mnemonic)
    if name not in _INSTRUCTIONS:
        return None
    modifiers = dict(instruction.modifiers)
    step = _INSTRUCTIONS[name](instruction, modifiers)
    if modifiers:
        raise instruction.unknown("unknown modifier")
    return step


def _registers(instruction: Instruction, *texts: str) -> list[int]:
    numbers = [vector_register(text) for text in texts]
    if None in numbers:
        raise instruction.unknown("unknown vector register")
    return [number for number in numbers if number is not None]


def _read_lane(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles V_READLANE_B32 and V_READFIRSTLANE_B32, which reads the first active lane, or lane 0 if none is active."""
    to, origin, *which = instruction.operands
    (register,), write = _registers(instruction, origin), scalar_target(to, 32)
    lane = scalar_source(which[0], 32) if which else lambda wave: int(np.argmax(wave.active))

    def read(wave: Wave) -> None:
        write(wave, int(wave.bits[register, lane(wave) % wave.size]))

    return read


def _write_lane(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles V_WRITELANE_B32, which writes one lane, active or not."""
    to, value, which = instruction.operands
    (register,), read, lane = _registers(instruction, to), scalar_source(value, 32), scalar_source(which, 32)

    def write(wave: Wave) -> None:
        wave.bits[register, lane(wave) % wave.size] = read(wave)

    return write


def _permute_rows(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles V_PERMLANE16_B32 and V_PERMLANEX16_B32.

    Each lane reads a lane of its own row, or of the other row; 4 bits name that lane.
    """
    to, origin, *selectors = instruction.operands
    target, register = _registers(instruction, to, origin)
    low, high = (scalar_source(text, 32) for text in selectors)
    other = 16 if "x16" in instruction.mnemonic else 0
    fetch_inactive, bound_ctrl = (bit == "1" for bit in modifiers.pop("op_sel", "[0,0]").strip("[]").split(","))

    def permute(wave: Wave) -> None:
        lane, select = np.arange(wave.size), low(wave) | high(wave) << 32
        place = np.array([select >> 4 * index & 15 for index in range(16)])
        source = (lane // 16 * 16 ^ other) + place[lane % 16]
        there = np.ones(wave.size, bool) if fetch_inactive else wave.active[source]
        values = np.where(there, wave.bits[register][source], np.uint32(0))
        np.copyto(wave.bits[target], values, where=wave.active if bound_ctrl else wave.active & there)

    return permute


def _swap_rows(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles V_PERMLANE16_SWAP_B32 and V_PERMLANE32_SWAP_B32 (gfx950).

    They swap the odd rows, or the upper half, of one register with the even rows, or the lower half, of another.
    """
    one, other = _registers(instruction, *instruction.operands)
    width = 16 if "lane16" in instruction.mnemonic else 32

    def swap(wave: Wave) -> None:
        if not wave.all_active:
            raise instruction.unknown("a swap between lanes of which some are not active")
        first, second = (wave.bits[register].reshape(-1, 2, width) for register in (one, other))
        kept = first[:, 1].copy()
        first[:, 1] = second[:, 0]
        second[:, 0] = kept

    return swap


def _permute_backward(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles DS_BPERMUTE_B32: each lane reads the lane that its byte address names; an inactive lane reads as 0."""
    target, address, register = _registers(instruction, *instruction.operands)
    offset = int(modifiers.pop("offset", "0"), 0)

    def permute(wave: Wave) -> None:
        origin = (wave.bits[address] + np.uint32(offset)) // 4 % wave.size
        values = np.where(wave.active[origin], wave.bits[register][origin], np.uint32(0))
        np.copyto(wave.bits[target], values, where=wave.active)

    return permute


def _permute_forward(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles DS_PERMUTE_B32: each lane sends its value to the lane that its byte address names.

    If several send to one lane, the highest wins. A lane that gets nothing becomes 0.
    """
    target, address, register = _registers(instruction, *instruction.operands)
    offset = int(modifiers.pop("offset", "0"), 0)

    def permute(wave: Wave) -> None:
        to = (wave.bits[address] + np.uint32(offset)) // 4 % wave.size
        values = np.zeros(wave.size, np.uint32)
        values[to[wave.active]] = wave.bits[register][wave.active]
        np.copyto(wave.bits[target], values, where=wave.active)

    return permute


def _swizzle(instruction: Instruction, modifiers: dict[str, str]) -> Callable[[Wave], None]:
    """Compiles DS_SWIZZLE_B32 with a mask of the lane's five bits (and, or, xor) in each 32 lanes."""
    target, register = _registers(instruction, *instruction.operands)
    text = modifiers.pop("offset", "")
    if match := re.fullmatch(r'swizzle\(BITMASK_PERM,"([01pi]{5})"\)', text):
        keep, one, flip = (int("".join("1" if bit in bits else "0" for bit in match[1]), 2) for bits in ("pi", "1", "i"))
    elif match := re.fullmatch(r"swizzle\(SWAP,(\d+)\)", text):
        keep, one, flip = 31, 0, int(match[1])
    else:
        raise instruction.unknown("unknown swizzle")

    def swizzle(wave: Wave) -> None:
        lane = np.arange(wave.size)
        origin = lane // 32 * 32 + ((lane % 32 & keep | one) ^ flip)
        values = np.where(wave.active[origin], wave.bits[register][origin], np.uint32(0))
        np.copyto(wave.bits[target], values, where=wave.active)

    return swizzle


_INSTRUCTIONS: dict[str, Callable[[Instruction, dict[str, str]], Callable[[Wave], None]]] = {
    "v_readlane_b32": _read_lane,
    "v_readfirstlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_permlane16_b32": _permute_rows,
    "v_permlanex16_b32": _permute_rows,
    "v_permlane16_swap_b32": _swap_rows,
    "v_permlane32_swap_b32": _swap_rows,
    "ds_bpermute_b32": _permute_backward,
    "ds_permute_b32": _permute_forward,
    "ds_swizzle_b32": _swizzle,
}
