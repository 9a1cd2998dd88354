"""Faults that a vendor's compiler is known to have: kernels with such code are refused, and none of ours has it."""

import pytest
import triton
import triton.language as tl
from offline import H200

from portable_softmax import Device
from portable_softmax.devices.backends import cuda
from portable_softmax.errors import CompileError
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.compiler import compile_for, triton_version
from portable_softmax.runtime.specialization import KernelSpec

PAIRS_OF_16_BITS = "add.s16x2"
ODD_SPLITS = [Tiling(16, 32, 4, 1, 12, blocks=22, walk=False), Tiling(16, 128, 8, 1, 2, blocks=12, walk=False)]


@triton.jit
def rests_kernel(out_ptr, COUNT: tl.constexpr):
    """Stores numbers that fit 16 bits; Triton 3.8 adds them in pairs."""
    place = tl.arange(0, COUNT)
    tl.store(out_ptr + place, tl.where(place // 8 % 2 == 1, (place * 9 + 1) % 1000, place), mask=place % 2 == 0)


def test_pairs_of_16_bits_are_found():
    """Machine code that adds them may lack a constant: triton-lang/triton issue 11581."""
    device = Device.from_profile(H200)
    compiled = compile_for(device, rests_kernel, {"out_ptr": "*i32:16"}, {"COUNT": 256}, 1, 1)
    found = device.vendor.known_fault(compiled)
    assert (f"its PTX has {PAIRS_OF_16_BITS}" in found) if triton_version() >= (3, 8) else found is None


def test_a_kernel_that_may_be_wrong_is_not_used(monkeypatch):
    device = Device.from_profile(H200)
    spec = KernelSpec.of(Problem(5, 77, "float32", "float32", 1), Tiling(1, 128, 1, 1))
    monkeypatch.setattr(cuda, "known_fault", lambda compiled: f"{compiled.metadata.name} may be wrong")
    for _ in range(2):
        with pytest.raises(CompileError, match="tile 1 x 128, num_warps 1 is not used: softmax_kernel may be wrong"):
            compile_kernel(spec, device)


@pytest.mark.each_value
@pytest.mark.parametrize("direction", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("tiling", ODD_SPLITS, ids=str)
def test_columns_of_splits_are_not_taken_for_16_bits(tiling, direction):
    """Splits of no power of two, in which all columns of all splits fit 16 bits."""
    problem = Problem(8192, tiling.splits * tiling.tile_cols - 72, "float32", "float32", 4, inner=8192, backward=direction)
    compiled = compile_kernel(KernelSpec.of(problem, tiling), Device.from_profile(H200))
    assert PAIRS_OF_16_BITS not in compiled.asm["ptx"]
