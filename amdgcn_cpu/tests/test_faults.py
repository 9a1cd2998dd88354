"""Text that is not known, and code that no compiler makes; test_kernels.py has faults of kernels of Triton."""

import re

import pytest

from amdgcn_cpu import Fault, Kernel, UnknownInstruction, run


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
    text = SMALL.format(line)
    with pytest.raises(UnknownInstruction, match=f"{why}.*line 4: {re.escape(line)}"):
        Kernel(text)


SMALL = """\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
kernel:
\ts_nop 0
\t{}
\ts_endpgm
.Lfunc_end0:
\t.amdhsa_kernel kernel
\t\t.amdhsa_group_segment_fixed_size 256
\t\t.amdhsa_private_segment_fixed_size 0
\t\t.amdhsa_kernarg_size 24
\t\t.amdhsa_user_sgpr_count 2
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t.end_amdhsa_kernel
"""


@pytest.mark.parametrize("last", ["", "\ts_cbranch_scc0 .LBB0_9\n"])
def test_code_that_runs_past_its_end_is_a_fault(last):
    text = SMALL.format("s_nop 1").replace("\ts_endpgm\n", f"{last}.LBB0_9:\n")
    with pytest.raises(Fault, match=r"the code ends here, and the wave goes on: line \d: s_(nop|cbranch_scc0)"):
        run(text, (1, 1, 1), [], num_warps=1, shared_bytes=0)


def test_another_target_is_an_error():
    with pytest.raises(UnknownInstruction, match=r"gfx803 is none of gfx906, .*, gfx1201"):
        Kernel(SMALL.format("s_nop 0").replace("gfx942", "gfx803"))


def test_a_kernel_without_code_is_an_error():
    text = SMALL.format("").replace("\ts_nop 0\n", "").replace("\ts_endpgm\n", "")
    with pytest.raises(UnknownInstruction, match="the kernel kernel has no instructions"):
        Kernel(text)


def test_the_small_text_is_known():
    assert len(Kernel(SMALL.format("v_add_f32_e32 v1, v2, v3")).steps) == 3
