"""The machine code of each architecture, executed and compared with float64."""

import pytest
import torch
from direct import backward
from machine_code import CPU, FOREMOST, PRODUCTS, in_virtual_device  # noqa: F401
from strategies import *  # noqa: F403

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.reading import in_pairs as pairs_of

pytestmark = pytest.mark.each_value
RUN_ON = in_virtual_device


@pytest.mark.parametrize("n_rows", [6, 7])
def test_gradients_of_rows_in_pairs(product, n_rows):
    run = in_virtual_device(product)

    def in_pairs(operands, problem, tiling, programs):
        run(operands, pairs_of(problem), tiling, programs)

    for tiling in (Tiling(2, 64, 1), Tiling(2, 16, 1, blocks=3)):
        backward(in_pairs, "softmax", torch.bfloat16, CPU, 21, tiling, 2, n_rows=n_rows)
