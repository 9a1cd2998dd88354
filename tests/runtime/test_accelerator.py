"""Graphs, streams, several devices, threads, processes, sizes and training: only a real device shows them."""

import exact
import pytest
import torch
from exact import assert_close, expected

from portable_softmax import softmax

pytestmark = [pytest.mark.kernel, pytest.mark.accelerator]
SHAPES = ((64, 333), (64, 4096), (8, 100_000), (3, 700, 48))  # one tile, long rows, across lines


graphs = pytest.mark.skipif(not torch.cuda.is_available(), reason="streams and graphs of torch.cuda")


def y_and_dx(x):
    """The softmax of x along dim 1, and the gradient of sum(y * x.detach())."""
    y = softmax(x, 1)
    return y.detach(), *torch.autograd.grad((y * x.detach()).sum(), x)


def assert_right(x, y, dx):
    x, y, dx = (tensor.detach().movedim(1, -1).cpu() for tensor in (x, y, dx))
    assert_close(y, expected("softmax", x))
    exact.assert_right(dx, *exact.gradient(x, y, log=False))


@graphs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_graph_replays_with_new_data(where, shape):
    x, side, graph = torch.randn(shape, device=where, requires_grad=True), torch.cuda.Stream(where), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream(where))
    with torch.cuda.stream(side):
        y_and_dx(x)  # compiles, which a capture cannot
    torch.cuda.current_stream(where).wait_stream(side)
    with torch.cuda.graph(graph):
        y, dx = y_and_dx(x)
    for seed in range(3):
        with torch.no_grad():
            x.copy_(torch.randn(shape, generator=torch.Generator().manual_seed(seed)))
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert_right(x, y, dx)


@graphs
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_on_a_side_stream(where, shape):
    """The side stream sleeps before it writes the input: work on any other stream would read zeros."""
    values, x = torch.randn(shape, device=where), torch.zeros(shape, device=where, requires_grad=True)
    y_and_dx(x)  # compiled before the race starts
    stream = torch.cuda.Stream(where)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        with torch.no_grad():
            x.copy_(values)
        y, dx = y_and_dx(x)
    stream.synchronize()
    assert_right(x, y, dx)


def test_a_device_that_is_not_the_current_one(where):
    module = getattr(torch, where.type)
    if module.device_count() < 2:
        pytest.skip(f"{module.device_count()} device here; two are needed")
    assert module.current_device() == 0
    for shape in SHAPES:
        x = torch.randn(shape, device=f"{where.type}:1", requires_grad=True)
        y, dx = y_and_dx(x)
        assert y.device == dx.device == x.device
        assert_right(x, y, dx)
        near = torch.randn(shape, device=f"{where.type}:0")
        assert_close(softmax(near, 1), expected("softmax", near, 1))
    assert module.current_device() == 0


HUGE = ((2**31 + 40, 1), 1), ((2**21 + 8, 1030), 1), ((2100, 2**20 + 3), 1), ((3, 30_000, 24_000), 1), ((2, 2**26 + 7, 16), 1)


@pytest.mark.parametrize(("shape", "dim"), HUGE, ids=str)
def test_more_than_2_to_the_31_elements(where, shape, dim):
    """In float16: the first and the last rows against float64, and no element left unwritten."""
    if torch.cuda.mem_get_info()[0] < 40e9:
        pytest.skip(f"{torch.cuda.mem_get_info()[0] / 1e9:.0f} GB of memory are free; 40 are needed")
    x = torch.empty(shape, dtype=torch.float16, device=where).normal_()
    y = softmax(x, dim)
    for batch, end in ((0, slice(0, 2)), (-1, slice(-2, None))):
        place = end if x.dim() == 2 else (batch, slice(None), end)
        rows, results = (tensor[place] if tensor.dim() == 2 else tensor[place].t() for tensor in (x, y))
        assert_close(results, expected("softmax", rows))
    assert not any(split.isnan().any() for split in y.view(-1).split(2**28))
