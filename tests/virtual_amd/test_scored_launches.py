"""AMD's machine code of the softmax of scores and its gradient, executed the whole way and compared with float64."""

import pytest
import torch
from scored import TOGETHER, choose, compare, compare_gradient

from portable_softmax.operators import memory
from portable_softmax.planning.plan import Tiling

FORMS = ("softmax", "log_softmax", "softmin")
DTYPES = (torch.float32, torch.bfloat16)
TILINGS = {  # tiling, columns
    "held": (Tiling("tile", 2, 256, 2), 200),
    "streamed": (Tiling("online", 1, 128, 2), 328),
    "shared": (Tiling("shared", 1, 128, 1, None, 3), 328),
}
DEVICES = {"gfx942": "driver_mi300x", "gfx1100": "driver_rx7900xtx"}


@pytest.fixture
def where(machine, monkeypatch):
    def tiled(arch, name):
        choose(monkeypatch, TILINGS[name][0])
        return f"cuda:{machine.index(DEVICES[arch])}"

    yield tiled
    memory.forget()


@pytest.mark.each_value
@pytest.mark.parametrize("direction", [compare, compare_gradient])
@pytest.mark.parametrize("arch", DEVICES)
@pytest.mark.parametrize("strategy", TILINGS)
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_steps_together(where, direction, arch, strategy, name, form, dtype):
    direction(where(arch, strategy), name, form, dtype, TILINGS[strategy][1])
