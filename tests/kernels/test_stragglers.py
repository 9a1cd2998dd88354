"""Words of programs that share rows, lost, late, twice, stale or overwritten: always the bits of a run without trouble."""

import pytest
import torch
import triton.language as tl
from faults import LOSSES, publish_by, twice
from test_exchange import Case, assert_same, at_once, looking, untroubled  # noqa: F401 - a fixture
from test_exchange import case as case  # fixtures
from test_exchange import direction as direction
from test_exchange import interpreter as interpreter

from portable_softmax.kernels.exchange import publish
from portable_softmax.runtime.workspace import next_number

pytestmark = pytest.mark.kernel
ANOTHER = next_number()


@pytest.fixture
def searches(monkeypatch):
    """The splits that programs find by themselves."""
    from portable_softmax.kernels import exchange, fallback

    made = []

    def recorded(words, step, split, *arguments, found=exchange.found):
        made.append(split)
        return found(words, step, split, *arguments)

    monkeypatch.setattr(fallback, "found", recorded)
    return made


@pytest.mark.each_value
@pytest.mark.parametrize("trouble", LOSSES, ids=lambda trouble: trouble.fn.__name__)
def test_words_that_are_not_there_in_time(interpreter, untroubled, case, searches, monkeypatch, trouble):  # noqa: F811
    publish_by(monkeypatch, trouble)
    assert_same(case(at_once(looking(interpreter, 3), 2)), untroubled)
    assert searches, "nobody missed a word"


@pytest.mark.each_value
@pytest.mark.parametrize("lost", range(6))
def test_each_program_whose_words_are_lost(interpreter, direction, searches, monkeypatch, lost):
    """The others see each other's; those of its row find its split."""
    case, run = Case("no mask", direction), at_once(looking(interpreter, 40), 3)
    right = case(run)

    def published(words, step, split, *arguments):
        if tl.program_id(0) != lost:
            publish(words, step, split, *arguments)

    publish_by(monkeypatch, published)
    assert_same(case(run), right)
    assert lost % 3 in searches


@pytest.mark.each_value
def test_words_that_come_twice(interpreter, untroubled, case, monkeypatch):  # noqa: F811
    publish_by(monkeypatch, twice)
    assert_same(case(at_once(looking(interpreter, 3), 4)), untroubled)


def stamped(number):
    """Fills words with numbers of another launch: maxima of 100.0 and sums of 3.0."""

    def left(words, launch):
        halves = torch.tensor([number(launch) & 0xFFFFFFFF, number(launch) >> 32]).repeat(len(words) // 2)
        words.copy_(halves << 32 | torch.tensor([100.0, 3.0]).view(torch.int32).repeat(len(words) // 2))

    return left


def constant(value):
    return lambda words, launch: words.view(torch.int32).fill_(value)


STALE = {
    "the launch before": stamped(lambda launch: launch - 0x9E3779B97F4A7C15 & (1 << 63) - 1),
    "any other launch": stamped(lambda launch: ANOTHER),
    "halves swapped": stamped(lambda launch: (launch & 0xFFFFFFFF) << 32 | launch >> 32 & 0xFFFFFFFF),
    "the same low half": stamped(lambda launch: launch ^ 1 << 40),
    "the same high half": stamped(lambda launch: launch ^ 1 << 20),
    "zeros": constant(0),
    "ones": constant(1),
    "-1": constant(-1),
    "1.0": constant(0x3F800000),
    "nan": constant(0x7FC00000),
}


def test_memory_that_others_left(interpreter, direction, searches):
    """To the first program of a row, which runs alone, all words but its own are missing."""
    case = Case("no mask", direction)
    right = case(at_once(interpreter, 5))
    for name, left in STALE.items():
        del searches[:]
        assert_same(case(at_once(interpreter, 5, left, resident=1)), right)
        assert searches == [1, 2] * 2, f"of each row, the first of three programs finds two splits beside {name}"
