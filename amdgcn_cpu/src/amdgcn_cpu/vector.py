"""Vector instructions as functions of a wave, from the entries of vector_table.py, with SDWA, DPP and op_sel.

An operation computes all of its results first and writes them afterwards, so that both halves of an instruction pair (VOPD)
read the old values. Inactive lanes keep their values; their bits in a mask become 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amdgcn_cpu.arrays import Array, mask_of
from amdgcn_cpu.dpp import Dpp, dpp_of
from amdgcn_cpu.integers import bitop3
from amdgcn_cpu.operands import Lanes, part_of_register, scalar_register, source, target
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.state import Wave
from amdgcn_cpu.vector_table import RENAMED, VECTOR_OPS, VectorOp

Write = Callable[[Wave, Any, Array], None]


class Operation(NamedTuple):
    """Two steps of a vector instruction: compute all results, then write them."""

    compute: Callable[[Wave], Any]
    commit: Callable[[Wave, Any], None]


def base_name(mnemonic: str) -> tuple[str, str]:
    """Returns an opcode's name in the table and its encoding: e32, e64, dpp, sdwa, or none."""
    name = mnemonic.replace("v_dual_", "v_")
    encoding = ""
    for ending in ("_e64_dpp", "_e32", "_e64", "_dpp", "_sdwa"):
        if name.endswith(ending):
            name, encoding = name.removesuffix(ending), ending.rsplit("_", 1)[1]
            break
    return RENAMED.get(name, name), encoding


def compile_vector(instruction: Instruction, arch: str, wave_size: int) -> Operation:
    """Returns the two steps of an instruction in the table.

    Raises:
        UnknownInstruction: the instruction or a modifier of it is not known.
    """
    name, encoding = base_name(instruction.mnemonic)
    modifiers = dict(instruction.modifiers)
    if "clamp" in modifiers and f"{name} clamp" in VECTOR_OPS:
        name = f"{name} clamp"
        del modifiers["clamp"]
    writes_exec = name.startswith("v_cmpx_")
    if name in ("v_bitop3_b32", "v_bitop3_b16"):
        kind = name[-3:]
        entry = VectorOp((kind,), (kind,) * 3, bitop3(int(modifiers.pop("bitop3", "0"), 0)))
    else:
        entry = VECTOR_OPS.get(name.replace("v_cmpx_", "v_cmp_"), VectorOp((), (), np.array))
    if not entry.results:
        raise instruction.unknown("unknown instruction")
    texts = list(instruction.operands)
    if writes_exec and arch.startswith("gfx9"):
        raise instruction.unknown("V_CMPX of gfx9")
    writes = _results(entry, texts, modifiers, arch, "exec" if writes_exec else None)
    dpp = dpp_of(modifiers, arch, wave_size) if encoding == "dpp" else None
    if encoding == "dpp" and dpp is None:
        raise instruction.unknown("unknown modifier")
    reads = _operands(instruction, entry, texts, modifiers, dpp)
    double = _output_factor(modifiers)
    if modifiers or texts:
        raise instruction.unknown("unknown modifier or operand")
    function, may_overflow = entry.function, entry.results == ("f16",)

    def compute(wave: Wave) -> Any:
        operands = [read(wave) for read in reads]
        result = function(*operands)
        if may_overflow and wave.clamps_halves:
            result = _clamped(result, operands)
        return result if double is None else result * double

    def commit(wave: Wave, result: Any) -> None:
        lanes = wave.active if dpp is None else dpp.written(wave)
        if len(writes) == 1:
            writes[0](wave, result, lanes)
        else:
            for write, value in zip(writes, result, strict=True):
                write(wave, value, lanes)

    return Operation(compute, commit)


def _clamped(result: Array, operands: list[Array]) -> Array:
    """Returns float16 numbers of which those that overflow are the largest one (FP16_OVFL of the register MODE)."""
    finite = np.logical_and.reduce([np.isfinite(operand) for operand in operands])
    return np.where(finite, np.clip(result, -65504, 65504), result).astype(np.float16)


def _results(entry: VectorOp, texts: list[str], modifiers: dict[str, str], arch: str, implicit: str | None) -> list[Write]:
    """Takes the results from the front of the operands, with SDWA's selection and the last bit of op_sel."""
    part, rest = modifiers.pop("dst_sel", "DWORD"), modifiers.pop("dst_unused", "UNUSED_PAD")
    selected = modifiers.get("op_sel", "[]").strip("[]").split(",")
    high = len(selected) > len(entry.operands) and selected[-1] == "1"
    writes: list[Write] = []
    for kind in entry.results:
        if kind == "mask":
            writes.append(_mask_result(implicit or texts.pop(0)))
        elif kind[0] == "+":
            writes.append(target(texts[len(writes)], kind[1:], True))
        elif part != "DWORD":
            writes.append(part_of_register(texts.pop(0), part, rest))
        else:
            writes.append(target(texts.pop(0), kind, not arch.startswith("gfx9"), high))
    return writes


def _mask_result(text: str) -> Write:
    register = scalar_register(text)

    def write(wave: Wave, values: Array, lanes: Array) -> None:
        if register is not None:  # null
            wave.set_mask(register, mask_of(values & lanes))

    return write


def _operands(
    instruction: Instruction, entry: VectorOp, texts: list[str], modifiers: dict[str, str], dpp: Dpp | None
) -> list[Lanes]:
    selected = [bit == "1" for bit in modifiers.pop("op_sel", "[]").strip("[]").split(",") if bit]
    if any(selected) and not any(kind.endswith("16") for kind in entry.operands):
        raise instruction.unknown("halves of operands that are no halves")
    reads: list[Lanes] = []
    for index, kind in enumerate(entry.operands):
        if kind == "lane":
            reads.append(lambda wave: np.arange(wave.size))
        elif kind in ("mask", "vcc"):
            reads.append(_mask_operand(texts.pop(0) if kind == "mask" and texts else "vcc"))
        elif kind[0] == "+" and kind not in entry.results:
            reads.append(source(instruction.operands[0], kind[1:]))
        else:
            selection = modifiers.pop(f"src{index}_sel", "DWORD")
            read = source(texts.pop(0), kind.lstrip("+"), index < len(selected) and selected[index], selection)
            reads.append(dpp.of(read) if dpp and index == 0 else read)
    return reads


def _mask_operand(text: str) -> Lanes:
    register = scalar_register(text)
    if register is None:
        if text not in ("0", "-1"):
            raise ValueError(text)
        bits = np.array([text == "-1"])
        return lambda wave: bits
    known = register
    return lambda wave: wave.lanes(known)


def _output_factor(modifiers: dict[str, str]) -> np.float32 | None:
    """Returns the factor that OMOD multiplies the result by."""
    if "mul" in modifiers:
        return np.float32(int(modifiers.pop("mul")))
    if "div" in modifiers:
        return np.float32(1 / int(modifiers.pop("div")))
    return None


def compile_vector_or_pair(instruction: Instruction, compiled: Callable[[Instruction], Operation]) -> Callable[[Wave], None]:
    """Returns the function of a wave that a vector instruction, or a pair of them, performs."""
    first = compiled(instruction)
    if instruction.second is None:

        def single(wave: Wave) -> None:
            first.commit(wave, first.compute(wave))

        return single
    second = compiled(instruction.second)

    def both(wave: Wave) -> None:
        one, other = first.compute(wave), np.array(second.compute(wave))  # a copy: the first one may write the viewed register
        first.commit(wave, one)
        second.commit(wave, other)

    return both
