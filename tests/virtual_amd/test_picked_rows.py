"""The machine code of log-probabilities and of their gradient, executed and compared with float64, hostile rows and all."""

import pytest
import torch
from log_probs import IGNORED, both, hostile
from machine_code import CPU, PRODUCTS, prepared

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.each_value
TILINGS = {
    "rows": Tiling(4, 128, 1),
    "blocks": Tiling(1, 64, 1, blocks=2),
    "read again": Tiling(1, 64, 1, held=False),
    "splits": Tiling(1, 32, 1, splits=3, blocks=2),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("n_ids", [1, 2])
@pytest.mark.parametrize("tiling", TILINGS.values(), ids=TILINGS)
@pytest.mark.parametrize("product", PRODUCTS.values(), ids=PRODUCTS)
def test_numbers_and_gradients(product, tiling, n_ids, dtype):
    x = hostile(100).to(dtype)
    ids = torch.randint(0, 100, (9, n_ids), generator=torch.Generator().manual_seed(3))
    ids[0, -1], ids[2, 0], ids[1] = IGNORED, 0, 50
    temperatures = torch.tensor([1, 0.5, 2, 1e-6, 30, 0.7, 1, 1, 1]) if n_ids == 1 else None
    both(Device.from_profile(product), x.to(CPU), ids, tiling, temperatures, prepare=prepared())
