"""Packed numbers (VOP3P: V_PK_*) and mixed precision (V_FMA_MIX), after "Packed Math" in the CDNA3 guide and RDNA's VOP3P.

For each operand, `op_sel` and `op_sel_hi` name the half that the low and high result read. For V_FMA_MIX, `op_sel_hi` selects
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
from amdgcn_cpu.vector_table import RENAMED, VECTOR_OPS, VectorOp

_PACKED: dict[str, Callable[..., Array]] = {
    "v_pk_add_f32": lambda a, b: a + b,
    "v_pk_mul_f32": lambda a, b: a * b,
    "v_pk_fma_f32": fma,
}
_SIDES = ("", 0, "lo"), ("_hi", 1, "hi")  # modifiers of the halves: the ending of op_sel, its default, and of neg
_MIXED = {"v_fma_mix_f32": None, "v_fma_mixlo_f16": False, "v_fma_mixhi_f16": True}  # half of the register for the result


def is_packed(mnemonic: str) -> bool:
    """True if the functions below know an instruction."""
    return mnemonic in {*_PACKED, *_MIXED, "v_pk_mov_b32"} or _of_halves(mnemonic) is not None


def _of_halves(mnemonic: str) -> VectorOp | None:
    """Returns the operation on 16 bits that a packed one performs on both halves of its registers."""
    name = mnemonic.replace("v_pk_", "v_")
    entry = VECTOR_OPS.get(RENAMED.get(name, name))
    return entry if name != mnemonic and entry and all(kind.endswith("16") for kind in entry.operands) else None


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
    elif entry := _of_halves(name):
        sides = [_side(entry, texts, bits(f"op_sel{end}", default), bits(f"neg_{part}", 0)) for end, default, part in _SIDES]
        operation = _both_halves(instruction, entry, sides)
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


def _side(entry: VectorOp, texts: tuple[str, ...], halves: list[bool], minus: list[bool]) -> list[Lanes]:
    """Returns the functions that read the halves of all operands for one half of the result."""
    reads = []
    for text, kind, high, negate in zip(texts, entry.operands, halves, minus, strict=True):
        read = source(text, kind, high)
        if high and constant(text, "b32") is not None:  # of a number, the low half has it, and of an integer 32 bits count
            upper = constant(text, "b32") if "." not in text else 0
            read = source(hex((upper or 0) >> 16), kind)
        reads.append(_negated(read, negate))
    return reads


def _both_halves(instruction: Instruction, entry: VectorOp, sides: list[list[Lanes]]) -> Operation:
    write = target(instruction.operands[0], "b32", True)

    def compute(wave: Wave) -> Array:
        low, high = (entry.function(*[read(wave) for read in side]).view(np.uint16).astype(np.uint32) for side in sides)
        return low | high << np.uint32(16)

    return Operation(compute, lambda wave, result: write(wave, result, wave.active))


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
