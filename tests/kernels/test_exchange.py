"""Rows that programs share: whatever becomes of words and in whatever order programs run, results are right and none waits.

In Triton's interpreter any step of a program may come between those of another, and amdgcn_cpu interleaves AMD machine code.
test_neighbours.py has situations of a GPU; runtime/test_static_quality.py shows that loops of compiled code end.
"""

import itertools
from dataclasses import replace

import machines
import pytest
import torch
from faults import FAULTS, publish_by
from launched_rows import check
from table import Row, table
from together import at_once

from portable_softmax.kernels import exchange, softmax
from portable_softmax.runtime import bind

FEW = {"vectors": "two rows", "unaligned": "two unaligned rows", "side by side": "few side by side"}
SPLITS = "splits", "splits in blocks", "splits read twice"
ROWS = [replace(row, layout=FEW[row.layout]) for row in table() if row.layout in FEW and row.tiling in SPLITS]
RESIDENT = None, 1, 2  # how many programs run at once; None: all


@pytest.fixture
def looks(device, monkeypatch):
    """What programs saw when they had looked: True where a neighbour's numbers were missing."""
    if device.backend != "interpreter":
        pytest.skip("programs run at once in the interpreter")
    seen = []

    def recorded(*arguments, look=exchange.load_partials):
        stats = look(*arguments)
        seen.append(bool((stats[2].handle.data == float("inf")).any()))
        return stats

    for room in (softmax, exchange):
        monkeypatch.setattr(room, "load_partials", recorded)
    return seen


def in_turn(cases, *others):
    """Returns parameters: each case with one of each of the others."""
    return [pytest.param(*case, id=f"{at}-{case[0]}") for at, case in enumerate(zip(cases, *map(itertools.cycle, others)))]  # noqa: B905


@pytest.mark.kernel
@pytest.mark.parametrize(("row", "resident", "fault", "polls"), in_turn(ROWS, RESIDENT, [None, *FAULTS], range(1, 8)))
def test_words_that_arrive_or_are_lost_late_or_overwritten(device, row, resident, fault, polls, looks, monkeypatch):
    if fault:
        publish_by(FAULTS[fault], monkeypatch.setattr)
    arrive = not resident and not fault  # to programs that wait for long enough
    check(row, at_once(device, row.number, 200 if arrive else polls, resident))
    assert any(looks) or (looks and not fault), "no program looked, or missed a word"
    assert not (any(looks) and arrive), "a row was read again"


@pytest.mark.kernel
@pytest.mark.parametrize("row", [replace(row, options=("entropy",)) for row in ROWS if row.kind == "log_probs"], ids=str)
def test_words_of_entropies_alone_that_are_lost(device, row, looks, monkeypatch):
    publish_by(lambda *words: words[2] is words[3] or exchange.publish(*words), monkeypatch.setattr)
    check(row, at_once(device, 1))
    assert any(looks)


LOW, BEFORE, LAUNCH = 0xFFFFFFFF, bind.next_number(), bind.next_number()
STALE = {
    "the launch before": BEFORE,
    "halves swapped": (LAUNCH & LOW) << 32 | LAUNCH >> 32,
    "the same low half": LAUNCH ^ 1 << 40,
    "zeros": 0,
}


@pytest.mark.kernel
@pytest.mark.parametrize(("left", "row"), in_turn(STALE, ROWS[::3]))
def test_memory_that_others_left(device, left, row, looks, monkeypatch):
    """Maxima of 100.0 and sums of 3.0. To the first program, which runs alone, all words but its own are missing."""
    halves, numbers = torch.tensor([STALE[left] & LOW, STALE[left] >> 32]), torch.tensor([100.0, 3.0]).view(torch.int32)
    words = halves << 32 | numbers
    monkeypatch.setattr(bind, "next_number", lambda: LAUNCH)
    monkeypatch.setattr(bind, "allocator", lambda where: lambda shape, *_: words.repeat(shape[0] // 2))
    check(row, at_once(device, 5, 3, 1))
    assert any(looks)


ON_AMD = [Row(*pair, kind, number=9) for pair in zip(FEW.values(), SPLITS, strict=True) for kind in ("softmax", "gradient")]


@pytest.mark.parametrize(("row", "arch"), in_turn(ON_AMD, ("gfx942", "gfx1100", "gfx1100")))
def test_machine_code_in_any_interleaving(row, arch):
    for seed, resident in enumerate(RESIDENT):
        check(row, machines.amd(arch, seed=seed, resident=resident, order=lambda numbers: [*numbers][::-1]))
