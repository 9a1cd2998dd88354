"""Faults that a vendor's compiler is known to have: kernels with such code are refused, and none of ours has it."""

import pytest
import triton
import triton.language as tl
from offline import H200

from portable_softmax import Device
from portable_softmax.devices.backends import cuda
from portable_softmax.errors import CompileError
from portable_softmax.kernels.common import first_column
from portable_softmax.kernels.config import KernelConfig, constexpr_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import compile_for, triton_version
from portable_softmax.runtime.specialization import KernelSpec

PAIRS_OF_16_BITS = "add.s16x2"


@triton.jit
def rests_kernel(out_ptr, n_cols, HIDDEN: tl.constexpr, C: tl.constexpr):
    """Stores numbers that fit 16 bits, of places of a split; Triton 3.8 adds them in pairs where it sees that they fit."""
    split = tl.program_id(0) % C.SPLITS
    first = first_column(split, n_cols, C) if HIDDEN else split * C.WIDTH
    place = first + tl.arange(0, C.BLOCK)
    tl.store(out_ptr + place, tl.where(place // 8 % 2 == 1, (place * 9 + 1) % 1000, place), mask=place % 2 == 0)


@pytest.mark.skipif(triton_version() < (3, 8), reason="an older Triton adds no pairs of 16 bits")
def test_columns_of_splits_are_not_taken_for_16_bits():
    """Machine code that adds pairs of them may lack a constant: triton-lang/triton issue 11581."""
    device, config = Device.from_profile(H200), constexpr_of(KernelConfig(SPLITS=3, BLOCK=256))
    for hidden in (False, True):
        constants = {"HIDDEN": hidden, "C": config}
        compiled = compile_for(device, rests_kernel, {"out_ptr": "*i32:16", "n_cols": "i32"}, constants, 1, 1)
        found = device.vendor.known_fault(compiled)
        assert found is None if hidden else f"its PTX has {PAIRS_OF_16_BITS}" in found


def test_a_kernel_that_may_be_wrong_is_not_used(monkeypatch):
    device = Device.from_profile(H200)
    spec = KernelSpec.of(Problem(5, 77, "float32", "float32", 1), Tiling(1, 128, 1, 1))
    monkeypatch.setattr(cuda, "known_fault", lambda compiled: f"{compiled.metadata.name} may be wrong")
    for _ in range(2):
        with pytest.raises(CompileError, match="tile 1 x 128, num_warps 1 is not used: softmax_kernel may be wrong"):
            compile_kernel(spec, device)
