"""Surroundings of a launch: hooks, streams and devices that are not there, words and numbers of launches, threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from threading import Barrier

import pytest
import torch
from exact import assert_close, expected

from portable_softmax import Device, softmax
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime import bind
from portable_softmax.runtime.kernel import kernels_of

LEFT = 2**40 + 7  # in new memory


@pytest.mark.parametrize(("splits", "capturing"), [(2, False), (7, True), (64, False)])
def test_each_call_has_words_and_a_number_of_its_own(splits, capturing, monkeypatch):
    """A graph clears words, which hold what a launch of the same number left there; elsewhere it would cost a launch."""
    monkeypatch.setattr(torch.cpu, "is_current_stream_capturing", lambda: capturing, raising=False)
    monkeypatch.setattr(bind.torch, "empty", lambda size, dtype, device: torch.full((size,), LEFT, dtype=dtype))
    problem, tiling, calls = contiguous_problem(5, 16 * splits, "float32"), Tiling(1, 16, 1, splits), []
    plan, device = LaunchPlan(problem, tiling, num_programs=5 * splits), Device.from_profile("nvidia/h200")
    kernels = [(one, lambda _, arguments: calls.append(arguments)) for one in kernels_of(problem, tiling, device)]
    launch = bind.bind(plan, kernels, torch.device("cpu"))
    operands = "y", "x", *[None] * 6
    for _ in range(3):
        launch(*operands)
    assert [call[:8] for call in calls] == [operands] * 3
    words, numbers = [call[8] for call in calls], {call[-2] for call in calls}
    assert len({word.data_ptr() for word in words}) == len(numbers) == 3
    assert all((word == (0 if capturing else LEFT)).all() for word in words)
    assert all((word.dtype, word.numel()) == (torch.int64, 5 * 4 * splits) for word in words)


def test_numbers_of_launches_and_from_threads():
    """Both halves differ from all others, and are no words of zeroed memory nor of numbers below 2**64."""
    with ThreadPoolExecutor(8) as pool:
        numbers = [*chain.from_iterable(pool.map(lambda _: [bind.next_tag() for _ in range(2500)], range(8)))]
    assert all(0 < number < 2**63 for number in numbers), "a kernel takes a signed number of 64 bits"
    for half in zip(*((number & 0xFFFFFFFF, number >> 32) for number in numbers), strict=True):
        assert len(set(half)) == len(numbers)
        assert min(half) >= 0x5F800000
        assert max(half) < 0x7F800000, "infinities and nan"


DTYPES = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.kernel
def test_first_calls_of_many_threads(where, request):
    """Each of another shape and type, so that each plans, compiles and launches; threads change in the middle of all of it."""
    barrier = Barrier(8, timeout=60)

    def call(number):
        x = torch.randn(3, 901 + number, generator=torch.Generator().manual_seed(number)).to(where, DTYPES[number % 3])
        barrier.wait()
        for _ in range(4):
            assert_close(softmax(x, -1), expected("softmax", x))

    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(8)))
