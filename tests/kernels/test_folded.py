"""Rows side by side in lines of an odd length, several of which are read as one."""

import functools

import pytest
import torch
import triton
import triton.language as tl
from direct import as_they_are, backward, forward, in_folded_lines, launch
from forms import in_kernel

from portable_softmax.kernels.folded import folded_turn
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import next_power_of_2

pytestmark = pytest.mark.kernel
TILINGS = {  # of rows of 40 columns in 10 lines of four, or 5 of eight
    "one program": Tiling(16, 16, walk=False),
    "in blocks": Tiling(16, 4, blocks=3, walk=False),
    "fewer programs than tiles": Tiling(16, 4, splits=3),
    "two splits in blocks": Tiling(16, 4, splits=2, blocks=2, walk=False),
    "read twice": Tiling(16, 4, blocks=3, held=False, walk=False),
    "two splits read twice": Tiling(8, 2, splits=2, blocks=4, held=False, walk=False),
    "splits beyond the last line": Tiling(8, 4, splits=4, walk=False),
}
SIZES = [(1, 40, 17), (3, 80, 33), (1, 16, 51), (2, 40, 20)]  # the last lines are read as one without a need


@pytest.fixture
def run(device, where):
    if device.backend != "interpreter" and not device.hardware.warp_size:
        pytest.skip(f"{device.backend} reads lines as they are")

    def run(direction, tiling, sizes, count=4, form="softmax", dtype=torch.float32, special=None):
        launched = functools.partial(launch, device)
        in_folded_lines(direction, count, launched, form, dtype, where, sizes, tiling, 2 * tiling.splits, special)

    return run


@pytest.mark.each_value
@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("tiling", TILINGS)
def test_every_tiling(run, direction, tiling):
    run(direction, TILINGS[tiling], (2, 40, 33))


@pytest.mark.each_value
@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_other_sizes(run, direction, sizes):
    run(direction, Tiling(16, 8, splits=3, walk=False), sizes)
    run(direction, Tiling(8, next_power_of_2(sizes[1] // 4), held=False, walk=False), sizes)


@pytest.mark.each_value
@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("direction", [forward, backward])
def test_other_forms_and_types(run, direction, form, dtype):
    run(direction, TILINGS["two splits in blocks"], (1, 80, 17), 8, form, dtype)
    run(direction, TILINGS["two splits read twice"], (1, 80, 17), 8, form, dtype)


def test_rows_at_every_place_of_a_line(run):
    """Each row has its elements at eight places of the line; one that is masked in part, or far from 0, stays by itself."""

    def one_by_one(x, sign):
        rows, n_cols = x.shape
        x += 1000.0 * torch.arange(rows).unsqueeze(1)
        x[torch.arange(rows) % 3 == 0, : n_cols // 2] = -float("inf")

    run(forward, TILINGS["one program"], (1, 80, 41), 8, special=one_by_one)
    run(forward, Tiling(32, 16, walk=False), (1, 80, 41), 8, special=as_they_are)


@triton.jit
def turns(out_ptr, tiles, FORM: tl.constexpr):
    turn = tl.program_id(0)
    tl.store(out_ptr + turn, folded_turn(turn, tiles, FORM))


def order_of(tiles, count, where, matrices=1):
    order = torch.full((matrices * tiles,), -1, dtype=torch.int32, device=where)
    turns[(matrices * tiles,)](order, tiles, in_kernel(folded=count, axis=0))
    return order.tolist()


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("tiles", [1, 2, 3, 7, 8, 9, 41, 64])
def test_each_tile_is_taken_once(where, tiles, count):
    for at, matrix in enumerate(torch.tensor(order_of(tiles, count, where, 2)).view(2, tiles).tolist()):
        assert sorted(matrix) == list(range(at * tiles, (at + 1) * tiles))


@pytest.mark.parametrize(
    ("count", "inner", "tile_rows"), [(8, 333, 64), (8, 333, 16), (4, 338, 16), (2, 1332, 16), (8, 201, 16)]
)
def test_tiles_with_the_same_rows_are_taken_in_turn(where, count, inner, tile_rows):
    """No tile waits for one that is more than five groups behind, wherever a place of the line begins in a tile."""
    tiles = -(-count * inner // tile_rows)
    turn = {tile: turn for turn, tile in enumerate(order_of(tiles, count, where))}
    for row in range(inner):
        of_row = [turn[(place * inner + row) // tile_rows] for place in range(count)]
        assert max(of_row) - min(of_row) < 5 * count
