"""The machine code of each AMD profile: all of it is known, none of it uses scratch memory, and each load is waited for.

`tests/runtime/test_static_quality.py` counts spills and narrow accesses of all vendors.
"""

from itertools import product

import pytest
from direct import forward
from machine_code import FOREMOST, PRODUCTS, compare, in_virtual_device

from amdgcn_cpu import Fault, Kernel, Race, Uninitialised
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
    ("old", "new", "seen"),
    [
        ("\ts_barrier\n", "\ts_nop 0\n", pytest.raises((Race, Uninitialised), match=r"line \d+: ds_")),
        ("row_shr:8", "row_shr:7", pytest.raises(AssertionError)),
        ("v_exp_f32_e32", "v_exp_f33_e32", pytest.raises(Fault, match="unknown instruction: line")),
    ],
)
def test_a_planted_fault_is_seen(old, new, seen):
    with seen:
        compare(forward, in_virtual_device("gfx942", edit=lambda text: text.replace(old, new)), "no mask")
