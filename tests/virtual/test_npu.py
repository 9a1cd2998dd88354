"""Ascend's path on a virtual NPU: devices, launches that fit the Unified Buffer, numbers of the table; most rows are slow."""

import math
from functools import partial
from itertools import product

import machines
import pytest
import torch
import triton
import triton.language as tl
from ascend_kernels import SAID, arguments_of
from exact import assert_close, expected
from launched_rows import check
from sweep import mostly_slow
from table import TILINGS, table

from portable_softmax import current_device, inspect_kernel, plan, softmax
from portable_softmax.errors import CompileError
from virtual.machine import CORES

ARCH = "Ascend910B3"
SHAPES = [(1, 1), (33, 1024), (1823, 781), (5, 10000), (50, 20000), (70000, 16)]
QUICK = {*((shape, ARCH) for shape in SHAPES), (SHAPES[2], [*CORES][-1])}


@pytest.mark.parametrize(("shape", "arch"), mostly_slow(product(SHAPES, CORES), lambda *case: case in QUICK), ids=str)
def test_programs(machine, shape, arch):
    """min(vector cores, tiles), in one dimension; and together they compute all of it."""
    index = machine.index(arch)
    chosen = plan(*shape, "float32", current_device(index))
    x = torch.randn(shape)
    assert_close(softmax(x.to(f"npu:{index}")).cpu(), expected("softmax", x))
    tiles = -(-shape[0] // chosen.tiling.tile_rows)
    assert machine.launches[-1].grid == (min(CORES[arch], tiles), 1, 1)


@pytest.mark.parametrize(("kernel", "kind", "block", "device", "options", "said"), SAID[:3], ids=["fits", "overflows", "950"])
def test_plans_of_triton_ascends_own_ir_are_those_of_tritons(kernel, kind, block, device, options, said):
    """Those of Triton are in tests/row_kernels/test_ascend.py."""
    ask = partial(inspect_kernel, kernel, arguments_of(kind), {"BLOCK": block}, device=device, **options)
    if isinstance(said, int):
        assert ask().resources.shared_memory_bytes == said
        return
    with pytest.raises(CompileError, match=said):
        ask()


@triton.jit
def fused(y, x):
    at = tl.arange(0, 64)
    value = tl.load(x + at)
    tl.store(y + at, tl.fma(value, value, -1.0))
    tl.store(y + 64 + at, tl.exp2(value))


def test_an_fma_rounds_twice_and_exp2_is_the_exp_of_a_product(machine):
    """As Ascend's compiler makes them; an fma of a GPU rounds once."""
    x = torch.linspace(1 + 2**-20, 1 + 2**-14, 64)
    y = torch.zeros(128).to("npu")
    fused[(1,)](y, x.to("npu"))
    squared = x * x - 1
    assert torch.equal(y.cpu()[:64], squared)
    assert not torch.equal(squared, (x.double() * x.double() - 1).float())
    torch.testing.assert_close(y.cpu()[64:], torch.exp(x * math.log(2)))


def lies_right(row):
    """True if tensors of a row are launched as they lie: without scores, swapped heads are copied first on an NPU."""
    copied = row.lies.swapped and row.kind != "log_probs" and not {*row.options} - {"in place"}
    return row.lies.vector and not row.lies.scattered and not copied


ROWS = [row for row in table() if TILINGS[row.tiling].blocks == TILINGS[row.tiling].splits == 1 and lies_right(row)]
QUICK_ROWS = [row for row in ROWS if row.kind != "sample"][::21]  # LLVM takes a minute for a sample


@pytest.mark.parametrize("row", mostly_slow(ROWS, QUICK_ROWS.__contains__), ids=str)
def test_right(machine, row):
    npu = machines.npu(machine)
    assert not npu.lacks(row)
    check(row, npu)
