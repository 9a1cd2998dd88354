"""The machine code of each AMD profile's plans: known, with its waits, without scratch memory, and with accesses of 16 bytes.

`tests/runtime/test_static_quality.py` counts spills and accesses of all vendors at more lengths.
"""

import re
from itertools import product

import pytest
from machine_code import FOREMOST, PRODUCTS
from offline import read_problem

from amdgcn_cpu import Fault, Kernel
from portable_softmax import Device, plan
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec

N_ROWS = 4096
DTYPES = ("float32", "bfloat16", "float16")
LENGTHS = (1, 7, 64, 500, 781, 1024, 3000, 4096, 12672, 32768, 50257, 65536, 131072)
SOME = ((781, "bfloat16", True), (65536, "float16", False))  # which test_static_quality.py compiles too
EVERY = tuple(product(LENGTHS, DTYPES, (False, True)))[::5]  # each length, type and direction is among them
PROFILES = PRODUCTS.values()
FIRST = [name for arch, name in PRODUCTS.items() if arch in FOREMOST]
ACCESS = re.compile(r"\t(?:global|buffer)_(?:load|store)_(\S+)")
WIDE = ("dwordx4", "b128")


def lint(text, wide):
    """Returns what is wrong with a kernel's machine code.

    Args:
        wide: whether all of its accesses to rows can be of 16 bytes.
    """
    try:
        Kernel(text)
    except Fault as error:
        return [str(error)]
    faults = []
    if any(int(count) for count in re.findall(r"\.[sv]gpr_spill_count:\s+(\d+)", text)):
        faults.append("spilled registers")
    widths = set(ACCESS.findall(text))
    if wide and (narrow := {width for width in widths if not width.endswith(WIDE)}):
        faults.append(f"narrow accesses: {', '.join(sorted(narrow))}")
    return faults


def planned(device, n_cols, dtype, backward):
    """The machine code of a plan, and whether all accesses can be wide: words of shared rows and unaligned edges are not."""
    tiling = plan(N_ROWS, n_cols, dtype, device, backward=backward).tiling
    problem = read_problem(N_ROWS, n_cols, dtype, device, backward=backward)
    elements = tiling.tile_rows * tiling.width // (tiling.num_warps * device.hardware.warp_size)
    wide = min(problem.vector, elements) * DTYPE_BYTES[dtype] >= 16 and tiling.splits == 1 and not problem.unaligned
    return compile_kernel(KernelSpec.of(problem, tiling), device).asm["amdgcn"], wide


@pytest.mark.parametrize(
    ("profile", "cases"),
    [*((name, SOME) for name in FIRST), *(pytest.param(name, EVERY, marks=pytest.mark.slow) for name in PROFILES)],
)
def test_machine_code_of_plans(profile, cases):
    device = Device.from_profile(profile)
    faults = [
        f"{n_cols} {dtype}, {'backward' if backward else 'forward'}: {fault}"
        for n_cols, dtype, backward in cases
        for fault in lint(*planned(device, n_cols, dtype, backward))
    ]
    assert not faults


@pytest.mark.parametrize(
    ("pattern", "replacement", "fault"),
    [
        (r"\ts_waitcnt vmcnt\(\d+\)\n", "", "is used before a wait for its load: line"),
        (r"(global|buffer)_load_dwordx4 v\[(\d+):\d+\]", r"\1_load_dword v\2", "narrow accesses: dword"),
        (r"private_segment_fixed_size 0", "private_segment_fixed_size 16", "scratch memory"),
        (r"vgpr_spill_count: 0", "vgpr_spill_count: 3", "spilled registers"),
        (r"v_exp_f32_e32", "v_exp_f33_e32", "unknown instruction: line"),
    ],
)
def test_what_is_wrong_is_seen(pattern, replacement, fault):
    text, wide = planned(Device.from_profile("amd/mi300x"), 4096, "float32", False)
    assert (lint(text, wide), wide) == ([], True)
    wrong = re.sub(pattern, replacement, text, count=1)
    assert wrong != text
    assert fault in " ".join(lint(wrong, wide))
