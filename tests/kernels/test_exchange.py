"""Rows shared by several programs, which run at once, in any order, one after another: the same bits, and none waits.

Whatever becomes of the words that they publish: lost, late, twice, stale or overwritten; and where they overwrite what others
read. In the interpreter, where any step of a program may come between those of another; test_order.py looks at compiled code.
"""

import functools
import random

import pytest
import torch
import triton
import triton.language as tl
from direct import (
    NAN,
    assert_close,
    backward,
    expected,
    forward,
    launch,
    overwriting,
    problem_of,
    result_in,
    rows_in,
)
from faults import IN_PLACE, LATE, LOSSES, publish_by, twice
from shared_rows import CASES, STALE, TRANSPOSED, Case, assert_same, at_once, looking, shared
from triton.runtime.errors import InterpreterError

from portable_softmax.kernels import exchange, fallback
from portable_softmax.kernels.exchange import in_order, publish

pytestmark = pytest.mark.kernel
BLIND = 0  # looks, ahead of the one that comes when a split has been read again: so each program reads the splits of all others


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
        direction(run, "softmin", torch.float32, where, 37, shared(16, 3), programs, vector=4, stride=39)


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


@pytest.mark.each_value
@pytest.mark.parametrize("lost", range(6))
def test_each_program_whose_words_are_lost(interpreter, direction, searches, monkeypatch, lost):
    """The others see each other's; those of its row find its split."""
    case, run = Case("no mask", direction), at_once(looking(interpreter, 40), 3)
    right = case(run)

    def published(words, split, *arguments):
        if tl.program_id(0) != lost:
            publish(words, split, *arguments)

    publish_by(monkeypatch, published)
    assert_same(case(run), right)
    assert lost % 3 in searches


def test_memory_that_others_left(interpreter, direction, searches):
    """To the first program of a row, which runs alone, all words but its own are missing."""
    case = Case("no mask", direction)
    right = case(at_once(interpreter, 5))
    for name, left in STALE.items():
        del searches[:]
        assert_same(case(at_once(interpreter, 5, left, resident=1)), right)
        assert searches == [1, 2] * 2, f"of each row, the first of three programs finds two splits beside {name}"


@pytest.fixture(params=[1, 2], ids=["over x or dy", "over y"])
def operand(request, case):
    if request.param == 2 and case.direction is forward:
        pytest.skip("a softmax has one operand")
    if request.param == 1 and case.name == TRANSPOSED:
        pytest.skip("its result cannot lie where x does")
    return request.param


@triton.jit
def held(words, split, SEM: tl.constexpr, FORM: tl.constexpr):
    """Holds a program between its reading and the second look."""
    for _ in range(LATE):
        tl.atomic_or(words, 0 if FORM.one_row else tl.zeros(words.shape, tl.int64), sem="relaxed")
    in_order(words, split, SEM, FORM)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("polls", "seed", "resident", "order", "trouble"),
    [
        (BLIND, 1, None, sorted, None),  # programs see no words but those of the second look, and run at once
        (BLIND, 2, 1, shuffled, None),  # or one by one
        (BLIND, 1, None, sorted, held),
        *(pytest.param(2, 5, None, sorted, trouble, marks=pytest.mark.slow) for trouble in IN_PLACE),
    ],
)
def test_results_that_overwrite_what_others_read(
    interpreter, case, operand, untroubled, monkeypatch, polls, seed, resident, order, trouble
):
    if trouble is held:  # meanwhile the owner's word and results arrive: what was read is whole, half or wrong, and is dropped
        monkeypatch.setattr(fallback, "in_order", held)
    elif trouble:
        publish_by(monkeypatch, trouble)
    run = at_once(looking(interpreter, polls), seed, resident=resident, order=order, every_load=True)
    assert_same(case(overwriting(run, operand)), untroubled)


@pytest.mark.parametrize("name", ["no mask", "rows side by side"])
@pytest.mark.parametrize("way", [forward, backward])
def test_without_the_second_look_results_would_be_wrong(interpreter, monkeypatch, name, way):
    """So the tests above can fail."""
    monkeypatch.setattr(fallback, "looked_again", lambda words, firsts, seconds, *rest: (firsts, seconds))
    with pytest.raises(AssertionError):
        Case(name, way)(overwriting(at_once(looking(interpreter, BLIND), 1, resident=1), 1))


def test_results_ahead_of_words_would_be_wrong(interpreter, monkeypatch):
    """A word that is lost while its split is overwritten, which no launch may do: its memory belongs to the call."""
    publish_by(monkeypatch, lambda *arguments: None)
    with pytest.raises(AssertionError):
        Case("no mask", forward)(overwriting(at_once(looking(interpreter, 1), 1, resident=1), 1))


def test_a_launch_elsewhere_has_no_fence(interpreter, monkeypatch, direction):
    def not_called(*arguments):
        raise AssertionError("only launches in place pay for the order")

    monkeypatch.setattr("portable_softmax.kernels.exchange.in_order", not_called)
    Case("no mask", direction)(at_once(interpreter, 1))
    with pytest.raises(InterpreterError, match="only launches in place"):
        Case("no mask", direction)(overwriting(at_once(interpreter, 1), 1))


def test_programs_that_would_wait_are_seen(interpreter, direction, where, monkeypatch):
    """So the tests above would fail, not hang: here no word arrives, and programs look for it for ever."""
    monkeypatch.setattr("together.MOST_STEPS", 500)
    publish_by(monkeypatch, lambda *arguments: None)
    with pytest.raises(TimeoutError, match="10 programs still wait"):
        direction(at_once(looking(interpreter, 10**6), 0), "softmax", torch.float32, where, 30, shared(16, 2), 10)
