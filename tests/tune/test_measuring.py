"""A timed launch of each class of cells computes what float64 does, forward and backward."""

import pytest

from portable_probe.tune import measuring
from portable_probe.tune.cells import Cell

SMALL = {"row": (64, 1024), "unaligned": (64, 601), "across 128": (256, 64), "across 49": (98, 40), "transposed": (64, 200)}


@pytest.mark.kernel
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("kind", "shape"), SMALL.items())
def test_each_class_is_measured(device, kind, shape, backward):
    launch = measuring.compiled(Cell(kind, *shape, "bfloat16", backward), None)
    assert launch.planned
    assert measuring.timed(launch).us > 0


@pytest.mark.kernel
def test_a_wrong_result_is_told(device, monkeypatch):
    launch = measuring.compiled(Cell("row", 64, 1024, "float32"), None)
    monkeypatch.setattr(measuring, "prepare", lambda *arguments: lambda out, *given: out.fill_(0.5))
    with pytest.raises(measuring.WrongResultError, match=r"differs from float64 by .* times what is allowed"):
        measuring.timed(launch)
