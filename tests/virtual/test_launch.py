"""Ascend's demands on a launch: few programs in one dimension, no options of GPUs, tiles that fit the Unified Buffer."""

from itertools import product

import pytest
import torch
from closeness import assert_close, expected
from sweep import mostly_slow
from triton.compiler.errors import MLIRCompilationError

from portable_softmax import current_device, plan, softmax
from portable_softmax.errors import CompileError
from portable_softmax.kernels.softmax import softmax_kernel
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, contiguous_problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.kernel_form import constexprs_of, signature_of
from portable_softmax.runtime.launch import sizes_of
from portable_softmax.runtime.specialization import KernelSpec
from virtual.buffer import unified_buffer_bits
from virtual.machine import SMALL_BUFFER, TINY_BUFFER, described

DTYPES = ["float32", "float16", "bfloat16"]
ARCH = "Ascend910B3"
SHAPES = [(1, 1), (33, 1024), (1823, 781), (5, 10000), (100, 20000), (70000, 16)]
CORES = {npu.vector_cores: npu.arch for npu in described()}.values()  # one device of each number; all run the same kernels
TILES = [(1, 8192), (8, 1024), (256, 1), (64, 4), (64, 16)]


def compiled(tiling, x_dtype, y_dtype, device, vector=1):
    problem = Problem(64, min(64, tiling.tile_cols), x_dtype, y_dtype, vector)
    return compile_kernel(KernelSpec.of(problem, tiling), device)


def jit_launch(grid, index, **options):
    """The kernel launched by Triton's JIT itself, as this package never does."""
    x, y = torch.randn(4, 8, device=f"npu:{index}"), torch.empty(4, 8, device=f"npu:{index}")
    problem = contiguous_problem(4, 8, "float32")
    spec, named = KernelSpec.of(problem, Tiling(4, 8)), {"y_ptr": y, "x_ptr": x, **sizes_of(problem)}
    with torch.npu.device(index):
        arguments = {name: named[name] for name in signature_of(spec)} | constexprs_of(spec, current_device())
        softmax_kernel[grid](**arguments, **options)
    return x, y


AT_ONCE = {(SHAPES[2], arch) for arch in CORES}


@pytest.mark.parametrize(
    ("shape", "npu"),
    mostly_slow(product(SHAPES, described()), lambda shape, npu: npu.arch == ARCH or (shape, npu.arch) in AT_ONCE),
)
def test_programs(machine, shape, npu):
    """min(vector cores, tiles), in one dimension; and together they compute all of it."""
    index = machine.index(npu.arch)
    chosen = plan(*shape, "float32", current_device(index))
    x = torch.randn(shape)
    assert_close(softmax(x.to(f"npu:{index}")).cpu(), expected("softmax", x))
    tiles = -(-shape[0] // chosen.tiling.tile_rows)
    assert machine.launches[-1].grid == (min(npu.vector_cores, tiles), 1, 1)


def test_no_options_of_gpus(machine):
    device = current_device(machine.index(ARCH))
    x, y = jit_launch((1,), device.index, **device.vendor.compile_options(8, 2, 128, device.hardware))
    assert_close(y.cpu(), expected("softmax", x.cpu()))
    chosen = plan(100, 781, "float32", device)
    assert (chosen.num_warps, chosen.num_stages) == (None, None)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [20000, 1000], ids=["online", "tile"])
def test_next_smaller_tile_when_the_buffer_overflows(machine, n_cols, dtype):
    """The profile promises 192 KiB of Unified Buffer, the compiler finds 48."""
    device = current_device(machine.index(SMALL_BUFFER))
    chosen = plan(700, n_cols, dtype, device)
    assert chosen.reasons[0].startswith("rejected ")
    assert "ub overflow, requires" in chosen.reasons[0]
    fits = unified_buffer_bits(machine.compiled[-1], multibuffer=True) // 8
    assert 48 * 2**10 / 2 < fits <= 48 * 2**10  # no smaller than it must be
    x = torch.randn(700, n_cols).to(getattr(torch, dtype))
    result = softmax(x.to(f"npu:{device.index}")).cpu()
    assert_close(result, expected("softmax", x))


def test_the_overflow_is_the_compilers_own_error(machine):
    device = current_device(machine.index(TINY_BUFFER))
    with pytest.raises(CompileError, match=r"available! \(possible reason: tiling basic block is too large") as raised:
        compiled(Tiling(8, 1024), "float32", "float32", device)
    assert isinstance(raised.value.__cause__, MLIRCompilationError)
    assert "[ConvertLinalgRToBinary] encounters error" in str(raised.value)


TYPES = [*((dtype, dtype) for dtype in DTYPES), ("float16", "float32"), ("float32", "bfloat16")]


def test_kernels_run_on_the_tensors_device(machine):
    """Whichever is the current one."""
    index = machine.index(ARCH)
    with torch.npu.device(0):
        softmax(torch.zeros(3, 5, device=f"npu:{index}"))
        assert machine.launches[-1].arch == ARCH
        assert torch.npu.current_device() == 0
