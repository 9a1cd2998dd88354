"""Products of matrices: MFMA of gfx9 and WMMA of gfx11 and gfx12, after "Matrix Arithmetic Instructions" in the guides.

A wave holds A (rows x depth), B (depth x columns) and C, D (rows x columns), of one block or several. Products are added in
float64 and rounded once, where hardware rounds more often, or in integers.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.operands import constant, vector_register
from amdgcn_cpu.parsing import Instruction
from amdgcn_cpu.state import Wave

_NAME = re.compile(
    r"v_(?P<unit>mfma|wmma)_(?P<result>f32|i32|f64|f16|bf16)_(?P<rows>\d+)x(?P<columns>\d+)x(?P<depth>\d+)"
    r"(?:_\d+b)?_?(?P<type>f16|bf16|f32|xf32|f64|i8|iu8|(?:fp8|bf8)_(?:fp8|bf8))(?:_1k)?"
)
_INTEGERS = {("iu8", "0"): "u8", ("iu8", "1"): "i8"}  # by the type in a name, and whether its operand is signed
_SIZES = {"f64": 8, "f32": 4, "xf32": 4, "f16": 2, "bf16": 2, "i8": 1, "iu8": 1}


class Shape(NamedTuple):
    """The sizes of a product, and where its elements lie.

    Args:
        depth_of: the depth of each element [lanes, elements] of A and B; their row or column is the lane modulo `rows`.
        block_of: the block of each lane's elements of A and B.
        place: the block, row and column of each element [3, lanes, elements] of C and D.
    """

    depth_of: Array
    block_of: Array
    place: Array


def compile_matrices(instruction: Instruction, arch: str, wave_size: int) -> Callable[[Wave], None] | None:
    """Returns the function of a wave that a product performs; None for all other instructions.

    Raises:
        UnknownInstruction: it has a modifier or a type that is not known.
    """
    match = _NAME.fullmatch(re.sub(r"_e64$", "", instruction.mnemonic))
    if not match:
        return None
    rows, columns, depth = (int(match[name]) for name in ("rows", "columns", "depth"))
    kinds = match["type"].split("_") if "8_" in match["type"] else [match["type"]] * 2
    modifiers = dict(instruction.modifiers)
    signs = modifiers.pop("neg_lo", "[0,0,0]").strip("[]").split(",") if kinds[0] == "iu8" else "11"
    if modifiers or match["result"] in ("f16", "bf16"):
        raise instruction.unknown("unknown modifier or result")
    kinds = [_INTEGERS.get((kind, sign), kind) for kind, sign in zip(kinds, signs, strict=False)]
    decoded = [_decoder(kind, arch) for kind in kinds]
    result, *sources, added = instruction.operands
    registers = [_registers(instruction, text) for text in (result, *sources)]
    size = _SIZES.get(match["type"], 1)
    count = len(registers[1]) * 4 // size
    shape = _mfma(rows, columns, depth, count, match["result"]) if match["unit"] == "mfma" else _wmma(count, arch)
    blocks = int(shape.block_of.max()) + 1
    result_kind = np.dtype({"f32": "f4", "f64": "f8", "i32": "i4"}[match["result"]])
    wide = np.int64 if match["result"] == "i32" else np.float64
    start = _start(instruction, added, result_kind)
    lane = np.arange(wave_size)

    def operand(wave: Wave, which: int, extent: int) -> Array:
        whole = np.zeros((blocks, extent, depth), wide)
        values = decoded[which](np.ascontiguousarray(wave.bits[registers[1 + which]].T))
        whole[shape.block_of[:, None], (lane % extent)[:, None], shape.depth_of] = values
        return whole

    def compute(wave: Wave) -> None:
        a, b = operand(wave, 0, rows), operand(wave, 1, columns)
        product = (a @ b.transpose(0, 2, 1))[tuple(shape.place)]
        total = (product + start(wave)).astype(result_kind)
        wave.bits[registers[0]] = np.ascontiguousarray(total).view(np.uint32).reshape(wave_size, -1).T

    return compute


def _registers(instruction: Instruction, text: str) -> range:
    first = vector_register(text)
    if first is None:
        raise instruction.unknown("unknown matrix")
    ends = re.findall(r"\d+", text)
    return range(first, first + int(ends[-1]) - int(ends[0]) + 1)


def _start(instruction: Instruction, text: str, kind: "np.dtype[np.generic]") -> Callable[[Wave], Array]:
    """Returns the function that reads C: registers, or one number for all elements."""
    bits = constant(text, f"b{8 * kind.itemsize}")
    if bits is not None:
        fixed = np.frombuffer(bits.to_bytes(kind.itemsize, "little"), kind)
        return lambda wave: fixed
    registers = _registers(instruction, text)
    return lambda wave: np.ascontiguousarray(wave.bits[registers].T).view(kind)


def _mfma(rows: int, columns: int, depth: int, count: int, result: str) -> Shape:
    lane = np.arange(64)
    groups = depth // count  # of lanes that share a row, each with a part of the depth
    depth_of = (lane // rows % groups * count)[:, None] + np.arange(count)
    block_of = lane // rows // groups
    blocks = 64 // rows // groups
    number = np.arange(rows * columns * blocks // 64)
    if rows == 4:
        block, row = (lane // 4)[:, None] + 0 * number, number + 0 * lane[:, None]
    else:
        of_block = rows * columns // 64  # elements of a lane
        block, inside = number // of_block + 0 * lane[:, None], number % of_block
        high = (lane // columns)[:, None]
        row = inside * 4 + high if result == "f64" else inside // 4 * (256 // columns) + 4 * high + inside % 4
    return Shape(depth_of, block_of, np.array([block, row, (lane % columns)[:, None] + 0 * number]))


def _wmma(count: int, arch: str) -> Shape:
    lane, number = np.arange(32), np.arange(8)
    high = (lane // 16)[:, None]
    apart = arch.startswith("gfx12")  # lanes 16 to 31 have the other half of the depth; on gfx11 the same elements
    row = number + 8 * high if apart else 2 * number + high
    depth_of = np.arange(count) + (count * high if apart else 0 * high)
    return Shape(depth_of, 0 * lane, np.array([0 * row, row, (lane % 16)[:, None] + 0 * number]))


def _decoder(kind: str, arch: str) -> Callable[[Array], Array]:
    """Returns the function that reads registers [lanes, registers] as numbers [lanes, elements]."""
    if kind == "bf16":
        return lambda words: (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind in ("fp8", "bf8"):
        table = _eight_bits(kind, arch in ("gfx942",))
        return lambda words: table[words.view(np.uint8)]
    view = {"f64": "f8", "f32": "f4", "xf32": "f4", "f16": "f2", "i8": "i1", "u8": "u1"}[kind]
    return lambda words: words.view(view).astype(np.int64 if kind in ("i8", "u8") else np.float64)


def _eight_bits(kind: str, without_zero: bool) -> Array:
    """Returns the numbers that bytes encode: e4m3 or e5m2, of OCP, or with one zero and a larger bias (FNUZ)."""
    mantissa, bias = (3, 7) if kind == "fp8" else (2, 15)
    if without_zero:
        bias += 1
    byte = np.arange(256)
    exponent, fraction = byte >> mantissa & (1 << 7 - mantissa) - 1, byte & (1 << mantissa) - 1
    power = np.maximum(exponent, 1) - bias
    value = np.ldexp(fraction / (1 << mantissa) + np.minimum(exponent, 1), power) * np.where(byte & 128, -1.0, 1.0)
    if without_zero:
        return np.where(byte == 128, np.nan, value)
    if kind == "fp8":
        return np.where(byte & 127 == 127, np.nan, value)
    return np.where(byte & 127 > 124, np.nan, np.where(byte & 127 == 124, np.copysign(np.inf, value), value))
