"""Opcodes of the scalar unit: SOP1, SOP2, SOPK and SOPC in the guides' chapters on scalar ALU operations.

An entry reads like the manual: the width of the operands, the result as a function of them, and the new SCC. Operands come as
unsigned integers; `signed` makes them signed. Names are those of gfx9; gfx11 and gfx12 renamed some.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from amdgcn_cpu.arithmetic import fma, transcendental, whole
from amdgcn_cpu.arrays import Array

Flag = Callable[..., bool]  # arguments: the result, not yet cut to the width, and the operands


class ScalarOp(NamedTuple):
    """A scalar instruction.

    Args:
        width: bits of the result and of the operands, except for shift counts.
        result: function of the operands.
        scc: SCC afterwards; None leaves it unchanged.
        widths: bits of the operands, if they differ from the result's.
        carries: whether SCC is one more operand.
    """

    width: int
    result: Callable[..., int]
    scc: Flag | None = None
    widths: tuple[int, ...] = ()
    carries: bool = False


def signed(value: int, width: int) -> int:
    """Returns the number that bits encode in two's complement."""
    return value - (1 << width) if value >> (width - 1) & 1 else value


def _nonzero(width: int) -> Flag:
    return lambda result, *operands: result & (1 << width) - 1 != 0


def _beyond(width: int) -> Flag:
    return lambda result, *operands: result >> width != 0  # a carry, or a borrow


def _overflow(sign: int) -> Flag:
    def overflows(result: int, a: int, b: int) -> bool:
        return not -(1 << 31) <= signed(a, 32) + sign * signed(b, 32) < 1 << 31

    return overflows


def float_of(bits: int) -> Array:
    """Returns the float32 with these bits, as an array of one."""
    return np.array([bits], np.uint32).view(np.float32)


def _floats(function: Callable[..., Array]) -> Callable[..., int]:
    return lambda *operands: int(function(*map(float_of, operands)).astype(np.float32).view(np.uint32)[0])


def _field(value: int, where: int, width: int) -> int:
    return value >> (where & (width - 1)) & (1 << (where >> 16 & 127)) - 1


def _signed_field(value: int, where: int, width: int) -> int:
    bits = where >> 16 & 127
    return signed(_field(value, where, width), bits) if bits else 0


def _first_one(value: int) -> int:
    return (value & -value).bit_length() - 1  # -1 where there is none


def _leading_zeros(width: int) -> Callable[[int], int]:
    return lambda value: width - value.bit_length() if value else -1


def _of_width(width: int) -> dict[str, ScalarOp]:
    """Returns the entries that exist for both 32 and 64 bits."""
    b, i, u, nonzero = f"b{width}", f"i{width}", f"u{width}", _nonzero(width)
    shift = (width, 32)
    return {
        f"s_mov_{b}": ScalarOp(width, lambda a: a),
        f"s_cselect_{b}": ScalarOp(width, lambda a, b, scc: a if scc else b, carries=True),
        f"s_not_{b}": ScalarOp(width, lambda a: ~a, nonzero),
        f"s_and_{b}": ScalarOp(width, lambda a, b: a & b, nonzero),
        f"s_or_{b}": ScalarOp(width, lambda a, b: a | b, nonzero),
        f"s_xor_{b}": ScalarOp(width, lambda a, b: a ^ b, nonzero),
        f"s_andn2_{b}": ScalarOp(width, lambda a, b: a & ~b, nonzero),
        f"s_orn2_{b}": ScalarOp(width, lambda a, b: a | ~b, nonzero),
        f"s_nor_{b}": ScalarOp(width, lambda a, b: ~(a | b), nonzero),
        f"s_nand_{b}": ScalarOp(width, lambda a, b: ~(a & b), nonzero),
        f"s_lshl_{b}": ScalarOp(width, lambda a, n: a << (n & (width - 1)), nonzero, shift),
        f"s_lshr_{b}": ScalarOp(width, lambda a, n: a >> (n & (width - 1)), nonzero, shift),
        f"s_ashr_{i}": ScalarOp(width, lambda a, n: signed(a, width) >> (n & (width - 1)), nonzero, shift),
        f"s_bfe_{u}": ScalarOp(width, lambda a, where: _field(a, where, width), nonzero, shift),
        f"s_bfe_{i}": ScalarOp(width, lambda a, where: _signed_field(a, where, width), nonzero, shift),
        f"s_bcnt1_i32_{b}": ScalarOp(32, int.bit_count, _nonzero(32), (width,)),
        f"s_ff1_i32_{b}": ScalarOp(32, _first_one, widths=(width,)),
        f"s_flbit_i32_{b}": ScalarOp(32, _leading_zeros(width), widths=(width,)),
        f"s_brev_{b}": ScalarOp(width, lambda a: int(f"{a:0{width}b}"[::-1], 2)),
    }


SCALAR_OPS: dict[str, ScalarOp] = {
    **_of_width(32),
    **_of_width(64),
    # sums, with SCC as carry, borrow or signed overflow
    "s_add_u32": ScalarOp(32, lambda a, b: a + b, _beyond(32)),
    "s_sub_u32": ScalarOp(32, lambda a, b: a - b, _beyond(32)),
    "s_addc_u32": ScalarOp(32, lambda a, b, scc: a + b + scc, _beyond(32), carries=True),
    "s_subb_u32": ScalarOp(32, lambda a, b, scc: a - b - scc, _beyond(32), carries=True),
    "s_add_i32": ScalarOp(32, lambda a, b: a + b, _overflow(1)),
    "s_sub_i32": ScalarOp(32, lambda a, b: a - b, _overflow(-1)),
    "s_add_nc_u64": ScalarOp(64, lambda a, b: a + b),
    "s_sub_nc_u64": ScalarOp(64, lambda a, b: a - b),
    # products
    "s_mul_i32": ScalarOp(32, lambda a, b: a * b),
    "s_mul_hi_u32": ScalarOp(32, lambda a, b: a * b >> 32),
    "s_mul_hi_i32": ScalarOp(32, lambda a, b: signed(a, 32) * signed(b, 32) >> 32),
    "s_mul_u64": ScalarOp(64, lambda a, b: a * b),
    # minimum and maximum; SCC: the first operand was selected
    "s_min_i32": ScalarOp(32, lambda a, b: min(signed(a, 32), signed(b, 32)), lambda r, a, b: signed(a, 32) < signed(b, 32)),
    "s_max_i32": ScalarOp(32, lambda a, b: max(signed(a, 32), signed(b, 32)), lambda r, a, b: signed(a, 32) >= signed(b, 32)),
    "s_min_u32": ScalarOp(32, min, lambda r, a, b: a < b),
    "s_max_u32": ScalarOp(32, max, lambda r, a, b: a >= b),
    "s_abs_i32": ScalarOp(32, lambda a: abs(signed(a, 32)), _nonzero(32)),
    "s_lshl1_add_u32": ScalarOp(32, lambda a, b: (a << 1) + b, _beyond(32)),
    "s_lshl2_add_u32": ScalarOp(32, lambda a, b: (a << 2) + b, _beyond(32)),
    "s_lshl3_add_u32": ScalarOp(32, lambda a, b: (a << 3) + b, _beyond(32)),
    "s_lshl4_add_u32": ScalarOp(32, lambda a, b: (a << 4) + b, _beyond(32)),
    "s_bitset0_b32": ScalarOp(32, lambda n, a: a & ~(1 << (n & 31))),
    "s_bitset1_b32": ScalarOp(32, lambda n, a: a | 1 << (n & 31)),
    "s_flbit_i32": ScalarOp(32, lambda a: -1 if a in (0, 0xFFFFFFFF) else 32 - (a ^ -(a >> 31) & 0xFFFFFFFF).bit_length()),
    "s_pack_ll_b32_b16": ScalarOp(32, lambda a, b: a & 0xFFFF | b << 16),
    "s_pack_lh_b32_b16": ScalarOp(32, lambda a, b: a & 0xFFFF | b & 0xFFFF0000),
    "s_pack_hh_b32_b16": ScalarOp(32, lambda a, b: a >> 16 | b & 0xFFFF0000),
    "s_sext_i32_i8": ScalarOp(32, lambda a: signed(a & 0xFF, 8)),
    "s_sext_i32_i16": ScalarOp(32, lambda a: signed(a & 0xFFFF, 16)),
    # numbers in SGPRs (gfx11.5 and gfx12)
    "s_add_f32": ScalarOp(32, _floats(lambda a, b: a + b)),
    "s_sub_f32": ScalarOp(32, _floats(lambda a, b: a - b)),
    "s_mul_f32": ScalarOp(32, _floats(lambda a, b: a * b)),
    "s_max_f32": ScalarOp(32, _floats(np.fmax)),
    "s_min_f32": ScalarOp(32, _floats(np.fmin)),
    "s_trunc_f32": ScalarOp(32, _floats(np.trunc)),
    "s_cvt_f32_u32": ScalarOp(32, lambda a: int(np.float32(a).view(np.uint32))),
    "s_cvt_f32_i32": ScalarOp(32, lambda a: int(np.float32(signed(a, 32)).view(np.uint32))),
    "s_cvt_u32_f32": ScalarOp(32, lambda a: int(whole("uint32")(float_of(a))[0])),
    "s_cvt_i32_f32": ScalarOp(32, lambda a: int(whole("int32")(float_of(a))[0])),
    "s_fmaak_f32": ScalarOp(32, _floats(fma)),
    "s_fmamk_f32": ScalarOp(32, _floats(fma)),
    "s_fmac_f32": ScalarOp(32, _floats(fma)),
    "v_s_exp_f32": ScalarOp(32, _floats(transcendental(np.exp2))),
    "v_s_log_f32": ScalarOp(32, _floats(transcendental(np.log2))),
    "v_s_rcp_f32": ScalarOp(32, _floats(transcendental(np.reciprocal))),
    "v_s_rsq_f32": ScalarOp(32, _floats(transcendental(lambda x: 1 / np.sqrt(x)))),
    "v_s_sqrt_f32": ScalarOp(32, _floats(transcendental(np.sqrt))),
}
# Opcodes that also read their result, and opcodes with a signed constant of 16 bits.
ACCUMULATING = {"s_fmac_f32", "s_bitset0_b32", "s_bitset1_b32"}
WITH_CONSTANT = {"s_movk_i32": "s_mov_b32", "s_addk_i32": "s_add_i32", "s_mulk_i32": "s_mul_i32"}
RENAMED = {
    "s_max_num_f32": "s_max_f32",
    "s_min_num_f32": "s_min_f32",
    "s_add_co_u32": "s_add_u32",
    "s_sub_co_u32": "s_sub_u32",
    "s_add_co_ci_u32": "s_addc_u32",
    "s_sub_co_ci_u32": "s_subb_u32",
    "s_add_co_i32": "s_add_i32",
    "s_sub_co_i32": "s_sub_i32",
    "s_addk_co_i32": "s_addk_i32",
    "s_cls_i32": "s_flbit_i32",
    "s_ctz_i32_b32": "s_ff1_i32_b32",
    "s_ctz_i32_b64": "s_ff1_i32_b64",
    "s_clz_i32_u32": "s_flbit_i32_b32",
    "s_clz_i32_u64": "s_flbit_i32_b64",
    "s_and_not1_b32": "s_andn2_b32",
    "s_and_not1_b64": "s_andn2_b64",
    "s_or_not1_b32": "s_orn2_b32",
    "s_or_not1_b64": "s_orn2_b64",
}

# S_CMP_<relation>_<type>: SCC = a <relation> b.
RELATIONS: dict[str, Callable[..., bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "ne": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
    "nle": lambda a, b: not a <= b,
    "ngt": lambda a, b: not a > b,
    "nge": lambda a, b: not a >= b,
    "o": lambda a, b: a == a and b == b,  # neither is nan
    "u": lambda a, b: a != a or b != b,
}

# S_<logic>_SAVEEXEC: the old EXEC is kept, EXEC = logic(operand, EXEC), SCC: some lane is active.
SAVE_EXEC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, exec: a & exec,
    "or": lambda a, exec: a | exec,
    "xor": lambda a, exec: a ^ exec,
    "andn2": lambda a, exec: a & ~exec,
    "and_not1": lambda a, exec: a & ~exec,
    "orn2": lambda a, exec: a | ~exec,
    "or_not1": lambda a, exec: a | ~exec,
}
