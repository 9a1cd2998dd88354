"""The softmax of scores on tensors of Intel's GPUs and its gradient, the whole way, in every strategy, against float64."""

import pytest
import torch
from scored import TOGETHER, choose, compare, compare_gradient

from intel import live
from portable_softmax.planning.plan import Tiling

TILINGS = {  # tiling, columns
    "held": (Tiling("tile", 2, 256, 2), 200),
    "streamed": (Tiling("online", 1, 128, 2), 328),
    "shared": (Tiling("shared", 1, 128, 1, None, 3), 328),
}
DEVICES = {"32 lanes": "driver_max1100", "16 lanes": "driver_b580"}


@pytest.mark.pairwise
@pytest.mark.parametrize("lanes", DEVICES)
@pytest.mark.parametrize("direction", [compare, compare_gradient])
@pytest.mark.parametrize("strategy", TILINGS)
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("form", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_steps_together(machine, monkeypatch, recorded, lanes, direction, strategy, name, form, dtype):
    tiling, cols = TILINGS[strategy]
    choose(monkeypatch, tiling)
    direction(f"xpu:{live.MACHINE.index(DEVICES[lanes])}", name, form, dtype, cols, recorded)
