"""Packed float32 (VOP3P: V_PK_*) and mixed precision (V_FMA_MIX), after "Packed Math" in the CDNA3 guide and RDNA's VOP3P.

For each operand, `op_sel` and `op_sel_hi` name the half that the low and the high result read. For V_FMA_MIX, `op_sel_hi` says
that an operand is float16, and `op_sel` names its half of the register.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from amdgcn_cpu.arithmetic import fma
from amdgcn_cpu.arrays import Array
from amdgcn_cpu.operands import Lanes, constant, scalar_register, source, target, vector_register
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.state import Wave
from amdgcn_cpu.vector import Operation

_PACKED: dict[str, Callable[..., Array]] = {
    "v_pk_add_f32": lambda a, b: a + b,
    "v_pk_mul_f32": lambda a, b: a * b,
    "v_pk_fma_f32": fma,
}
_MIXED = {"v_fma_mix_f32": None, "v_fma_mixlo_f16": False, "v_fma_mixhi_f16": True}  # half of the register for the result
NAMES = {*_PACKED, *_MIXED, "v_pk_mov_b32"}


def compile_packed(instruction: Instruction) -> Operation:
    """Returns the two steps of an instruction with the names above.

    Raises:
        UnknownInstruction: it has a modifier or an operand that is not known.
    """
    name, texts = instruction.mnemonic, instruction.operands[1:]
    left = dict(instruction.modifiers)

    def bits(modifier: str, default: int) -> list[bool]:
        if modifier not in left:
            return [bool(default)] * len(texts)
        return [bit == "1" for bit in left.pop(modifier).strip("[]").split(",")]

    if name in _MIXED:
        halves, narrow = bits("op_sel", 0), bits("op_sel_hi", 0)
        operation = _mixed(instruction, texts, halves, narrow, _MIXED[name])
    elif name == "v_pk_mov_b32":  # each result reads one operand; op_sel names the halves of both
        halves = bits("op_sel", 0)
        reads = [_half(instruction, text, half) for text, half in zip(texts, halves, strict=True)]
        operation = _pair(instruction, lambda wave: (reads[0](wave).copy(), reads[1](wave).copy()))
    else:
        low, high = bits("op_sel", 0), bits("op_sel_hi", 1)
        minus = bits("neg_lo", 0), bits("neg_hi", 0)
        sides = [
            [_negated(_half(instruction, text, half), negate) for text, half, negate in zip(texts, side, signs, strict=True)]
            for side, signs in ((low, minus[0]), (high, minus[1]))
        ]
        function = _PACKED[name]
        operation = _pair(instruction, lambda wave: tuple(function(*[read(wave) for read in side]) for side in sides))
    if left:
        raise instruction.unknown("unknown modifier")
    return operation


def _half(instruction: Instruction, text: str, high: bool) -> Lanes:
    """Reads one of a pair of registers as float32; a constant has one half only."""
    vector, scalar = vector_register(text), scalar_register(text)
    if vector is not None:
        return source(f"v{vector + high}" if text[0] == "v" else f"a{vector - 256 + high}", "f32")
    if scalar is not None and text[0] == "s":
        return source(f"s{scalar + high}", "f32")
    if constant(text, "f32") is None or high:
        raise instruction.unknown("half of an operand")
    return source(text, "f32")


def _negated(read: Lanes, negate: bool) -> Lanes:
    return (lambda wave: -read(wave)) if negate else read


def _pair(instruction: Instruction, compute: Callable[[Wave], Any]) -> Operation:
    register = vector_register(instruction.operands[0])
    if register is None:
        raise instruction.unknown("unknown result")
    first = register

    def commit(wave: Wave, results: tuple[Array, Array]) -> None:
        np.copyto(wave.floats[first], results[0], where=wave.active)
        np.copyto(wave.floats[first + 1], results[1], where=wave.active)

    return Operation(compute, commit)


def _mixed(
    instruction: Instruction, texts: tuple[str, ...], halves: list[bool], narrow: list[bool], half: bool | None
) -> Operation:
    reads = [
        source(text, "f16" if is_narrow else "f32", high and is_narrow)
        for text, high, is_narrow in zip(texts, halves, narrow, strict=True)
    ]
    write = target(instruction.operands[0], "f32" if half is None else "f16", True, bool(half))

    def compute(wave: Wave) -> Array:
        result = fma(*[read(wave).astype(np.float32) for read in reads])
        return result if half is None else result.astype(np.float16)

    return Operation(compute, lambda wave, result: write(wave, result, wave.active))
