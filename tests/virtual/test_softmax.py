"""Operators on npu tensors, the whole way: detection, profile, plan, compilation, launch, numbers against float64."""

from itertools import cycle

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of

from portable_softmax import current_device, log_softmax, profiles, softmax
from portable_softmax.runtime.launch import softmax_backward_rows, softmax_rows
from virtual.machine import UNKNOWN

OPERATORS = {"softmax": softmax, "log_softmax": log_softmax}
SHAPES = [(1823, 781), (1, 1), (100, 1), (33, 1024), (5, 10000), (3, 65536), (70000, 16)]
DTYPES = ["float32", "float16", "bfloat16"]
ARCH, PADDING = "Ascend910B3", 16
# A chip of each architecture. Chips of one differ in their cores alone: test_launch.py runs the same kernels on all of them.
CHIPS = [*{profile.architecture: profile.arch for profile in profiles().values() if profile.backend == "npu"}.values(), UNKNOWN]
INF, NAN = float("inf"), float("nan")


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


@pytest.mark.parametrize(("shape", "dtype"), zip(SHAPES, cycle(DTYPES)), ids=str)
def test_nothing_around_the_output_is_written(machine, shape, dtype):
    x, y = random(*shape, dtype), on_npu(framed(*shape, dtype, 7.0), machine)
    softmax_rows(inner(on_npu(x, machine)), inner(y), current_device(y.device.index))
    assert_close(inner(y).cpu(), expected("softmax", inner(x)))
    frame = y.cpu()
    inner(frame).fill_(7.0)
    assert (frame == 7.0).all()


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [781, 10000], ids=["tile", "online"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_special_values(machine, operator, n_cols, dtype):
    whole = random(9, n_cols, dtype)
    x, middle = inner(whole), n_cols // 2
    x[0], x[1], x[2] = NAN, INF, -INF
    x[3, middle], x[4, middle], x[5, middle] = NAN, INF, -INF
    x[6, :middle] = -INF  # in the online form, the first tile and more
    x[7, 0] = NAN
    assert_close(OPERATORS[operator](inner(on_npu(whole, machine))).cpu(), expected(operator, x), terms_of(operator))


@pytest.mark.each_value
@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 1:], lambda x: x[::3], lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[:1].expand(9, -1)],
    ids=["unaligned rows", "every third row", "transposed", "every second column", "expanded"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_views(machine, view, dtype):
    whole = random(60, 200, dtype)
    result = softmax(view(inner(on_npu(whole, machine))))
    assert_close(result.cpu(), expected("softmax", view(inner(whole))))


@pytest.mark.parametrize(("given", "wanted"), [("bfloat16", "float32"), ("float16", "float32"), ("float32", "bfloat16")])
@pytest.mark.parametrize("n_cols", [781, 10000], ids=["tile", "online"])
def test_other_output_types(machine, n_cols, given, wanted):
    whole, dtype = random(20, n_cols, given), getattr(torch, wanted)
    result = softmax(inner(on_npu(whole, machine)), dtype=dtype)
    assert result.dtype == dtype
    assert_close(result.cpu(), expected("softmax", inner(whole).to(dtype)))


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", OPERATORS)
def test_fused_gradients(machine, form, shape, dtype):
    """The backward kernel on rows that lie apart, into a frame that must stay."""
    y = random(*shape, dtype)
    inner(y).copy_(getattr(torch, form)(inner(y).double(), -1))
    dy, dx = random(*shape, dtype).flip(0), on_npu(framed(*shape, dtype, 7.0), machine)
    softmax_backward_rows(
        inner(on_npu(dy, machine)), inner(on_npu(y, machine)), inner(dx), current_device(dx.device.index), form
    )
    frame, (dy, y) = dx.cpu(), (inner(each) for each in (dy, y))
    assert_close(inner(frame), expected_gradient(form, dy, y), gradient_scale(form, dy, y))
    inner(frame).fill_(7.0)
    assert (frame == 7.0).all()


def test_gradients_through_autograd():
    """On device 0, the only Python-backed one that autograd counts."""
    x = torch.randn(4, 30)
    on_host, moved = x.clone().requires_grad_(), x.to("npu:0").requires_grad_()
    torch.softmax(on_host, -1)[:, 3].sum().backward()
    softmax(moved)[:, 3].sum().backward()
    torch.testing.assert_close(moved.grad.cpu(), on_host.grad)
