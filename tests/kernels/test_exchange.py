"""Rows that programs share: whatever becomes of words and in whatever order programs run, results are right and none waits.

In Triton's interpreter any step of a program may come between those of another, and amdgcn_cpu interleaves AMD machine code.
test_neighbours.py has situations of a GPU; runtime/test_static_quality.py shows that loops of compiled code end.
"""

import itertools
import random

import machines
import pytest
import torch
from faults import FAULTS, publish_by
from launched_rows import check
from table import Row
from together import at_once

from portable_softmax.kernels import exchange, softmax
from portable_softmax.runtime.workspace import next_number

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # of numpy, in a program's thread
LAYOUTS = "two rows", "two unaligned rows", "few side by side"
SPLITS = "splits", "splits in blocks", "splits read twice"
KINDS = {"softmax": (), "gradient": (), "log_softmax": (), "log_probs": ("entropy",), "log gradient": ()}


def rows(seeds, types):
    """Returns rows in turn: in the second row of each, a seed of 1 puts an inf, of 2 nothing else than -inf."""
    cases = [case for case in itertools.product(LAYOUTS, SPLITS, KINDS) if case[::2] != ("few side by side", "log_probs")]
    turns = zip(cases, itertools.cycle(types), itertools.cycle(seeds))
    return [Row(*case, dtype, KINDS[case[2]], seed) for case, dtype, seed in turns]


HOSTILE = rows((1, 2, 5, 9, 12), (torch.float32, torch.float16, torch.float32))
FINITE = rows((9, 4), (torch.float32,))
ORDERS = (  # one after another they run in other tests
    {},
    {"resident": 1, "order": lambda numbers: [*numbers][::-1]},
    {"resident": 2, "order": lambda numbers: random.Random(5).sample([*numbers], len(numbers))},
    {"order": lambda numbers: sorted(numbers, key=lambda number: number % 3)},  # one split of all rows after another
)


@pytest.fixture
def interpreter(device):
    if device.backend != "interpreter":
        pytest.skip("programs run at once in the interpreter")
    return device


@pytest.fixture
def looks(monkeypatch):
    """What programs saw when they had looked: True where a neighbour's numbers were missing."""
    seen = []

    def recorded(*arguments, look=exchange.look):
        found = look(*arguments)
        seen.append(bool((found[2].handle.data == float("inf")).any()))
        return found

    for room in (softmax, exchange):
        monkeypatch.setattr(room, "look", recorded)
    return seen


def in_turn(cases, *others):
    """Returns parameters: each case with one of each of the others."""
    return [pytest.param(*case, id=f"{at}-{case[0]}") for at, case in enumerate(zip(cases, *map(itertools.cycle, others)))]  # noqa: B905


@pytest.mark.kernel
@pytest.mark.parametrize("row", [row for row in FINITE if row.tiling == "splits"], ids=str)
def test_words_arrive(interpreter, row, looks):
    """No row is read again by programs that wait for long enough."""
    check(row, at_once(interpreter, 1, polls=200))
    assert looks
    assert not any(looks)


@pytest.mark.kernel
@pytest.mark.parametrize(("row", "order", "fault", "polls"), in_turn(HOSTILE, ORDERS, [None, *FAULTS], (1, 3)))
def test_words_that_are_lost_late_or_overwritten_in_any_order(interpreter, row, order, fault, polls, looks, monkeypatch):
    if fault:
        publish_by(monkeypatch, FAULTS[fault])
    check(row, at_once(interpreter, row.number, polls, **order))
    assert any(looks) or not fault, "no program missed a word"


@pytest.mark.kernel
@pytest.mark.parametrize("row", [row for row in HOSTILE if row.kind == "log_probs"], ids=str)
def test_words_of_entropies_alone_that_are_lost(interpreter, row, looks, monkeypatch):
    calls = itertools.count()
    publish_by(monkeypatch, lambda *arguments: None if next(calls) % 2 else exchange.publish(*arguments))
    check(row, at_once(interpreter, 1, polls=9, resident=1))  # so that the two calls of a program follow each other
    assert any(looks)


ANOTHER, LOW = next_number(), 0xFFFFFFFF
STALE = {  # numbers of another launch, of the number of this one
    "the launch before": lambda launch: launch - 0x9E3779B97F4A7C15 & (1 << 63) - 1,
    "any other launch": lambda launch: ANOTHER,
    "halves swapped": lambda launch: (launch & LOW) << 32 | launch >> 32 & LOW,
    "the same low half": lambda launch: launch ^ 1 << 40,
    "zeros": None,
}


def stamped(words, number):
    """Fills words with maxima of 100.0 and sums of 3.0 of that launch; with 0 if there is none."""
    if number is None:
        return words.zero_()
    halves = torch.tensor([number & LOW, number >> 32]).repeat(len(words) // 2)
    return words.copy_(halves << 32 | torch.tensor([100.0, 3.0]).view(torch.int32).repeat(len(words) // 2))


@pytest.mark.kernel
@pytest.mark.parametrize(("left", "row"), in_turn(STALE, FINITE[::2]))
def test_memory_that_others_left(interpreter, left, row, looks):
    """To the first program that looks, which runs alone, all words but its own are missing."""
    number = STALE[left] or (lambda launch: None)
    check(row, at_once(interpreter, 5, 3, lambda words, launch: stamped(words, number(launch)), **ORDERS[1]))
    assert any(looks)


# ---------------------------------------------------------------- AMD machine code
PAIRS = ("two rows", "splits"), ("two unaligned rows", "splits in blocks"), ("few side by side", "splits read twice")
ON_AMD = [Row(*pair, kind, number=9) for pair in PAIRS for kind in ("softmax", "gradient")]


@pytest.mark.parametrize(("row", "arch"), in_turn(ON_AMD, ("gfx942", "gfx1100", "gfx1100")))
def test_machine_code_in_any_interleaving(row, arch):
    for seed, order in enumerate(ORDERS[:3]):
        check(row, machines.amd(arch, seed=seed, **order))
