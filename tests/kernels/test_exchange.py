"""Rows shared by several programs, which run at once, in any order, one after another: results are right, and none waits.

Whatever becomes of the words that they publish: lost, late, twice, stale or overwritten. In the interpreter, where any step of
a program may come between those of another. The cases compare each result with float64.
"""

import random

import pytest
import torch
from direct import (
    NAN,
    as_they_are,
    assert_close,
    backward,
    expected,
    forward,
    launch,
    launching,
    problem_of,
    result_in,
    rows_in,
)
from faults import LOSSES, publish_by, twice
from log_probs import both, hostile
from shared_rows import CASES, STALE, Case, assert_same, at_once, looking, prepared_together, shared

from portable_softmax.kernels import softmax as kernels
from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
SPLITS = Tiling(1, 16, splits=3, blocks=2)


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
def looks(monkeypatch):
    """What programs saw when they had looked: True where a neighbour's numbers were missing."""
    seen = []

    def recorded(*arguments, look=kernels.look):
        found = look(*arguments)
        seen.append(bool((found[2].handle.data == float("inf")).any()))
        return found

    monkeypatch.setattr(kernels, "look", recorded)
    return seen


def shuffled(numbers):
    return random.Random(5).sample(numbers, len(numbers))


def by_split(numbers):
    """All programs of one split before those of any other."""
    return sorted(numbers, key=lambda number: number % 3)


@pytest.mark.each_value
@pytest.mark.parametrize(("polls", "seed"), [(1, 0), (1, 1), (3, 2)])
def test_any_interleaving(interpreter, case, polls, seed):
    case(at_once(looking(interpreter, polls), seed))


def test_bits_do_not_depend_on_the_order_unless_a_neighbour_is_late(interpreter, case, looks):
    results = [case(at_once(looking(interpreter, 10**6), seed), as_they_are) for seed in (0, 1)]
    assert_same(*results)
    assert looks
    assert not any(looks)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("resident", "order"), [(1, sorted), (1, reversed), (1, shuffled), (2, shuffled), (2, by_split), (7, by_split)]
)
def test_any_order_and_number_at_once(interpreter, case, resident, order):
    case(at_once(interpreter, 1, resident=resident, order=order))


@pytest.mark.parametrize("programs", [3, 6, 15])
def test_programs_that_take_several_rows(device, where, direction, programs):
    run = launching(device)
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


@pytest.mark.each_value
@pytest.mark.parametrize("trouble", [*LOSSES, twice], ids=lambda trouble: trouble.fn.__name__)
def test_words_that_are_not_there_in_time_or_come_twice(interpreter, case, looks, monkeypatch, trouble):
    publish_by(monkeypatch, trouble)
    case(at_once(looking(interpreter, 3), 2))
    assert any(looks) or trouble is twice, "no program missed a word"


def test_memory_that_others_left(interpreter, direction, looks):
    """To the first program of a row, which runs alone, all words but its own are missing."""
    for left in STALE.values():
        del looks[:]
        Case("no mask", direction)(at_once(interpreter, 5, left, resident=1))
        assert looks == [True, True, False] * 2


@pytest.mark.each_value
@pytest.mark.parametrize("trouble", [None, *LOSSES], ids=lambda trouble: trouble and trouble.fn.__name__)
def test_log_probabilities(interpreter, monkeypatch, trouble):
    """The program of the last split computes what it misses."""
    if trouble:
        publish_by(monkeypatch, trouble)
    x = hostile(90)
    ids = torch.arange(9).unsqueeze(1) * 10
    ids[2] = 0
    both(interpreter, x, ids, SPLITS, prepare=prepared_together(looking(interpreter, 3), 4))


@pytest.mark.parametrize("held", [True, False])
def test_two_launches_have_the_same_bits_in_any_order(interpreter, direction, held):
    """Nothing is exchanged within either."""
    tiling = Tiling(1, 16, splits=3, blocks=2, held=held, two_launches=True)
    how = "softmax", torch.float32, torch.device("cpu"), 85, tiling, 6, 4, 87

    def result(**together):
        return direction(at_once(interpreter, 3, **together), *how, n_rows=2)

    assert_same(result(resident=1, order=reversed), result())
