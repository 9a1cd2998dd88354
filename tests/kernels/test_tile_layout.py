"""A tile that programs share stays in the layout that it is loaded in: to move it takes longer than the exchange."""

import re

import pytest

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.compiler import compile_for
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of, signature_of
from portable_softmax.runtime.specialization import KernelSpec


def moved(dtype, vector, backward):
    """Conversions of blocks of 64 columns of 16 rows, in Triton's GPU dialect."""
    device = Device.from_profile("nvidia/h200")
    problem = Problem(4096, 4096, dtype, dtype, vector, inner=4096, backward=backward)
    spec = KernelSpec.of(problem, Tiling(16, 64, 4, 1, 8, 128, blocks=8, walk=False))
    compiled = compile_for(device, kernel_of(spec), signature_of(spec), constexprs_of(spec, device), 4, 1, 128, True)
    return re.findall(r"ttg.convert_layout [^\n]*tensor<64x16x", compiled.asm["ttgir"])


@pytest.mark.each_value
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("dtype", "vector"), [("float32", 4), ("bfloat16", 8)])
def test_the_tile_keeps_its_layout(dtype, vector, backward):
    assert not moved(dtype, vector, backward)
