"""The machine code of each AMD profile: all of it is known, none of it uses scratch memory, and each load is waited for.

`tests/runtime/test_static_quality.py` counts spills and narrow accesses of all vendors.
"""

import re
from itertools import product

import pytest
from machine_code import FOREMOST, PRODUCTS

from amdgcn_cpu import Fault, Kernel
from portable_softmax import Device, plan
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec

N_ROWS = 4096
DTYPES = ("float32", "bfloat16", "float16")
LENGTHS = (1, 7, 64, 500, 781, 1024, 3000, 4096, 12672, 32768, 50257, 65536, 131072)
SOME = ((781, "bfloat16", True), (65536, "float16", False))  # which test_static_quality.py compiles too
EVERY = tuple(product(LENGTHS, DTYPES, (False, True)))[::5]  # each length, type and direction is among them
PROFILES = PRODUCTS.values()
FIRST = [name for arch, name in PRODUCTS.items() if arch in FOREMOST]


def fault_of(text):
    """Returns what is wrong with a kernel's machine code; nothing if it is right."""
    try:
        Kernel(text)
    except Fault as error:
        return str(error)
    return ""


def planned(device, n_cols, dtype, backward):
    """The machine code of a plan."""
    found = plan(N_ROWS, n_cols, dtype, device, backward=backward)
    return compile_kernel(KernelSpec.of(found.problem, found.tiling), device).asm["amdgcn"]


@pytest.mark.parametrize(
    ("profile", "cases"),
    [*((name, SOME) for name in FIRST), *(pytest.param(name, EVERY, marks=pytest.mark.slow) for name in PROFILES)],
)
def test_machine_code_of_plans(profile, cases):
    device = Device.from_profile(profile)
    assert {case: fault for case in cases if (fault := fault_of(planned(device, *case)))} == {}


@pytest.mark.parametrize(
    ("pattern", "replacement", "fault"),
    [
        (r"\ts_waitcnt vmcnt\(\d+\)\n", "", "is used before a wait for its load: line"),
        (r"private_segment_fixed_size 0", "private_segment_fixed_size 16", "scratch memory"),
        (r"v_exp_f32_e32", "v_exp_f33_e32", "unknown instruction: line"),
    ],
)
def test_what_is_wrong_is_seen(pattern, replacement, fault):
    text = planned(Device.from_profile("amd/mi300x"), 4096, "float32", False)
    assert not fault_of(text)
    wrong = re.sub(pattern, replacement, text, count=1)
    assert wrong != text
    assert fault in fault_of(wrong)
