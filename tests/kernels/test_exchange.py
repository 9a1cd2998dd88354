"""Rows shared by several programs, which run at once, in any order, one after another: the same bits, and none waits.

Whatever becomes of the words that they publish: lost, late, twice, stale or overwritten. In the interpreter, where any step of
a program may come between those of another.
"""

import functools
import random

import pytest
import torch
from direct import (
    NAN,
    assert_close,
    backward,
    expected,
    forward,
    launch,
    problem_of,
    result_in,
    rows_in,
)
from faults import LOSSES, publish_by, twice
from shared_rows import CASES, STALE, Case, assert_same, at_once, looking, shared

from portable_softmax.kernels import exchange, fallback

pytestmark = pytest.mark.kernel


@pytest.fixture
def interpreter(device):
    if device.backend != "interpreter":
        pytest.skip("programs run at once in the interpreter; tests/kernels/test_neighbours.py launches them on a device")
    return device


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


@pytest.fixture(params=CASES)
def case(request, direction):
    return Case(request.param, direction)


@pytest.fixture
def untroubled(interpreter, case, monkeypatch, kept={}):  # noqa: B006 - the results of this module's tests
    """The result where each program sees all that it looks for."""

    def not_seen(*arguments):
        raise AssertionError("a program found a split of another by itself")

    if case not in kept:
        with monkeypatch.context() as patched:
            patched.setattr("portable_softmax.kernels.fallback.found", not_seen)
            kept[case] = case(at_once(looking(interpreter, 10**6), 0))
    return kept[case]


def shuffled(numbers):
    return random.Random(5).sample(numbers, len(numbers))


def by_split(numbers):
    """All programs of one split before those of any other."""
    return sorted(numbers, key=lambda number: number % 3)


@pytest.mark.each_value
@pytest.mark.parametrize(("polls", "seed"), [(1, 0), (1, 1), (3, 2)])
def test_any_interleaving(interpreter, case, untroubled, polls, seed):
    assert_same(case(at_once(looking(interpreter, polls), seed)), untroubled)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("resident", "order"), [(1, sorted), (1, reversed), (1, shuffled), (2, shuffled), (2, by_split), (7, by_split)]
)
def test_any_order_and_number_at_once(interpreter, case, untroubled, resident, order):
    assert_same(case(at_once(interpreter, 1, resident=resident, order=order)), untroubled)


@pytest.mark.parametrize("programs", [3, 6, 15])
def test_programs_that_take_several_rows(device, where, direction, programs):
    run = functools.partial(launch, device)
    direction(run, "softmax", torch.float32, where, 41, shared(16, 3), programs)
    if device.backend == "interpreter" or device.vendor.aligned_access:
        direction(run, "log_softmax", torch.float32, where, 37, shared(16, 3), programs, vector=4, stride=39)


def test_as_many_splits_as_lanes(device, where):
    x, _ = rows_in(1, 255, 256, torch.float32, where, NAN)
    x[0, : 4 * 31] -= 200
    y, assert_guards = result_in(1, 255, 256, torch.float32, where)
    launch(device, (y, x), problem_of((y, x), "softmax", False), shared(4, 64), 64)
    assert_guards()
    assert_close(y, expected("softmax", x))


@pytest.fixture
def searches(monkeypatch):
    """The splits that programs find by themselves."""
    made = []

    def recorded(words, split, *arguments, found=exchange.found):
        made.append(split)
        return found(words, split, *arguments)

    monkeypatch.setattr(fallback, "found", recorded)
    return made


@pytest.mark.each_value
@pytest.mark.parametrize("trouble", [*LOSSES, twice], ids=lambda trouble: trouble.fn.__name__)
def test_words_that_are_not_there_in_time_or_come_twice(interpreter, untroubled, case, searches, monkeypatch, trouble):
    publish_by(monkeypatch, trouble)
    assert_same(case(at_once(looking(interpreter, 3), 2)), untroubled)
    assert searches or trouble is twice, "nobody missed a word"


def test_memory_that_others_left(interpreter, direction, searches):
    """To the first program of a row, which runs alone, all words but its own are missing."""
    case = Case("no mask", direction)
    right = case(at_once(interpreter, 5))
    for name, left in STALE.items():
        del searches[:]
        assert_same(case(at_once(interpreter, 5, left, resident=1)), right)
        assert searches == [1, 2] * 2, f"of each row, the first of three programs finds two splits beside {name}"
