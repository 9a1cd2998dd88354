"""Operators on npu tensors, the whole way: detection, profile, plan, compilation, launch, numbers against float64."""

from dataclasses import replace

import pytest
import torch
from closeness import assert_close, expected, terms_of
from direct import backward, forward, launch

from portable_softmax import current_device, log_softmax, profiles, softmax
from portable_softmax.planning.plan import Tiling
from virtual.machine import UNKNOWN

OPERATORS = {"softmax": softmax, "log_softmax": log_softmax}
SHAPES = [(1823, 781), (1, 1), (100, 1), (33, 1024), (5, 10000), (3, 65536), (70000, 16)]
DTYPES = ["float32", "float16", "bfloat16"]
ARCH, PADDING = "Ascend910B3", 16
# A chip of each architecture. Chips of one differ in their cores alone: test_launch.py runs the same kernels on all of them.
CHIPS = [*{profile.architecture: profile.arch for profile in profiles().values() if profile.backend == "npu"}.values(), UNKNOWN]
NAN = float("nan")
TILINGS = {  # tiling, columns; the second is of two passes
    "tile": (Tiling(4, 1024), 781),
    "online": (Tiling(2, 1024, held=False), 2500),
}


def framed(n_rows, n_cols, dtype, frame):
    """A matrix inside a larger one, whose other elements, before, after and between its rows, are all `frame`."""
    return torch.full((n_rows + 2, n_cols + PADDING), frame, dtype=getattr(torch, dtype))


def inner(whole):
    return whole[1:-1, :-PADDING]


def random(n_rows, n_cols, dtype):
    whole = framed(n_rows, n_cols, dtype, NAN)
    inner(whole).copy_(torch.randn(n_rows, n_cols, generator=torch.Generator().manual_seed(n_rows)))
    return whole


def on_npu(whole, machine, arch=ARCH):
    """Moves the whole: `to` would not keep the strides of its inner part."""
    return whole.to(torch.device("npu", machine.index(arch)))


@pytest.mark.each_value
@pytest.mark.parametrize("arch", CHIPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_architecture(machine, operator, shape, dtype, arch):
    whole = random(*shape, dtype)
    result = OPERATORS[operator](inner(on_npu(whole, machine, arch)))
    assert result.device == torch.device("npu", machine.index(arch))
    assert result.dtype == whole.dtype
    assert machine.launches[-1].arch == arch
    assert_close(result.cpu(), expected(operator, inner(whole)), terms_of(operator))


@pytest.mark.pairwise
@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("strategy", TILINGS)
@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_and_guards(machine, direction, strategy, form, dtype):
    """Rows that lie apart, masked or not finite; nothing around the result is written."""
    (tiling, n_cols), device = TILINGS[strategy], current_device(machine.index(ARCH))

    def run(operands, problem, *rest):
        with torch.npu.device(device.index):
            launch(device, operands, replace(problem, unaligned=False), *rest)

    where = torch.device(machine.where(ARCH))
    direction(run, form, getattr(torch, dtype), where, n_cols, tiling, 2, 1, n_cols + PADDING, n_rows=9)


def test_gradients_through_autograd():
    """On device 0, the only Python-backed one that autograd counts."""
    x = torch.randn(4, 30)
    on_host, moved = x.clone().requires_grad_(), x.to("npu:0").requires_grad_()
    torch.softmax(on_host, -1)[:, 3].sum().backward()
    softmax(moved)[:, 3].sum().backward()
    torch.testing.assert_close(moved.grad.cpu(), on_host.grad)
