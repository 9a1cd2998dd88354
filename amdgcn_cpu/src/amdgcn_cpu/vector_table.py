"""Opcodes of the vector unit: VOP1, VOP2, VOP3 and VOPC in the guides' chapters on vector ALU operations.

An entry reads like the manual: `"f32 = f32, f32"` are the kinds of the result and of the operands; a function of arrays of
lanes follows. There are four more kinds than in operands.py: `mask` is a bit of each lane in VCC or an SGPR, `vcc` is VCC
without an operand for it, `lane` is the number of the lane, and `+f32` is the result's own register, which is also read. Names
are those of gfx9; gfx10 to gfx12 renamed some.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from amdgcn_cpu import arithmetic, division, integers
from amdgcn_cpu.arithmetic import transcendental
from amdgcn_cpu.arrays import Array


class VectorOp(NamedTuple):
    """A vector instruction: kinds of its results and operands, and a function that returns its results."""

    results: tuple[str, ...]
    operands: tuple[str, ...]
    function: Callable[..., Any]


def op(form: str, function: Callable[..., Any]) -> VectorOp:
    """Returns the entry for a form such as `f32 = f32, f32`."""
    results, operands = ([kind.strip() for kind in side.split(",")] for side in form.split("="))
    return VectorOp(tuple(results), tuple(operands), function)


_FLOATS: dict[str, tuple[str, Callable[..., Any]]] = {  # float64, float32 and float16
    "add": ("f = f, f", lambda a, b: a + b),
    "sub": ("f = f, f", lambda a, b: a - b),
    "subrev": ("f = f, f", lambda a, b: b - a),
    "mul": ("f = f, f", lambda a, b: a * b),
    "max": ("f = f, f", np.fmax),  # the number, if the other operand is nan
    "min": ("f = f, f", np.fmin),
    "max3": ("f = f, f, f", lambda a, b, c: np.fmax(np.fmax(a, b), c)),
    "min3": ("f = f, f, f", lambda a, b, c: np.fmin(np.fmin(a, b), c)),
    "minmax": ("f = f, f, f", lambda a, b, c: np.fmax(np.fmin(a, b), c)),
    "maxmin": ("f = f, f, f", lambda a, b, c: np.fmin(np.fmax(a, b), c)),
    "maximum": ("f = f, f", np.maximum),  # nan, if an operand is nan (gfx12)
    "minimum": ("f = f, f", np.minimum),
    "maximum3": ("f = f, f, f", lambda a, b, c: np.maximum(np.maximum(a, b), c)),  # gfx950
    "minimum3": ("f = f, f, f", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "maximumminimum": ("f = f, f, f", lambda a, b, c: np.minimum(np.maximum(a, b), c)),
    "minimummaximum": ("f = f, f, f", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "med3": ("f = f, f, f", arithmetic.median),
    "fract": ("f = f", lambda a: np.fmin(a - np.floor(a), np.nextafter(a.dtype.type(1), a.dtype.type(0)))),
    "frexp_mant": ("f = f", arithmetic.mantissa),
    "ldexp": ("f = f, i", arithmetic.scale_by_power),
    "cmp_class": ("mask = f, u", arithmetic.is_class),
    "fma": ("f = f, f, f", arithmetic.fused),
    "fmac": ("f = f, f, +f", arithmetic.fused),
    "div_fixup": ("f = f, f, f", division.fixup),
    "div_scale": ("f, mask = f, f, f", division.scale),
    "div_fmas": ("f = f, f, f, vcc", division.fmas),
    "rndne": ("f = f", np.rint),
    "floor": ("f = f", np.floor),
    "trunc": ("f = f", np.trunc),
    "ceil": ("f = f", np.ceil),
}
_WHOLE: dict[str, tuple[str, Callable[..., Array]]] = {  # signed and unsigned integers of 32 and 16 bits
    "max": ("n = n, n", np.maximum),
    "min": ("n = n, n", np.minimum),
    "max3": ("n = n, n, n", lambda a, b, c: np.maximum(np.maximum(a, b), c)),
    "min3": ("n = n, n, n", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
    "med3": ("n = n, n, n", integers.median),
    "minmax": ("n = n, n, n", lambda a, b, c: np.maximum(np.minimum(a, b), c)),
    "maxmin": ("n = n, n, n", lambda a, b, c: np.minimum(np.maximum(a, b), c)),
}
_SHORT: dict[str, tuple[str, Callable[..., Array]]] = {  # sums and products of 16 bits
    "add": ("n = n, n", np.add),
    "sub": ("n = n, n", np.subtract),
    "subrev": ("n = n, n", lambda a, b: b - a),
    "mul_lo": ("n = n, n", np.multiply),
    "mad": ("n = n, n, n", lambda a, b, c: a * b + c),
}
_RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "f": lambda a, b: np.zeros(np.broadcast(a, b).shape, bool),
    "t": lambda a, b: np.ones(np.broadcast(a, b).shape, bool),
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "ne": np.not_equal,
    "neq": np.not_equal,  # true for nan, like all relations that begin with n
    "lg": lambda a, b: (a < b) | (a > b),
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "nlt": lambda a, b: ~(a < b),
}  # fmt: skip


def _typed(form: str, kind: str) -> str:
    """Returns a form of `f` for a type; the integer beside it has 32 bits, or 16 beside float16."""
    width = "16" if kind == "f16" else "32"
    return re.sub(r"\b[iu]\b", lambda letter: letter[0] + width, re.sub(r"\bf\b", kind, form))


_LOGIC = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_COUNT = {64: "b32", 32: "b32", 16: "b16"}  # kinds of a shift's count
_CONVERTED = {  # what a type is converted from
    "f64": ("i32", "u32", "f32"), "f32": ("i32", "u32", "f16", "f64"), "f16": ("u16", "i16", "f32"),
    "i32": ("f32", "f64", "i16"), "u32": ("f32", "f64", "u16"), "i16": ("f16",), "u16": ("f16",),
}  # fmt: skip
_ONLY_FLOATS = {"neq", "lg", "o", "u", "nge", "nlg", "ngt", "nle", "nlt"}

VECTOR_OPS: dict[str, VectorOp] = {
    **{f"v_{n}_{k}": op(_typed(form, k), f) for k in ("f64", "f32", "f16") for n, (form, f) in _FLOATS.items()},
    **{f"v_{n}_{k}": op(form.replace("n", k), f) for k in ("i16", "u16") for n, (form, f) in _SHORT.items()},
    **{f"v_{n}_{k}": op(form.replace("n", k), f) for k in ("i32", "u32", "i16", "u16") for n, (form, f) in _WHOLE.items()},
    **{
        f"v_cmp_{relation}_{kind}": op(f"mask = {kind}, {kind}", function)
        for relation, function in _RELATIONS.items()
        for kind in ("f16", "f32", "f64", "i16", "i32", "i64", "u16", "u32", "u64")
        if kind[0] == "f" or relation not in _ONLY_FLOATS
    },
    # one multiply-add, rounded once; `mad` rounds twice
    **{f"v_{n}_{k}": op(f"{k} = {k}, {k}, {k}", arithmetic.fused) for k in ("f32", "f16") for n in ("fmaak", "fmamk")},
    **{f"v_{n}_f32": op("f32 = f32, f32, f32", arithmetic.mac) for n in ("mad", "madak", "madmk")},
    "v_mac_f32": op("f32 = f32, f32, +f32", arithmetic.mac),
    "v_dot2_f32_f16": op("f32 = b32, b32, f32", arithmetic.dot2),
    "v_dot2acc_f32_f16": op("f32 = b32, b32, +f32", arithmetic.dot2),
    "v_dot2c_f32_f16": op("f32 = b32, b32, +f32", arithmetic.dot2),
    # transcendental functions; `iflag` raises integer exceptions only
    "v_exp_f32": op("f32 = f32", transcendental(np.exp2)),
    "v_log_f32": op("f32 = f32", transcendental(np.log2)),
    "v_rcp_f32": op("f32 = f32", transcendental(np.reciprocal)),
    "v_rcp_iflag_f32": op("f32 = f32", transcendental(np.reciprocal)),
    "v_rsq_f32": op("f32 = f32", transcendental(lambda x: 1 / np.sqrt(x))),
    "v_sqrt_f32": op("f32 = f32", transcendental(np.sqrt)),
    "v_sin_f32": op("f32 = f32", transcendental(lambda x: np.sin(2 * np.pi * x))),
    "v_cos_f32": op("f32 = f32", transcendental(lambda x: np.cos(2 * np.pi * x))),
    **{f"v_{name}_f16": op("f16 = f16", arithmetic.half(function)) for name, function in arithmetic.FUNCTIONS.items()},
    # a division's steps, and scaling by powers of two
    "v_rcp_f64": op("f64 = f64", arithmetic.half_of_digits(np.reciprocal)),
    "v_rsq_f64": op("f64 = f64", arithmetic.half_of_digits(lambda x: 1 / np.sqrt(x))),
    "v_sqrt_f64": op("f64 = f64", arithmetic.half_of_digits(np.sqrt)),
    "v_trig_preop_f64": op("f64 = f64, u32", arithmetic.part_of_two_over_pi),
    "v_frexp_exp_i32_f64": op("i32 = f64", arithmetic.exponent),
    "v_frexp_exp_i32_f32": op("i32 = f32", arithmetic.exponent),
    "v_frexp_exp_i16_f16": op("i16 = f16", lambda a: arithmetic.exponent(a).astype(np.int16)),
    # moves and choices
    **{f"v_{n}_b32": op("b32 = b32", lambda a: a) for n in ("mov", "accvgpr_read", "accvgpr_write", "accvgpr_mov")},
    **{f"v_mov_{k}": op(f"{k} = {k}", lambda a: a) for k in ("b16", "b64")},
    **{f"v_cndmask_{k}": op(f"{k} = {k}, {k}, mask", lambda a, b, chosen: np.where(chosen, b, a)) for k in ("b32", "b16")},
    "v_swap_b32": op("+b32, +b32 = +b32, +b32", lambda a, b: (b.copy(), a.copy())),
    # bits
    **{f"v_{n}_{k}": op(f"{k} = {k}, {k}", f) for k in ("b32", "b16") for n, f in _LOGIC.items()},
    **{f"v_not_{k}": op(f"{k} = {k}", np.invert) for k in ("b32", "b16")},
    "v_xnor_b32": op("b32 = b32, b32", lambda a, b: ~(a ^ b)),
    "v_and_or_b32": op("b32 = b32, b32, b32", lambda a, b, c: a & b | c),
    "v_or3_b32": op("b32 = b32, b32, b32", lambda a, b, c: a | b | c),
    "v_xor3_b32": op("b32 = b32, b32, b32", lambda a, b, c: a ^ b ^ c),
    "v_xad_u32": op("u32 = u32, u32, u32", lambda a, b, c: (a ^ b) + c),
    "v_bfi_b32": op("b32 = b32, b32, b32", lambda a, b, c: a & b | ~a & c),
    "v_bfe_u32": op("u32 = u32, u32, u32", integers.field),
    "v_bfe_i32": op("i32 = u32, u32, u32", integers.signed_field),
    "v_mbcnt_lo_u32_b32": op("u32 = u32, u32, lane", integers.ones_of_lanes_below(0)),
    "v_mbcnt_hi_u32_b32": op("u32 = u32, u32, lane", integers.ones_of_lanes_below(32)),
    "v_bcnt_u32_b32": op("u32 = u32, u32", lambda a, b: integers.count_ones(a) + b),
    "v_ffbh_u32": op("u32 = u32", integers.first_one(True)),
    "v_ffbh_i32": op("u32 = u32", integers.first_one(True, signed=True)),
    "v_ffbl_b32": op("u32 = u32", integers.first_one(False)),
    "v_bfm_b32": op(
        "b32 = b32, b32", lambda n, at: (np.uint32(1) << (n & np.uint32(31))) - np.uint32(1) << (at & np.uint32(31))
    ),
    "v_bfrev_b32": op("b32 = b32", integers.reverse_bits),
    "v_alignbit_b32": op("b32 = b32, b32, b32", integers.align(1)),
    "v_alignbyte_b32": op("b32 = b32, b32, b32", integers.align(8)),
    "v_perm_b32": op("b32 = b32, b32, b32", integers.permute_bytes),
    # shifts; `rev` takes the count first
    **{f"v_lshlrev_b{n}": op(f"b{n} = {_COUNT[n]}, b{n}", lambda n, a: a << integers.shift(n, a)) for n in _COUNT},
    **{f"v_lshrrev_b{n}": op(f"b{n} = {_COUNT[n]}, b{n}", lambda n, a: a >> integers.shift(n, a)) for n in _COUNT},
    **{f"v_ashrrev_i{n}": op(f"i{n} = {_COUNT[n]}, i{n}", lambda n, a: a >> integers.shift(n, a)) for n in _COUNT},
    "v_lshl_add_u32": op("u32 = u32, u32, u32", lambda a, n, b: (a << integers.shift(n, a)) + b),
    "v_lshl_or_b32": op("b32 = b32, b32, b32", lambda a, n, b: a << integers.shift(n, a) | b),
    "v_add_lshl_u32": op("u32 = u32, u32, u32", lambda a, b, n: a + b << integers.shift(n, a)),
    "v_lshl_add_u64": op("u64 = u64, u32, u64", lambda a, n, b: (a << (n & np.uint32(7)).astype(np.uint64)) + b),
    # integers; `co` writes a carry, `ci` reads one
    "v_add_u32": op("u32 = u32, u32", np.add),
    "v_sub_u32": op("u32 = u32, u32", np.subtract),
    **{
        f"v_{name}_{kind} clamp": op(f"{kind} = {kind}, {kind}", integers.saturated(name, kind))
        for name in ("add", "sub")
        for kind in ("u16", "i16", "u32", "i32")
    },
    "v_subrev_u32": op("u32 = u32, u32", lambda a, b: b - a),
    "v_add3_u32": op("u32 = u32, u32, u32", lambda a, b, c: a + b + c),
    "v_add_co_u32": op("u32, mask = u32, u32", integers.carry),
    "v_sub_co_u32": op("u32, mask = u32, u32", integers.borrow),
    "v_subrev_co_u32": op("u32, mask = u32, u32", lambda a, b: integers.borrow(b, a)),
    "v_addc_co_u32": op("u32, mask = u32, u32, mask", integers.carry),
    "v_subb_co_u32": op("u32, mask = u32, u32, mask", integers.borrow),
    "v_subbrev_co_u32": op("u32, mask = u32, u32, mask", lambda a, b, c: integers.borrow(b, a, c)),
    "v_mul_lo_u32": op("u32 = u32, u32", np.multiply),
    "v_mul_hi_u32": op("u32 = u32, u32", lambda a, b: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32)),
    "v_mul_hi_i32": op("u32 = u32, u32", integers.wide(np.multiply, 32, 32)),
    "v_mul_i32_i24": op("u32 = u32, u32", integers.wide(np.multiply, 24)),
    "v_mul_hi_i32_i24": op("u32 = u32, u32", integers.wide(np.multiply, 24, 32)),
    "v_mad_i32_i24": op("u32 = u32, u32, u32", integers.wide(np.multiply, 24)),
    "v_mad_i32_i16": op("u32 = u16, u16, u32", integers.wide(np.multiply, 16)),
    "v_mul_u32_u24": op("u32 = u32, u32", lambda a, b: (a & np.uint32(0xFFFFFF)) * (b & np.uint32(0xFFFFFF))),
    "v_mad_u32_u24": op("u32 = u32, u32, u32", lambda a, b, c: (a & np.uint32(0xFFFFFF)) * (b & np.uint32(0xFFFFFF)) + c),
    "v_mad_u32_u16": op("u32 = u16, u16, u32", lambda a, b, c: a.astype(np.uint32) * b + c),
    "v_sad_u32": op("u32 = u32, u32, u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c),
    "v_dot4_i32_i8": op("u32 = u32, u32, u32", integers.dot4((True, True))),
    "v_dot4c_i32_i8": op("u32 = u32, u32, +u32", integers.dot4((True, True))),
    "v_dot4_u32_u8": op("u32 = u32, u32, u32", integers.dot4((False, False))),
    "v_add_i32": op("u32 = u32, u32", np.add),
    "v_sub_i32": op("u32 = u32, u32", np.subtract),
    "v_mad_u64_u32": op("u64, mask = u32, u32, u64", integers.multiply_add),
    "v_mad_i64_i32": op("i64, mask = i32, i32, i64", integers.signed_multiply_add),
    # conversions
    **{
        f"v_cvt_{to}_{kind}": op(f"{to} = {kind}", arithmetic.converted(to))
        for to, kinds in _CONVERTED.items()
        for kind in kinds
    },
    **{
        f"v_cvt_f32_ubyte{n}": op("f32 = u32", lambda a, n=n: (a >> np.uint32(8 * n) & np.uint32(255)).astype(np.float32))
        for n in range(4)
    },
    "v_cvt_f32_bf16": op("f32 = u16", lambda a: (a.astype(np.uint32) << np.uint32(16)).view(np.float32)),
    "v_cvt_pkrtz_f16_f32": op(
        "b32 = f32, f32", lambda a, b: integers.pack(arithmetic.towards_zero(a), arithmetic.towards_zero(b))
    ),
    "v_cvt_pk_u16_u32": op("b32 = u32, u32", lambda a, b: np.minimum(a, 65535) | np.minimum(b, 65535) << np.uint32(16)),
    "v_cvt_pk_bf16_f32": op("b32 = f32, f32", lambda a, b: arithmetic.bfloat16(a) | arithmetic.bfloat16(b) << np.uint32(16)),
    "v_cvt_pk_f16_f32": op("b32 = f32, f32", lambda a, b: integers.pack(a.astype(np.float16), b.astype(np.float16))),
    "v_pack_b32_f16": op("b32 = f16, f16", integers.pack),
}
_NUM = ("max", "min", "max3", "min3", "minmax", "maxmin")
# Names from gfx10 on ("nc": no carry), gfx11 and gfx12 ("num": IEEE's maximumNumber).
RENAMED = {
    "v_add_nc_u32": "v_add_u32",
    **{f"v_{n}_nc_{k}": f"v_{n}_{k}" for n in ("add", "sub") for k in ("u16", "i16", "i32")},
    "v_mad_legacy_u16": "v_mad_u16",
    "v_mad_legacy_i16": "v_mad_i16",
    "v_cvt_pk_rtz_f16_f32": "v_cvt_pkrtz_f16_f32",
    "v_clz_i32_u32": "v_ffbh_u32",
    "v_cls_i32": "v_ffbh_i32",
    "v_ctz_i32_b32": "v_ffbl_b32",
    "v_sub_nc_u32": "v_sub_u32",
    "v_subrev_nc_u32": "v_subrev_u32",
    "v_add_co_ci_u32": "v_addc_co_u32",
    "v_sub_co_ci_u32": "v_subb_co_u32",
    "v_subrev_co_ci_u32": "v_subbrev_co_u32",
    "v_mad_co_u64_u32": "v_mad_u64_u32",
    "v_mad_co_i64_i32": "v_mad_i64_i32",
    **{f"v_{n}_num_{k}": f"v_{n}_{k}" for k in ("f64", "f32", "f16") for n in (*_NUM, "med3")},
}
