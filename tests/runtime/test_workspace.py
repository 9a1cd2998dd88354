"""The words that the programs of a launch get, and its number."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime import workspace

CPU, LEFT = torch.device("cpu"), 2**40 + 7


def launched(calls, splits=7, where=CPU):
    """Returns a launch of rows in so many splits, whose arguments are appended to `calls`."""
    problem, tiling = Problem(5, 100, "float32", "float32", 1), Tiling(1, 16, 1, 1, splits)
    return workspace.with_workspace(lambda *arguments: calls.append(arguments), problem, tiling, where)


@pytest.mark.parametrize("splits", [2, 7, 64])
def test_each_call_has_words_and_a_number_of_its_own(splits):
    calls = []
    launch = launched(calls, splits)
    for _ in range(3):
        launch("y", "x")
    assert [each[:-2] for each in calls] == [("y", "x")] * 3
    words, numbers = zip(*(each[-2:] for each in calls), strict=True)
    assert len({each.data_ptr() for each in words}) == len(set(numbers)) == 3
    assert all((each.dtype, each.device, each.numel()) == (torch.int64, CPU, 5 * 2 * splits) for each in words)


@pytest.fixture
def left(monkeypatch):
    """Fills new memory with LEFT."""
    monkeypatch.setattr(
        workspace, "allocator", lambda where: lambda size, _, dtype: torch.full(size, LEFT, dtype=dtype, device=where)
    )


@pytest.mark.parametrize("capturing", [False, True])
def test_words_are_cleared_where_a_graph_replays_them(left, monkeypatch, capturing):
    """They hold what a launch of the same number left there; elsewhere there is no need, and it would cost a launch."""
    monkeypatch.setattr(torch.cpu, "is_current_stream_capturing", lambda: capturing, raising=False)
    calls = []
    launched(calls)()
    assert (calls[0][0] == (0 if capturing else LEFT)).all()


@pytest.mark.kernel
@pytest.mark.accelerator
def test_words_are_cleared_in_a_graph_of_a_device(where, left):
    if where.type != "cuda":
        pytest.skip(f"CUDA graphs were written for torch's device type cuda, which NVIDIA and AMD have; this is {where.type}")
    calls, graph = [], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launched(calls, where=where)()
    for _ in range(2):
        calls[0][0].fill_(LEFT)
        graph.replay()
        torch.cuda.synchronize()
        assert (calls[0][0] == 0).all()


def test_numbers_of_launches_and_from_threads():
    """Both halves differ from all others, and are no words of zeroed memory nor of numbers below 2**64."""
    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(lambda: [workspace.next_number() for _ in range(2500)]) for _ in range(8)]
    numbers = [number for result in results for number in result.result()]
    assert all(0 < number < 2**63 for number in numbers), "a kernel takes a signed number of 64 bits"
    for half in zip(*((number & 0xFFFFFFFF, number >> 32) for number in numbers), strict=True):
        assert len(set(half)) == len(numbers)
        assert min(half) >= 0x5F800000
        assert max(half) < 0x7F800000, "infinities and nan"
