"""The words that the programs of a launch get, and its number."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime import workspace

CPU = torch.device("cpu")
PROBLEM = Problem(5, 100, "float32", "float32", 1)


SEVEN_SPLITS = Tiling(1, 16, 1, 1, 7)


@pytest.fixture
def calls():
    """Collects what a launch is called with."""
    return []


@pytest.fixture
def launch(calls):
    return workspace.with_workspace(lambda *arguments: calls.append(arguments), PROBLEM, SEVEN_SPLITS, CPU)


def test_each_call_has_words_and_a_number_of_its_own(launch, calls):
    for _ in range(3):
        launch("y", "x")
    assert [each[:-2] for each in calls] == [("y", "x")] * 3
    words, numbers = zip(*(each[-2:] for each in calls), strict=True)
    assert len({each.data_ptr() for each in words}) == len(set(numbers)) == 3
    assert all((each.dtype, each.device) == (torch.int64, CPU) for each in words)


@pytest.mark.parametrize("splits", [2, 7, 8, 9, 64])
def test_each_split_of_each_row_has_two_words(calls, splits):
    tiling = Tiling(1, 16, 1, 1, splits)
    workspace.with_workspace(lambda *arguments: calls.append(arguments), PROBLEM, tiling, CPU)()
    ((words, _),) = calls
    assert words.numel() == 5 * tiling.words_per_tile == 5 * 2 * splits


LEFT = 2**40 + 7


@pytest.fixture
def left(monkeypatch):
    """Fills new memory with this number."""

    def empty(where):
        return lambda shape, strides, dtype: torch.full(shape, LEFT, dtype=dtype, device=where)

    monkeypatch.setattr(workspace, "allocator", empty)
    return LEFT


@pytest.fixture(params=[False, True], ids=["no capture", "a capture"])
def capturing(request, monkeypatch):
    """Tells torch whether a graph is being captured; streams of the CPU have none."""
    monkeypatch.setattr(torch.cpu, "is_current_stream_capturing", lambda: request.param, raising=False)
    return request.param


def test_words_are_cleared_where_a_graph_replays_them(left, capturing, calls):
    """They hold what a launch of the same number left there; elsewhere there is no need, and it would cost a launch."""
    launch = workspace.with_workspace(lambda *arguments: calls.append(arguments), PROBLEM, SEVEN_SPLITS, CPU)
    launch()
    ((words, _),) = calls
    assert (words == (0 if capturing else left)).all()


@pytest.mark.kernel
@pytest.mark.accelerator
def test_words_are_cleared_in_a_graph_of_a_device(where, left, calls):
    if where.type != "cuda":
        pytest.skip(f"CUDA graphs were written for torch's device type cuda, which NVIDIA and AMD have; this is {where.type}")
    launch = workspace.with_workspace(lambda *arguments: calls.append(arguments), PROBLEM, SEVEN_SPLITS, where)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    ((words, _),) = calls
    for _ in range(2):
        words.fill_(left)
        graph.replay()
        torch.cuda.synchronize()
        assert (words == 0).all()


def halves_of(number):
    assert -(2**63) <= number < 2**63, "a kernel takes a signed number of 64 bits"
    return number & 0xFFFFFFFF, number >> 32


def assert_differ(numbers):
    for half in zip(*map(halves_of, numbers), strict=True):
        assert len(set(half)) == len(numbers)
        assert 0 not in half, "zeroed memory would hold words of this launch"


def test_numbers_of_launches_and_from_threads():
    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(lambda: [workspace.next_number() for _ in range(2500)]) for _ in range(8)]
    assert_differ([number for result in results for number in result.result()])
