"""Faults that are put into machine code, one at a time, and the runs that should see them."""

import re

from direct import as_they_are
from machine_code import CASES, compare, in_virtual_device, spikes

from amdgcn_cpu.faults import Fault

# Patterns of text, and what they become: each of the sites where they stand is one fault.
MUTATIONS = {
    # lanes of a reduction
    r"row_shr:8": "row_shr:7",
    r"row_shr:1\b": "row_shr:2",
    r"row_bcast:31": "row_bcast:15",
    r"quad_perm:\[1,0,3,2\]": "quad_perm:[0,1,2,3]",
    r"row_ror:8": "row_ror:4",
    r"row_xmask:1\b": "row_xmask:0",
    r"v_permlanex16_b32": "v_permlane16_b32",
    r"v_readlane_b32 (s\d+), (v\d+), (31|63)": r"v_readlane_b32 \1, \2, 0",
    # arithmetic; v_max x, y, y only makes nan quiet
    r"v_max3_f32": "v_min3_f32",
    r"v_max3_num_f32": "v_min3_num_f32",
    r"(v_\w*)max((?:_num)?_f32\w* v\d+, (v\d+), (?!\3\b)v\d+)": r"\1min\2",
    r"v_sub_f32_e32": "v_add_f32_e32",
    r"v_add_f32_e32": "v_sub_f32_e32",
    r"v_exp_f32_e32": "v_log_f32_e32",
    r"0x3fb8aa3b": "0x3fb00000",  # log2(e)
    # barriers, masks, padding, addresses
    r"\ts_barrier\n": "\ts_nop 0\n",
    r"v_cmp_gt_i32_e32": "v_cmp_lt_i32_e32",
    r"s_and_saveexec_b(\d\d)": r"s_or_saveexec_b\1",
    r"v_cndmask_b32_e32 (v\d+), (v\d+), (v\d+),": r"v_cndmask_b32_e32 \1, \3, \2,",
    r"0xff800000": "0",  # -inf, in elements that no row has
    r"s_cbranch_vccz": "s_cbranch_vccnz",
    r"(offset:)16\b": r"\g<1>20",
}


def with_change(pattern, replacement, site=0):
    """A function that changes one place of a text where the pattern stands."""

    def edit(text):
        found = list(re.finditer(pattern, text))[site]
        return text[: found.start()] + found.expand(replacement) + text[found.end() :]

    return edit


def is_seen(direction, arch, name, edit, n_rows=16):
    """Tells whether a change is seen with a spike in many lanes, random rows, or rows that are masked or not finite.

    Of the last tile one, two, three or all rows are there; rows are as long as a tile nearly, or a fourth of that.
    """
    run = in_virtual_device(arch, edit=edit, most_steps=300_000)
    try:
        for case in [name, f"{name}, short"][: 1 + (f"{name}, short" in CASES)]:
            for number in (16, 6, 7):
                compare(direction, run, case, special=as_they_are, n_rows=number)
            compare(direction, run, case)
        compare(direction, run, name, special=spikes, n_rows=n_rows)
    except (AssertionError, Fault):
        return True
    return False


def sites(direction, arch, name):
    """(pattern, replacement, number, the line and its text) of each fault that can be put into the code of a case."""
    texts = []
    compare(direction, in_virtual_device(arch, edit=lambda text: texts.append(text) or text), name)
    for pattern, replacement in MUTATIONS.items():
        for number, found in enumerate(re.finditer(pattern, texts[0])):
            line = texts[0][: found.start() + 1].count("\n")
            yield pattern, replacement, number, f"line {line + 1}: {texts[0].splitlines()[line].strip()}"
