"""The machine code of each architecture, executed and compared with float64."""

import pytest
import torch
from direct import LAYOUTS, backward, beside
from machine_code import CPU, FOREMOST, PRODUCTS, in_virtual_device  # noqa: F401
from strategies import *  # noqa: F403

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.reading import in_pairs as pairs_of

pytestmark = pytest.mark.each_value
RUN_ON = in_virtual_device


ACROSS = {  # only the last block of a row is not full
    "tile": (Tiling(16, 64, 2), 50),
    "blocks": (Tiling(16, 32, 4, blocks=3), 90),
    "online": (Tiling(16, 32, 4, held=False), 75),
    "many warps": (Tiling(32, 64, 8), 50),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ACROSS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_across_lines(product, direction, layout, name, dtype):
    tiling, n_cols = ACROSS[name]
    device = Device.from_profile(PRODUCTS[product])
    beside(direction, layout, device, in_virtual_device(product), "softmax", dtype, CPU, (3, n_cols, 40), tiling, 3)


@pytest.mark.parametrize("n_rows", [6, 7])
def test_gradients_of_rows_in_pairs(product, n_rows):
    run = in_virtual_device(product)

    def in_pairs(operands, problem, tiling, programs):
        run(operands, pairs_of(problem), tiling, programs)

    for tiling in (Tiling(2, 64, 1), Tiling(2, 16, 1, blocks=3)):
        backward(in_pairs, "softmax", torch.bfloat16, CPU, 21, tiling, 2, n_rows=n_rows)
