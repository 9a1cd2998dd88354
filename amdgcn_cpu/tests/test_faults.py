"""Text that is not known, waits that machine code lacks, and code that no compiler makes."""

import re
from contextlib import nullcontext

import pytest

from amdgcn_cpu import Fault, Kernel, MissingWait, UnknownInstruction, run
from amdgcn_cpu.parsing import parse
from amdgcn_cpu.waits import check_waits

TEXT = """\t.amdgcn_target "amdgcn-amd-amdhsa--{}"
kernel:
{}
.Lfunc_end0:
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size 256
\t\t.amdhsa_private_segment_fixed_size 0
\t\t.amdhsa_kernarg_size 24
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t.end_amdhsa_kernel
"""


def text_of(*lines, arch="gfx942"):
    return TEXT.format(arch, "\n".join(line if line.endswith(":") else f"\t{line}" for line in lines))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("v_smfmac_f32_16x16x32_f16 a[0:3], v[0:1], v[2:5], v6", "unknown instruction"),
        ("v_add_f32_e64 v1, v2, v3 clamp", "unknown modifier"),
        ("v_mov_b32_dpp v1, v2 row_share:1 row_mask:0xf bank_mask:0xf", "unknown modifier"),  # gfx10 and later
        ("v_mov_b32_dpp v1, v2 quad_perm:[0,1,2,4] row_mask:0xf bank_mask:0xf", "unknown modifier"),
        ("global_load_dword v1, v[2:3], off glc", "unknown modifier"),  # that of others than gfx942
        ("global_atomic_ordered_add_b64 v1, v[2:3], off", "unknown atomic"),
        ("s_mov_b32 s1, flat_scratch_lo", "unknown scalar operand"),
        ("s_setpc_b64 s[0:1]", "unknown instruction"),
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
        (text_of("s_cbranch_scc0 .L", ".L:"), Fault, r"the code ends here, and the wave goes on: line \d: s_cbranch_scc0"),
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
    ("gfx942", ["ds_read_b32 v1, v2", "ds_read_b32 v4, v2", "s_waitcnt vmcnt(0) lgkmcnt(1)", USE], ""),
    ("gfx942", ["s_load_dword s1, s[2:3], 0x0", "s_waitcnt lgkmcnt(0)", "s_mov_b32 s4, s1"], ""),
    ("gfx942", [FIRST, "global_load_short_d16_hi v1, v[2:3], off"], ""),  # the other half, in order
    ("gfx942", [FIRST, "s_cbranch_scc0 .L", "s_waitcnt vmcnt(0)", USE, ".L:"], ""),
    ("gfx942", ["ds_write_b32 v1, v2", "s_waitcnt lgkmcnt(0)", "s_barrier"], ""),
    ("gfx1201", ["global_load_d16_b16 v1, v[2:3], off", "v_add_f16_e32 v9.l, v8.l, v1.h"], ""),  # the other half
    ("gfx942", [FIRST, USE], "v1"),
    ("gfx942", [FIRST, "v_mov_b32_e32 v1, 0"], "v1"),  # the load would come after it
    ("gfx942", [FIRST, SECOND, "s_waitcnt vmcnt(2)", USE], "v1"),
    ("gfx1100", ["global_load_b32 v1, v[2:3], off", "global_store_b32 v[2:3], v5, off", "s_waitcnt vmcnt(1)", USE], "v1"),
    ("gfx942", [FIRST, "s_waitcnt lgkmcnt(0)", USE], "v1"),  # the other counter
    ("gfx942", [SCALAR, "s_load_dword s4, s[2:3], 0x4", "s_waitcnt lgkmcnt(1)", "s_mov_b32 s5, s1"], "s1"),
    ("gfx942", ["s_load_dwordx4 s[0:3], s[4:5], 0x0", "v_mov_b32_e32 v1, s3"], "s3"),
    ("gfx942", [FIRST, "s_cbranch_scc0 .L", "s_waitcnt vmcnt(0)", ".L:", USE], "v1"),  # on one of the paths
    ("gfx942", [".L:", "s_waitcnt vmcnt(1)", USE, FIRST, "s_cbranch_scc0 .L"], "v1"),  # in the next turn of a loop
    ("gfx942", ["ds_write_b32 v1, v2", "s_barrier"], "LDS"),
    ("gfx1201", ["ds_bpermute_b32 v1, v2, v3", "s_wait_loadcnt_dscnt 0x1", USE], "v1"),
    ("gfx942", ["global_atomic_or_x2 v[0:1], v[2:3], v[4:5], off sc0", USE], "v1"),
    ("gfx1100", ["global_load_b32 v1, v[2:3], off", "v_dual_mov_b32 v8, 0 :: v_dual_mov_b32 v9, v1"], "v1"),
    ("gfx1201", ["global_load_d16_b16 v1, v[2:3], off", "v_add_f16_e32 v9.l, v8.l, v1.l"], "v1"),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "lines", "early"), WAITS)
def test_registers_are_waited_for(arch, lines, early):
    words = rf"^{early} is used before a wait for its load: line \d+: "
    with pytest.raises(MissingWait, match=words) if early else nullcontext():
        check_waits(parse(text_of(*lines, "s_endpgm", arch=arch)))
