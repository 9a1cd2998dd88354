"""The machine code of each architecture, executed and compared with float64."""

import pytest
import torch
from direct import beside
from machine_code import CPU, FOREMOST, PRODUCTS, in_virtual_device  # noqa: F401
from strategies import *  # noqa: F403

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.each_value
RUN_ON = in_virtual_device


ACROSS = {  # only the last block of a row is not full
    "tile": (Tiling(16, 64, 2), 50),
    "blocks": (Tiling(16, 32, 4, blocks=3), 90),
    "online": (Tiling(16, 32, 4, held=False), 75),
    "many warps": (Tiling(32, 64, 8), 50),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ACROSS)
def test_across_lines(product, direction, name, dtype):
    tiling, n_cols = ACROSS[name]
    device = Device.from_profile(PRODUCTS[product])
    beside(direction, device, in_virtual_device(product), "softmax", dtype, CPU, (3, n_cols, 40), tiling, 3)
