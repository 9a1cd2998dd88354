"""Single instructions, text that is not known, and waits that machine code lacks.

Instructions run on registers that a test fills; expected values are computed another way, or stand in AMD's guides.
"""

import re
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest

from amdgcn_cpu import Fault, Kernel, MissingWait, Race, Uninitialised, UnknownInstruction, arithmetic, run
from amdgcn_cpu.local import LocalMemory
from amdgcn_cpu.memory import GlobalMemory
from amdgcn_cpu.parsing import parse
from amdgcn_cpu.state import Wave
from amdgcn_cpu.waits import check_waits

TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
kernel:
{lines}
.Lfunc_end0:
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size 256
\t\t.amdhsa_private_segment_fixed_size 0
\t\t.amdhsa_kernarg_size 24
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t\t.amdhsa_wavefront_size32 {wave32}
\t.end_amdhsa_kernel
"""


def text_of(*lines, arch="gfx942"):
    """Returns the assembly of a kernel of these lines."""
    lines = "\n".join(line if line.endswith(":") else f"\t{line}" for line in lines)
    return TEXT.format(arch=arch, lines=lines, wave32=int(not arch.startswith("gfx9")))


def after(line, arch="gfx942", **registers):
    """Returns the wave after one instruction; registers are v1=..., s2=..."""
    wave = Wave(64 if arch.startswith("gfx9") else 32, 0, GlobalMemory(), LocalMemory(64, 1, True, 0))
    for name, value in registers.items():
        if name[0] == "v":
            wave.bits[int(name[1:])] = np.asarray(value).view(np.uint32)
        else:
            wave.scalars[int(name[1:])] = value
    Kernel(text_of(line, arch=arch)).steps[0](wave)
    return wave


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_fma_rounds_once(seed):
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, 2000)).astype(np.float32)
    c = (-(a.astype(np.float64) * b) * random.choice([1, 0.5, 1 + 2.0**-24], 2000)).astype(np.float32)
    for x, y, z, result in zip(a, b, c, arithmetic.fma(a, b, c), strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = [result, np.nextafter(result, f32(np.inf)[0]), np.nextafter(result, f32(-np.inf)[0])]
        assert min(abs(Fraction(float(number)) - exact) for number in near) == abs(Fraction(float(result)) - exact)


def test_classes_of_numbers():
    values = f32(np.nan, np.nan, -np.inf, -1, -1e-40, -0.0, 0.0, 1e-40, 1, np.inf)  # bits 1 to 9; a nan of bit 0 is signalling
    for wanted in range(1, 10):
        vcc = after("v_cmp_class_f32_e64 vcc, v1, v2", v1=np.resize(values, 64), v2=np.uint32([1 << wanted])).scalars[106]
        assert vcc & 0x3FE == 1 << wanted


@pytest.mark.parametrize(
    ("arch", "control", "origin"),
    [
        ("gfx942", "quad_perm:[1,0,3,2]", lambda lane: lane ^ 1),
        ("gfx942", "row_shr:3", lambda lane: np.where(lane % 16 < 3, -1, lane - 3)),
        ("gfx942", "row_ror:8", lambda lane: lane ^ 8),
        ("gfx942", "row_bcast:15", lambda lane: np.where(lane < 16, -1, lane // 16 * 16 - 1)),
        ("gfx942", "wave_shr:1", lambda lane: lane - 1),
        ("gfx1100", "row_xmask:5", lambda lane: lane ^ 5),
        ("gfx1100", "row_share:2", lambda lane: lane // 16 * 16 + 2),
    ],
)
@pytest.mark.parametrize("zero", [True, False])
def test_dpp(arch, control, origin, zero):
    lane = np.arange(64 if arch == "gfx942" else 32)
    values = (lane + 100).astype(np.uint32)
    line = f"v_mov_b32_dpp v1, v2 {control} row_mask:0xf bank_mask:0xf{' bound_ctrl:1' if zero else ''}"
    lanes = after(line, arch, v1=np.uint32([7]), v2=values).bits[1]
    assert lanes.tolist() == np.where(origin(lane) < 0, 0 if zero else 7, origin(lane) + 100).tolist()


VECTORS = [  # an instruction, its architecture, registers ahead of it, and what they hold afterwards
    ("v_add_f64 v[4:5], v[0:1], -v[2:3]", "gfx942", {"v0": 0, "v1": 0x40080000, "v2": 0, "v3": 0x3FF40000},
     {"v4": 0, "v5": 0x3FFC0000}),
    ("v_div_fixup_f32 v0, v1, v2, v3", "gfx942", {"v1": 0x40A00000, "v2": 0x80000000, "v3": 0x3F800000}, {"v0": 0xFF800000}),
    ("v_mad_i64_i32 v[3:4], null, v0, v1, v[5:6]", "gfx1100", {"v0": 2**32 - 3, "v1": 7, "v5": 5, "v6": 0},
     {"v3": 2**32 - 16, "v4": 2**32 - 1}),
    ("v_cvt_f32_f16_sdwa v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", "gfx942", {"v2": 0x40003C00},
     {"v1": 0x40000000}),
    ("v_fma_mix_f32 v1, v2, v2, neg(0) op_sel:[1,0,0] op_sel_hi:[1,1,0]", "gfx942", {"v2": 0x40003C00}, {"v1": 0x40000000}),
    ("v_pk_add_f32 v[4:5], v[2:3], v[2:3] op_sel:[0,1] op_sel_hi:[1,0] neg_hi:[0,1]", "gfx942",
     {"v2": 0x3F800000, "v3": 0x40000000}, {"v4": 0x40400000, "v5": 0x3F800000}),
    ("v_add_u32_e64 v1, v2, v3 clamp", "gfx942", {"v2": 0xFFFFFFFF, "v3": 7}, {"v1": 0xFFFFFFFF}),
    ("v_alignbit_b32 v1, v2, v3, 4", "gfx942", {"v2": 0x12345678, "v3": 0x9ABCDEF0}, {"v1": 0x89ABCDEF}),
    ("v_ashrrev_i16_e32 v1, 8, v2", "gfx942", {"v2": 0x017E8F00}, {"v1": 0xFF8F}),
    ("v_dot2_f32_f16 v1, v2, v3, v4", "gfx942", {"v2": 0x40003E00, "v3": 0xB8004400, "v4": 0x41200000}, {"v1": 0x41700000}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "arch", "before", "expected"), VECTORS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_vectors(line, arch, before, expected):
    wave = after(line, arch, **{name: np.uint32([value]) for name, value in before.items()})
    assert {name: wave.bits[int(name[1:]), 0] for name in expected} == expected


SCALARS = [  # an instruction on s1 = 0xFFFFFFFF, s2 = 0xF0 and s3 = 0x80000000; s0, and the condition where it is set
    ("s_add_u32 s0, s1, 1", 0, 1), ("s_sub_u32 s0, 0, s1", 1, 1), ("s_add_i32 s0, s1, 1", 0, 0),
    ("s_ashr_i32 s0, s1, 4", 0xFFFFFFFF, 1), ("s_bfe_u32 s0, s1, 0x80004", 0xFF, 1), ("s_andn2_b32 s0, s1, -1", 0, 0),
    ("s_movk_i32 s0, 0x8000", 0xFFFF8000, 0), ("s_min_i32 s0, s1, 5", 0xFFFFFFFF, 1),
    ("s_mul_hi_u32 s0, s1, s1", 0xFFFFFFFE, 0), ("s_cvt_u32_f32 s0, 0x40600000", 3, 0),
    ("s_bcnt1_i32_b64 s0, s[2:3]", 5, None), ("s_ctz_i32_b32 s0, s3", 31, None), ("s_flbit_i32_b32 s0, s2", 24, None),
    ("s_ff1_i32_b64 s0, s[2:3]", 4, None), ("s_flbit_i32 s0, s1", 0xFFFFFFFF, None), ("s_flbit_i32 s0, s3", 1, None),
    ("s_sext_i32_i8 s0, s2", 0xFFFFFFF0, None), ("s_bitset0_b32 s0, 31", 0x40000000, None),
]  # fmt: skip


@pytest.mark.parametrize(("line", "result", "condition"), SCALARS)
def test_scalars(line, result, condition):
    wave = after(line, s0=0xC0000000, s1=0xFFFFFFFF, s2=0xF0, s3=0x80000000)
    assert wave.scalars[0] == result
    assert condition is None or wave.scc == condition


def test_local_memory_knows_barriers():
    word = np.ones((1, 4), np.uint8)
    where = np.array([0])
    local = LocalMemory(64, 2, True, 0)
    with pytest.raises(Uninitialised):
        local.load(where, 4, 0, 0, 0)
    local.store(where, word, 0, 0, 0)
    with pytest.raises(Race):
        local.load(where, 4, 1, 0, 0)
    assert (local.load(where, 4, 1, 1, 1) == 1).all()
    with pytest.raises(Race):
        local.store(where, 2 * word, 0, 1, 1)
    local.store(where, 2 * word, 0, 2, 2)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("v_smfmac_f32_16x16x32_f16 a[0:3], v[0:1], v[2:5], v6", "unknown instruction"),
        ("v_add_f32_e64 v1, v2, v3 clamp", "unknown modifier"),
        ("v_mov_b32_dpp v1, v2 row_share:1 row_mask:0xf bank_mask:0xf", "unknown modifier"),  # gfx10 and later
        ("global_load_dword v1, v[2:3], off glc", "unknown modifier"),  # that of others than gfx942
        ("global_atomic_ordered_add_b64 v1, v[2:3], off", "unknown atomic"),
        ("s_mov_b32 s1, flat_scratch_lo", "unknown scalar operand"),
        ("v_add_f32_e32 v1, v2, v3, v4", "unknown modifier or operand"),
    ],
)
def test_text_that_is_not_known_is_an_error(line, why):
    with pytest.raises(UnknownInstruction, match=f"{why}.*line 3: {re.escape(line)}"):
        Kernel(text_of(line))


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        (text_of("s_nop 1"), Fault, r"the code ends here, and the wave goes on: line \d: s_nop"),
        (text_of("s_endpgm", arch="gfx803"), UnknownInstruction, r"gfx803 is none of gfx906, .*, gfx1201"),
        (text_of(), UnknownInstruction, "the kernel kernel has no instructions"),
    ],
)
def test_code_that_cannot_run_is_an_error(text, error, words):
    with pytest.raises(error, match=words):
        run(text, (1, 1, 1), [], num_warps=1, shared_bytes=0)


USE, SCALAR = "v_add_f32_e32 v9, v1, v1", "s_load_dword s1, s[2:3], 0x0"
FIRST, SECOND = "global_load_dword v1, v[2:3], off", "global_load_dword v4, v[2:3], off"
WAITS = [  # architecture, lines, and the register that is used too early if one is
    ("gfx942", [FIRST, "s_waitcnt vmcnt(0)", USE], ""),
    ("gfx942", [FIRST, SECOND, "s_waitcnt vmcnt(1)", USE], ""),  # in order
    ("gfx1201", ["global_load_b32 v1, v[2:3], off", "s_wait_loadcnt 0x0", USE], ""),
    ("gfx942", [SCALAR, "s_waitcnt lgkmcnt(0)", "s_mov_b32 s4, s1"], ""),
    ("gfx942", [FIRST, "global_load_short_d16_hi v1, v[2:3], off"], ""),  # the other half, in order
    ("gfx942", ["ds_write_b32 v1, v2", "s_waitcnt lgkmcnt(0)", "s_barrier"], ""),
    ("gfx1201", ["global_load_d16_b16 v1, v[2:3], off", "v_add_f16_e32 v9.l, v8.l, v1.h"], ""),  # the other half
    ("gfx942", [FIRST, USE], "v1"),
    ("gfx1100", ["global_load_b32 v1, v[2:3], off", "global_store_b32 v[2:3], v5, off", "s_waitcnt vmcnt(1)", USE], "v1"),
    ("gfx942", [FIRST, "s_waitcnt lgkmcnt(0)", USE], "v1"),  # the other counter
    ("gfx942", [SCALAR, "s_load_dword s4, s[2:3], 0x4", "s_waitcnt lgkmcnt(1)", "s_mov_b32 s5, s1"], "s1"),
    ("gfx942", ["s_load_dwordx4 s[0:3], s[4:5], 0x0", "v_mov_b32_e32 v1, s3"], "s3"),
    ("gfx942", [FIRST, "s_cbranch_scc0 .L", "s_waitcnt vmcnt(0)", ".L:", USE], "v1"),  # on one of the paths
    ("gfx942", [".L:", "s_waitcnt vmcnt(1)", USE, FIRST, "s_cbranch_scc0 .L"], "v1"),  # in the next turn of a loop
    ("gfx942", ["ds_write_b32 v1, v2", "s_barrier"], "LDS"),
    ("gfx1201", ["ds_bpermute_b32 v1, v2, v3", "s_wait_loadcnt_dscnt 0x1", USE], "v1"),
    ("gfx1100", ["global_load_b32 v1, v[2:3], off", "v_dual_mov_b32 v8, 0 :: v_dual_mov_b32 v9, v1"], "v1"),
    ("gfx1201", ["global_load_d16_b16 v1, v[2:3], off", "v_add_f16_e32 v9.l, v8.l, v1.l"], "v1"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "lines", "early"), WAITS)
def test_registers_are_waited_for(arch, lines, early):
    words = rf"^{early} is used before a wait for its load: line \d+: "
    with pytest.raises(MissingWait, match=words) if early else nullcontext():
        check_waits(parse(text_of(*lines, "s_endpgm", arch=arch)))
