"""Which lines are read as one, and the launches of them."""

from dataclasses import replace

import pytest
import torch
from offline import H200, MI300X, light
from test_lines import rows_of

from portable_softmax import Device
from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.planner import choose
from portable_softmax.planning.reading import GROUPS_AT_ONCE, folded, readings
from portable_softmax.planning.request import problem_of

A2 = "ascend/910b3"


def strides_of(shape):
    return torch.empty(shape, device="meta").stride()


def of(shape, dtype="float32", backward=False, line=None, **fields):
    """The problem of a contiguous tensor along dimension 1, or of one whose lines are `line` elements apart."""
    strides = strides_of((*shape[:2], line or shape[2]))
    lines = lines_of(shape, 1, [strides] * (3 if backward else 2), True)
    return replace(problem_of(lines, dtype, dtype, backward=backward), **fields)


@pytest.mark.parametrize(
    ("problem", "count"),
    [
        (of((5, 20_000, 333)), 8),
        (of((5, 20_000, 333), "bfloat16", True), 8),
        (of((5, 20_000, 338)), 4),
        (of((5, 5000, 1332)), 2),
        (of((5, 20_000, 336)), 1),  # every line begins with a whole access
        (of((5, 20_004, 333)), 1),  # no whole number of eight lines
        (of((5, 20_000, 333), line=400), 1),  # lines do not follow each other
        (of((1, 4096, 2**22 - 129)), 8),
        (of((1, 4096, 2**22 + 1)), 1),  # places of words have 32 bits
        (of((5, 20_000, 333), "float64"), 1),  # numbers of 64 bits are not exchanged
        (of((5, 20_000, 333), in_place=True), 8),
        (of((5, 20_000, 333), aligned=False), 1),
        (of((5, 20_000, 333), batch_invariant=True), 1),
    ],
    ids=lambda value: value.size if hasattr(value, "size") else str(value),
)
def test_lines_that_may_be_read_as_one(problem, count):
    for profile in (H200, MI300X):
        assert max(each.folded for each in readings(problem, Device.from_profile(profile))) == count
    assert max(each.folded for each in readings(problem, Device.from_profile(A2))) == 1, (
        "a device without warps moves whole tiles"
    )


def test_nothing_is_read_elsewhere():
    shape, count = (2, 24, 35), 4
    problem = of(shape)
    rows = folded(problem, count)
    assert (rows.n_rows, rows.n_cols, rows.inner, rows.vector) == (2 * 35 * count, 6, 35 * count, 4)
    assert rows.size == problem.size == "70 x 24"
    found, meant = rows_of(rows.lines, 0).view(2, count, 35, 6), rows_of(problem.lines, 0).view(2, 35, 6, count)
    assert torch.equal(found.permute(0, 2, 3, 1), meant)


def test_lines_that_nobody_knows_are_not_folded():
    with pytest.raises(ValueError, match="lines of a float32 softmax are to be folded that are not known"):
        folded(replace(of((5, 24, 35)), lines=None), 8)


@pytest.mark.parametrize(
    "shape", [(5, 20_000, 333), (2, 30_000, 201), (3, 50_264, 1025), (1, 1_000_000, 33), (8, 4096, 1001)], ids=str
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backward", [False, True])
def test_the_programs_that_a_tile_waits_for_are_resident(shape, dtype, backward):
    """Else each would look for the others as long as it may, and then compute everything alone."""
    plan = choose(folded(of(shape, dtype, backward), 8), Device.from_profile(H200), light)
    tiling, problem = plan.tiling, plan.problem
    assert problem.folded == 8
    assert tiling.strategy == "shared"
    assert tiling.tile_rows <= shape[2], "a row would have two places in one tile"
    resident = 132 * plan.occupancy.programs_per_multiprocessor
    assert min(plan.num_programs, GROUPS_AT_ONCE * problem.folded * tiling.splits) <= resident
    assert any(reason.startswith(f"folded: 8 lines of {shape[2]} elements") for reason in plan.reasons)
    assert f"shared: each row of {shape[1]} columns is split over {8 * tiling.splits} programs of " in "\n".join(plan.reasons)
