"""Rows that programs share: whatever becomes of words and in whatever order programs run, results are right and none waits.

amdgcn_cpu interleaves the machine code of programs at any instruction, in an order that a seed selects; a launch of far too
many instructions is an error. test_neighbours.py has situations of a GPU; runtime/test_static_quality.py shows that loops end.
"""

from dataclasses import replace

import machines
import pytest
import torch
from faults import FAULTS, publish_by
from launched_rows import check
from sweep import in_turn, mostly_slow
from table import table

from portable_softmax.runtime import bind, compile

FEW = {"vectors": "two rows", "unaligned": "two unaligned rows", "side by side": "few side by side"}
SPLITS = "splits", "splits in blocks", "splits read twice"
ROWS = [replace(row, layout=FEW[row.layout]) for row in table() if row.layout in FEW and row.tiling in SPLITS]
ROWS.sort(key=lambda row: row.layout == "few side by side" and row.tiling == "splits in blocks")  # of which each takes seconds
ARCHITECTURES = "gfx942", "gfx1100"
RESIDENT = None, 1, 2  # how many programs run at once; None: all
POLLS = 3


@pytest.fixture
def publish(monkeypatch):
    """Returns a function after which kernels publish by another one."""

    def by(fault):
        forget()
        publish_by(fault, monkeypatch.setattr)

    def forget():
        compile.compiled.cache_clear()
        machines.code.cache_clear()

    yield by
    forget()


CASES = in_turn(ROWS, ARCHITECTURES, RESIDENT, [None, *FAULTS])
ENTROPIES = next(replace(row, options=("entropy",)) for row in ROWS if row.kind == "log_probs")


@pytest.mark.parametrize(
    ("row", "arch", "resident", "fault"),
    [*mostly_slow(CASES, lambda *case: case in CASES[::13]), (ENTROPIES, "gfx942", None, "entropies_lost")],
    ids=str,
)
def test_words_that_arrive_or_are_lost_late_or_overwritten(row, arch, resident, fault, publish):
    if fault:
        publish(FAULTS[fault])
    for order in (sorted, lambda numbers: [*numbers][::-1]):
        check(row, machines.amd(arch, POLLS, seed=row.number, resident=resident, order=order))


LOW, BEFORE, LAUNCH = 0xFFFFFFFF, bind.next_tag(), bind.next_tag()
STALE = {
    "of the launch before": BEFORE,
    "halves swapped": (LAUNCH & LOW) << 32 | LAUNCH >> 32,
    "with the same low half": LAUNCH ^ 1 << 40,
    "zeros": 0,
}


@pytest.mark.parametrize(("left", "row"), mostly_slow(zip(STALE, ROWS[::3], strict=False), lambda left, row: " the " in left))
def test_memory_that_others_left(left, row, monkeypatch):
    """Maxima of 100.0 and sums of 3.0. To the first program, which runs alone, all words but its own are missing."""
    halves, numbers = torch.tensor([STALE[left] & LOW, STALE[left] >> 32]), torch.tensor([100.0, 3.0]).view(torch.int32)
    words = halves << 32 | numbers
    monkeypatch.setattr(bind, "next_tag", lambda: LAUNCH)
    monkeypatch.setattr(bind.torch, "empty", lambda size, **_: words.repeat(size // 2))
    check(row, machines.amd("gfx942", POLLS, seed=5, resident=1))
