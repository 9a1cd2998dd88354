"""Gradients of rows that are read two by two, each of which must be as if the other were not there."""

import pytest
import torch
from direct import INF, NAN, as_they_are, backward, launch

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.reading import in_pairs as pairs_of

pytestmark = pytest.mark.kernel
TILINGS = {  # of pairs of 2 * 21 columns
    "whole": (21, Tiling(1, 64)),
    "several": (21, Tiling(2, 64)),
    "blocks, one of both rows": (21, Tiling(2, 16, blocks=3)),
    "blocks of one word": (5, Tiling(4, 2, blocks=5)),
    "one each": (21, Tiling(1, 64, walk=False)),
    "no columns beyond": (1, Tiling(2, 2)),
}


@pytest.fixture
def in_pairs(device, where):
    def launch_pairs(operands, problem, tiling, programs):
        pairs = pairs_of(problem)
        launch(device, operands, pairs, tiling, programs if tiling.walk else pairs.tiles(tiling.tile_rows))

    def run(tiling, form="softmax", dtype=torch.bfloat16, special=None, n_rows=6):
        n_cols, tiling = TILINGS[tiling]
        return backward(launch_pairs, form, dtype, where, n_cols, tiling, 2, n_rows=n_rows, special=special)

    return run


@pytest.mark.parametrize("tiling", TILINGS)
def test_every_tiling(in_pairs, tiling):
    for n_rows in (2, 3, 6, 7, 9):  # the last of an odd number is alone, in a full tile or in one that ends with it
        in_pairs(tiling, n_rows=n_rows)


@pytest.mark.parametrize("form", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_every_form_and_type(in_pairs, form, dtype):
    for n_rows in (6, 7):
        in_pairs("blocks, one of both rows", form, dtype, n_rows=n_rows)


@pytest.mark.parametrize("tiling", ["several", "blocks, one of both rows"])
def test_a_row_does_not_see_the_other_one_of_its_pair(in_pairs, tiling):
    def broken(first, second):
        def special(dy, sign):
            dy[0], dy[3], dy[4, -1], dy[5, 0] = first, second, NAN, INF
            dy[2] *= 1e4

        return special

    as_usual = in_pairs(tiling, special=as_they_are, n_rows=7)
    for special in (broken(NAN, INF), broken(INF, -INF)):
        found = in_pairs(tiling, special=special, n_rows=7)
        assert torch.equal(found[1], as_usual[1]), "to the bit"
        assert torch.equal(found[6], as_usual[6]), "the last one, which is alone"
        assert found[2].isfinite().all()
