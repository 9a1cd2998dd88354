"""Programs that share rows which they overwrite: the bits of a launch that writes elsewhere, whoever is late.

In the interpreter, where any step of a program may come between those of another; test_order.py looks at compiled code.
"""

import pytest
import torch
import triton
import triton.language as tl
from direct import as_they_are, backward, forward, in_folded_lines, overwriting
from faults import IN_PLACE, LATE, publish_by
from test_exchange import CASES, Case, assert_same, at_once, looking, shuffled, untroubled  # noqa: F401 - a fixture
from test_exchange import case as case  # fixtures
from test_exchange import direction as direction
from test_exchange import interpreter as interpreter
from triton.runtime.errors import InterpreterError

from portable_softmax.kernels import fallback
from portable_softmax.kernels.exchange import in_order
from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
BLIND = 0  # looks, ahead of the one that comes when a split has been read again: so each program reads the splits of all others
TRANSPOSED = "rows transposed"  # its x lies otherwise than the result


@pytest.fixture(params=[1, 2], ids=["over x or dy", "over y"])
def operand(request, case):
    if request.param == 2 and case.direction is forward:
        pytest.skip("a softmax has one operand")
    if request.param == 1 and case.name == TRANSPOSED:
        pytest.skip("its result cannot lie where x does")
    return request.param


@pytest.mark.each_value
@pytest.mark.parametrize(("seed", "resident", "order"), [(1, None, sorted), (2, 1, shuffled)], ids=["at once", "one by one"])
def test_programs_that_see_no_words_but_those_of_the_second_look(
    interpreter, case, operand, untroubled, seed, resident, order  # noqa: F811
):  # fmt: skip
    run = at_once(looking(interpreter, BLIND), seed, resident=resident, order=order, every_load=True)
    assert_same(case(overwriting(run, operand)), untroubled)


def test_rows_of_which_one_tile_has_some_and_another_has_the_others(interpreter, direction):
    """In folded lines: one of these tiles is overwritten when a program reads both, the other is not yet."""

    def result(run):
        tiling, where = Tiling(4, 2, walk=False), torch.device("cpu")
        return in_folded_lines(direction, 4, run, "softmax", torch.float32, where, (1, 8, 33), tiling, None, as_they_are)

    run = at_once(looking(interpreter, BLIND), 1, resident=1, order=shuffled)
    assert_same(result(overwriting(run, 1)), result(at_once(interpreter, 1)))


@pytest.mark.slow
@pytest.mark.each_value
@pytest.mark.parametrize("trouble", IN_PLACE, ids=lambda trouble: trouble.fn.__name__)
def test_words_that_come_late_or_twice(interpreter, case, operand, untroubled, monkeypatch, trouble):  # noqa: F811
    publish_by(monkeypatch, trouble)
    run = at_once(looking(interpreter, 2), 5, every_load=True)
    assert_same(case(overwriting(run, operand)), untroubled)


@triton.jit
def held(words, step, split, known, SEM: tl.constexpr, FORM: tl.constexpr):
    for _ in range(LATE):
        tl.atomic_or(words, 0 if FORM.one_row else tl.zeros(words.shape, tl.int64), sem="relaxed")
    in_order(words, step, split, known, SEM, FORM)


@pytest.mark.each_value
def test_a_program_that_is_held_between_its_reading_and_the_second_look(
    interpreter, case, operand, untroubled, monkeypatch  # noqa: F811
):  # fmt: skip
    """Meanwhile the owner's word arrives, and its results: what was read is whole, half or wrong, and is dropped."""
    monkeypatch.setattr(fallback, "in_order", held)
    run = at_once(looking(interpreter, BLIND), 1, every_load=True)
    assert_same(case(overwriting(run, operand)), untroubled)


@pytest.mark.parametrize("name", [name for name in CASES if name not in (TRANSPOSED, "beyond the end")])  # it begins with -inf
@pytest.mark.parametrize("way", [forward, backward])
def test_without_the_second_look_results_would_be_wrong(interpreter, monkeypatch, name, way):
    """So the tests above can fail."""
    monkeypatch.setattr(fallback, "looked_again", lambda words, step, firsts, seconds, *rest: (firsts, seconds))
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
