"""Operators on npu tensors, the whole way: detection, profile, plan, compilation, launch, numbers against float64."""

import pytest
import torch

from portable_softmax import current_device, log_softmax, softmax
from portable_softmax.probe.verify import allowed_error, softmax_in_float64
from portable_softmax.runtime.launch import softmax_backward_rows, softmax_rows
from virtual.machine import UNKNOWN, described

OPERATORS = {
    "softmax": (softmax, softmax_in_float64),
    "log_softmax": (log_softmax, lambda x: torch.log_softmax(x.double(), -1)),
}
SHAPES = [(1823, 781), (1, 1), (100, 1), (33, 1024), (5, 10000), (3, 65536), (70000, 16)]
DTYPES = ["float32", "float16", "bfloat16"]
ARCHES = [npu.arch for npu in described()]
ARCH, PADDING = "Ascend910B3", 16
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
    """Of the whole: `to` would not keep the strides of its inner part."""
    return whole.to(torch.device("npu", machine.index(arch)))


def check(record, result, x, reference_of):
    """The result of an operator on the rows `x` (of the host) against its reference, within the output's rounding."""
    result, reference = result.cpu(), reference_of(x)
    assert torch.equal(result.isnan(), reference.isnan())
    error = (result.double() - reference).abs().nan_to_num()
    scale = reference.nan_to_num().abs() + (reference < 0).any()  # a logarithm is the difference of terms of about 1
    worst = (error / allowed_error(scale, result.dtype)).max().item()
    record.errors[str(result.dtype).removeprefix("torch.")].append((error.max().item(), worst))
    assert worst <= 1


@pytest.mark.parametrize("arch", [*ARCHES, UNKNOWN])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_profile(machine, record, operator, shape, dtype, arch):
    compute, reference_of = OPERATORS[operator]
    whole = random(*shape, dtype)
    result = compute(inner(on_npu(whole, machine, arch)))
    assert result.device == torch.device("npu", machine.index(arch))
    assert result.dtype == whole.dtype
    assert machine.launches[-1].arch == arch
    check(record, result, inner(whole), reference_of)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_around_the_output_is_written(machine, record, shape, dtype):
    x, y = random(*shape, dtype), on_npu(framed(*shape, dtype, 7.0), machine)
    softmax_rows(inner(on_npu(x, machine)), inner(y), current_device(y.device.index))
    check(record, inner(y), inner(x), softmax_in_float64)
    frame = y.cpu()
    inner(frame).fill_(7.0)
    assert (frame == 7.0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_cols", [781, 10000], ids=["tile", "online"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_special_values(machine, record, operator, n_cols, dtype):
    compute, reference_of = OPERATORS[operator]
    whole = random(9, n_cols, dtype)
    x, middle = inner(whole), n_cols // 2
    x[0], x[1], x[2] = NAN, INF, -INF
    x[3, middle], x[4, middle], x[5, middle] = NAN, INF, -INF
    x[6, :middle] = -INF  # in the online form, the first tile and more
    x[7, 0] = NAN
    check(record, compute(inner(on_npu(whole, machine))), x, reference_of)


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, 1:], lambda x: x[::3], lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[:1].expand(9, -1)],
    ids=["unaligned rows", "every third row", "transposed", "every second column", "expanded"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_views(machine, record, view, dtype):
    whole = random(60, 200, dtype)
    result = softmax(view(inner(on_npu(whole, machine))))
    check(record, result, view(inner(whole)), softmax_in_float64)


@pytest.mark.parametrize(("given", "wanted"), [("bfloat16", "float32"), ("float16", "float32"), ("float32", "bfloat16")])
@pytest.mark.parametrize("n_cols", [781, 10000], ids=["tile", "online"])
def test_other_output_types(machine, record, n_cols, given, wanted):
    whole, dtype = random(20, n_cols, given), getattr(torch, wanted)
    result = softmax(inner(on_npu(whole, machine)), dtype=dtype)
    assert result.dtype == dtype
    check(record, result, inner(whole).to(dtype), softmax_in_float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_fused_gradients(machine, record, form, shape, dtype):
    """The backward kernel on rows that lie apart, into a frame that must stay."""
    y = random(*shape, dtype)
    inner(y).copy_(getattr(torch, form)(inner(y).double(), -1))
    dy, dx = random(*shape, dtype).flip(0), on_npu(framed(*shape, dtype, 7.0), machine)
    softmax_backward_rows(
        inner(on_npu(dy, machine)), inner(on_npu(y, machine)), inner(dx), current_device(dx.device.index), form
    )
    frame, (dy, y) = dx.cpu(), (inner(each).double() for each in (dy, y))
    weights, shares = (y.exp(), dy) if form == "log_softmax" else (y, dy * y)
    factors = (1, weights) if form == "log_softmax" else (weights, weights)
    reference = factors[0] * dy - factors[1] * shares.sum(-1, keepdim=True)
    terms = factors[0] * dy.abs() + factors[1] * shares.abs().sum(-1, keepdim=True)  # what is rounded, and cancels
    error = (inner(frame).double() - reference).abs()
    worst = (error / (allowed_error(terms, frame.dtype))).max().item()
    record.errors[dtype].append((error.max().item(), worst))
    assert worst <= 1
    inner(frame).fill_(7.0)
    assert (frame == 7.0).all()


def test_gradients_through_autograd():
    """On device 0, the only Python-backed one that autograd counts."""
    x = torch.randn(4, 30)
    on_host, moved = x.clone().requires_grad_(), x.to("npu:0").requires_grad_()
    torch.softmax(on_host, -1)[:, 3].sum().backward()
    softmax(moved)[:, 3].sum().backward()
    torch.testing.assert_close(moved.grad.cpu(), on_host.grad)
