"""Faults of machine code: each is put into code that is right, and is seen."""

import re

import pytest
from direct import as_they_are, backward, forward
from machine_code import compare, in_virtual_device, spikes

from portable_softmax.virtual_amd.faults import Fault, OutOfBounds, Race, Uninitialised, UnknownInstruction
from portable_softmax.virtual_amd.machine import Kernel

# Patterns of text, and what they become: each of the sites where they stand is one fault.
MUTATIONS = {
    r"row_shr:8": "row_shr:7",
    r"row_shr:1\b": "row_shr:2",
    r"row_bcast:31": "row_bcast:15",
    r"quad_perm:\[1,0,3,2\]": "quad_perm:[0,1,2,3]",
    r"row_ror:8": "row_ror:4",
    r"row_xmask:1\b": "row_xmask:0",
    r"v_permlanex16_b32": "v_permlane16_b32",
    r"v_readlane_b32 (s\d+), (v\d+), (31|63)": r"v_readlane_b32 \1, \2, 0",
    r"v_max3_f32": "v_min3_f32",
    r"v_max3_num_f32": "v_min3_num_f32",
    r"v_sub_f32_e32": "v_add_f32_e32",
    r"v_exp_f32_e32": "v_log_f32_e32",
    r"\ts_barrier\n": "\ts_nop 0\n",
    r"v_cmp_gt_i32_e32": "v_cmp_lt_i32_e32",
    r"s_and_saveexec_b(\d\d)": r"s_or_saveexec_b\1",
    r"0x3fb8aa3b": "0x3fb00000",  # log2(e)
    r"(offset:)16\b": r"\g<1>20",
}


def with_change(pattern, replacement, site=0):
    """A function that changes one place of a text where the pattern stands."""

    def edit(text):
        found = list(re.finditer(pattern, text))[site]
        return text[: found.start()] + found.expand(replacement) + text[found.end() :]

    return edit


@pytest.mark.parametrize(
    ("arch", "name", "pattern", "replacement"),
    [
        ("gfx942", "no mask", "row_shr:8", "row_shr:7"),
        ("gfx942", "no mask", "row_bcast:31", "row_bcast:15"),
        ("gfx942", "no mask", "v_max3_f32", "v_min3_f32"),
        ("gfx942", "no mask", "v_readlane_b32 (s\\d+), (v\\d+), 63", r"v_readlane_b32 \1, \2, 0"),
        ("gfx1100", "no mask", "v_permlanex16_b32", "v_permlane16_b32"),
        ("gfx1100", "no mask", "row_shr:4", "row_shr:3"),
        ("gfx1100", "no mask", "v_sub_f32_e32", "v_add_f32_e32"),
        ("gfx1201", "no mask", "0x3fb8aa3b", "0x3fb00000"),
    ],
)
def test_wrong_numbers_are_seen(arch, name, pattern, replacement):
    assert not is_seen(forward, arch, name, None)
    assert is_seen(forward, arch, name, with_change(pattern, replacement))


def is_seen(direction, arch, name, edit, n_rows=16):
    """Whether a change is seen with random rows, spikes in many lanes, or rows that are masked or not finite."""
    run = in_virtual_device(arch, edit=edit, most_steps=300_000)
    try:
        compare(direction, run, name, special=as_they_are, n_rows=16)
        compare(direction, run, name, special=spikes, n_rows=n_rows)
        compare(direction, run, name)
    except (AssertionError, Fault):
        return True
    return False


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_missing_barrier_is_a_race(arch):
    with pytest.raises((Race, Uninitialised), match=r"line \d+: ds_"):
        compare(forward, in_virtual_device(arch, edit=lambda text: text.replace("\ts_barrier\n", "\ts_nop 0\n")), "no mask")


@pytest.mark.parametrize("direction", [forward, backward])
def test_an_address_outside_is_seen(direction):
    """The base of a buffer is moved by 16 MiB; also a store that the guards of its rows would not see."""
    edit = with_change(r"s_lshl_b64 (s\[\d+:\d+\]), (s\[\d+:\d+\]), 4\b", r"s_lshl_b64 \1, \2, 24")
    with pytest.raises(OutOfBounds, match=r"allocation \d+ with \d+ bytes: line \d+"):
        compare(direction, in_virtual_device("gfx942", edit=edit), "no mask")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]", "unknown instruction"),
        ("v_add_f32_e64 v1, v2, v3 clamp", "unknown modifier"),
        ("v_mov_b32_dpp v1, v2 row_share:1 row_mask:0xf bank_mask:0xf", "unknown modifier"),  # gfx10 and later
        ("global_load_dword v1, v[2:3], off glc", "unknown modifier"),  # that of others than gfx942
        ("global_atomic_fmin v1, v[2:3], off", "unknown atomic"),
        ("s_mov_b32 s1, flat_scratch_lo", "unknown scalar operand"),
        ("s_setpc_b64 s[0:1]", "unknown instruction"),
        ("v_add_f32_e32 v1, v2, v3, v4", "unknown modifier or operand"),
        (".byte 1", "unknown directive"),
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


def test_the_small_text_is_known():
    assert len(Kernel(SMALL.format("v_add_f32_e32 v1, v2, v3")).steps) == 3


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("direction", [forward, backward])
def test_most_faults_are_seen(arch, direction):
    """One fault at a time, at every site of the patterns. Some of those that are not seen change no result.

    So do masks around stores of the same value by all lanes. What is not seen stands in the message.
    """
    survivors, total = [], 0
    for name in ("no mask", "rows"):
        texts = []
        compare(direction, in_virtual_device(arch, edit=lambda text, texts=texts: texts.append(text) or text), name)
        for pattern, replacement in MUTATIONS.items():
            for site in range(len(re.findall(pattern, texts[0]))):
                total += 1
                if not is_seen(direction, arch, name, with_change(pattern, replacement, site), n_rows=256):
                    survivors.append(f"{name}: {pattern}, site {site}")
    assert len(survivors) <= total / 10, f"{len(survivors)} of {total} survive:\n" + "\n".join(survivors)
