"""The machine code of plans for AMD devices: all of it is known, no scratch memory is used, and each load is waited for."""

from itertools import product

import machines
import pytest
from launched_rows import check
from table import Row

from amdgcn_cpu import Fault, Kernel, Race, Uninitialised
from portable_softmax import Device, plan
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec

LENGTHS = (1, 7, 64, 500, 781, 1024, 3000, 4096, 12672, 32768, 50257, 65536, 131072)
SOME = ((781, "bfloat16", True), (65536, "float16", False))  # which test_static_quality.py compiles too
EVERY = tuple(product(LENGTHS, ("float32", "bfloat16", "float16"), (False, True)))[::5]  # each length, type and direction


@pytest.mark.parametrize(
    ("arch", "cases"),
    [
        *((arch, SOME) for arch in sorted(machines.FOREMOST)),
        *(pytest.param(arch, EVERY, marks=pytest.mark.slow) for arch in machines.AMD),
    ],
)
def test_machine_code_of_plans(arch, cases):
    device, faults = Device.from_profile(machines.AMD[arch]), {}
    for n_cols, dtype, backward in cases:
        found = plan(4096, n_cols, dtype, device, backward=backward)
        try:
            Kernel(compile_kernel(KernelSpec.of(found.problem, found.tiling), device).asm["amdgcn"])
        except Fault as fault:
            faults[n_cols, dtype, backward] = str(fault)
    assert not faults


@pytest.mark.parametrize(
    ("old", "new", "seen"),
    [
        ("\ts_barrier\n", "\ts_nop 0\n", pytest.raises((Race, Uninitialised), match=r"line \d+: ds_")),
        ("row_shr:8", "row_shr:7", pytest.raises(AssertionError, match="wrong")),
        ("v_exp_f32_e32", "v_exp_f33_e32", pytest.raises(Fault, match="unknown instruction: line")),
    ],
)
def test_a_planted_fault_is_seen(old, new, seen):
    with seen:
        check(Row("vectors", "many warps", "softmax"), machines.amd("gfx942", edit=lambda text: text.replace(old, new)))
