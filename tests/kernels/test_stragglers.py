"""Words of programs that share rows, lost, late, twice, stale or overwritten: always the bits of a run without trouble."""

import pytest
import torch
import triton
import triton.language as tl
from half_pairs import publish_half
from test_exchange import Case, assert_same, at_once, looking, untroubled  # noqa: F401 - a fixture
from test_exchange import case as case  # fixtures
from test_exchange import direction as direction
from test_exchange import interpreter as interpreter

from portable_softmax.kernels.exchange import publish
from portable_softmax.runtime.workspace import next_number

pytestmark = pytest.mark.kernel
ANOTHER = next_number()


@triton.jit
def every_seventh_lost(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    if tl.program_id(0) % 7 != 3:
        publish(words_ptr, part, first, second, launch, FORM)


@triton.jit
def all_of_a_part_lost(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    if part != 1:
        publish(words_ptr, part, first, second, launch, FORM)


@triton.jit
def all_lost(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    pass


@triton.jit
def first_lost(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    publish_half(words_ptr, part, second, launch, 1, FORM)


@triton.jit
def second_lost(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    publish_half(words_ptr, part, first, launch, 0, FORM)


@triton.jit
def late(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    """After others have looked in vain, and most are done."""
    if tl.program_id(0) % 3 == 1:
        for _ in range(100):
            tl.atomic_or(words_ptr + part, 0, sem="relaxed")
    publish(words_ptr, part, first, second, launch, FORM)


@triton.jit
def halves_apart(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    publish_half(words_ptr, part, second, launch, 1, FORM)
    for _ in range(30):
        tl.atomic_or(words_ptr + part, 0, sem="relaxed")
    publish_half(words_ptr, part, first, launch, 0, FORM)


@triton.jit
def twice(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    publish(words_ptr, part, first, second, launch, FORM)
    publish(words_ptr, part, first, second, launch, FORM)


@triton.jit
def of_another_launch(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    publish(words_ptr, part, first + 1, second * 2, launch + (1 << 33) + 2, FORM)


@triton.jit
def overwritten(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    publish(words_ptr, part, first, second, launch, FORM)
    if tl.program_id(0) % 2 == 0:
        of_another_launch(words_ptr, part, first, second, launch, FORM)


@triton.jit
def half_overwritten(words_ptr, part, first, second, launch, FORM: tl.constexpr):
    """The first word of even programs, and the second of odd ones."""
    publish(words_ptr, part, first, second, launch, FORM)
    publish_half(words_ptr, part, first + 1, launch + (1 << 33) + 2, tl.program_id(0) % 2, FORM)


LOSSES = (every_seventh_lost, all_of_a_part_lost, all_lost, first_lost, second_lost, late, halves_apart)
LOSSES += (of_another_launch, overwritten, half_overwritten)


@pytest.fixture
def searches(monkeypatch):
    """The parts that programs find by themselves."""
    from portable_softmax.kernels import exchange, fallback

    made = []

    def recorded(words_ptr, part, *arguments, found=exchange.found):
        made.append(part)
        return found(words_ptr, part, *arguments)

    monkeypatch.setattr(fallback, "found", recorded)
    return made


@pytest.mark.each_value
@pytest.mark.parametrize("trouble", LOSSES, ids=lambda trouble: trouble.fn.__name__)
def test_words_that_are_not_there_in_time(interpreter, untroubled, case, searches, monkeypatch, trouble):  # noqa: F811
    monkeypatch.setattr("portable_softmax.kernels.exchange.publish", trouble)
    assert_same(case(at_once(looking(interpreter, 3), 2)), untroubled)
    assert searches, "nobody missed a word"


def test_each_program_whose_words_are_lost(interpreter, direction, searches, monkeypatch):
    """The others see each other's; those of its row find its part."""
    case, run = Case("no mask", direction), at_once(looking(interpreter, 40), 3)
    right = case(run)
    for lost in range(6):

        def published(words_ptr, part, *arguments, lost=lost):
            if tl.program_id(0) != lost:
                publish(words_ptr, part, *arguments)

        del searches[:]
        monkeypatch.setattr("portable_softmax.kernels.exchange.publish", published)
        assert_same(case(run), right)
        assert lost % 3 in searches


@pytest.mark.each_value
def test_words_that_come_twice(interpreter, untroubled, case, monkeypatch):  # noqa: F811
    monkeypatch.setattr("portable_softmax.kernels.exchange.publish", twice)
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
        assert searches == [1, 2] * 2, f"of each row, the first of three programs finds two parts beside {name}"
