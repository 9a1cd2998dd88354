"""A timed launch of each class of cells computes what float64 does, forward, backward and in both steps of shards."""

import pytest

from portable_probe.tune import measuring
from portable_probe.tune.cells import Cell

SMALL = {"row": (64, 1024), "unaligned": (64, 601), "heads": (128, 64), "across": (256, 64), "transposed": (64, 200)}
CELLS = [(kind, rows, cols, None) for kind, (rows, cols) in SMALL.items()]
CELLS += [("shards", 16, 1024, step) for step in ("reduce", "map")]


@pytest.mark.kernel
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("kind", "n_rows", "n_cols", "step"), CELLS)
def test_each_class_is_measured(device, kind, n_rows, n_cols, step, backward):
    cell = Cell(kind, n_rows, n_cols, "bfloat16", backward, step)
    assert measuring.timed(cell, measuring.planned(cell, ()), False).error < 1
