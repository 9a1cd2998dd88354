"""Rows that lie side by side, in what is read, in the result or in both: tiles of several, also shared by programs."""

import functools

import pytest
import torch
import triton
import triton.language as tl
from direct import INF, LAYOUTS, NAN, as_they_are, backward, beside, forward, launch
from forms import in_kernel

from portable_softmax.kernels.addressing import first_of_split
from portable_softmax.kernels.splits import sum_over_splits
from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
TILINGS = {  # of rows of 40 columns; in blocks, the last of which may lie behind all columns
    "tile": Tiling(16, 64),
    "tile in blocks": Tiling(16, 16, blocks=3),
    "online": Tiling(16, 16, held=False),
    "shared": Tiling(16, 16, splits=3),
    "online, 4 warps": Tiling(16, 32, 4, held=False),  # several columns of each thread, on a GPU
    "online, 32 warps": Tiling(16, 16, 32, held=False),  # the same in the interpreter, whose warps count as one thread
    "shared in blocks": Tiling(16, 4, splits=3, blocks=4),
    "shared, read twice": Tiling(16, 8, splits=3, blocks=2, held=False),
    "shared, read twice in three": Tiling(16, 8, splits=2, blocks=3, held=False),
    "shared by two": Tiling(16, 32, splits=2, walk=False),
}
MATRICES = (2, 40, 33)
OTHERS = [(1, 40, 20), (3, 37, 7), (5, 33, 2)]  # the last's tiles hold rows of several matrices


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


@pytest.fixture
def side_by_side(device, where):
    if device.backend != "interpreter" and not device.vendor.scattered_rows:
        pytest.skip(f"{device.backend} has no such tiles")

    def run(direction, layout, tiling, sizes, form="softmax", dtype=torch.float32, special=None):
        launched = functools.partial(launch, device)
        beside(direction, layout, device, launched, form, dtype, where, sizes, tiling, 2 * tiling.splits, special)

    return run


@pytest.mark.each_value
@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tiling(side_by_side, direction, layout, tiling):
    side_by_side(direction, layout, TILINGS[tiling], MATRICES)


@pytest.mark.parametrize("sizes", OTHERS, ids=str)
def test_other_sizes(side_by_side, direction, sizes):
    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS["shared by two"], sizes)


@pytest.mark.each_value
@pytest.mark.parametrize("tiling", ["tile in blocks", "online", "online, 32 warps", "shared", "shared, read twice"])
@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
def test_every_form(side_by_side, direction, form, tiling):
    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS[tiling], MATRICES, form)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_types_of_two_bytes(side_by_side, direction, dtype):
    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS["shared in blocks"], MATRICES, dtype=dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("tiling", ["shared", "shared, read twice", "online, 4 warps", "online, 32 warps"])
def test_splits_that_are_masked_wholly(side_by_side, direction, tiling):
    """The first split of one row, the last of another, all of a third; and rows next to each other that differ by a lot."""

    def special(x, sign):
        x += sign * 100 * torch.arange(len(x)).unsqueeze(1)
        x[1, :16], x[2, 16:], x[3] = (-sign * float("inf"),) * 3

    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS[tiling], MATRICES, special=special if direction is forward else as_they_are)


@triton.jit
def sums_kernel(out_ptr, statistics_ptr, FORM: tl.constexpr):
    splits, rows = tl.expand_dims(tl.arange(0, FORM.splits), 1), tl.arange(0, FORM.tile_rows)
    numbers = tl.load(statistics_ptr + splits * FORM.tile_rows + tl.expand_dims(rows, 0))
    tl.store(out_ptr + rows, sum_over_splits(numbers, tl.max(tl.abs(numbers), axis=0), FORM))


def test_sums_over_splits_have_the_same_bits_in_any_order(device, where):
    """Numbers of both signs and of many sizes; sums in float32 differ, those of float64 nearly do not."""
    draw = torch.Generator().manual_seed(1)
    numbers = torch.randn(64, 32, generator=draw) * 10 ** (8 * torch.rand(64, 32, generator=draw) - 4)
    numbers[:, 1:4] = 0.0
    numbers[5, 2], numbers[6, 3], numbers[7, 4], numbers[8, 4] = NAN, INF, INF, -INF
    found = []
    for seed in range(5):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))
        sums = torch.empty(32, device=where)
        sums_kernel[(1,)](sums, numbers[order].contiguous().to(where), in_kernel(splits=64, tile_rows=32))
        found.append(sums.cpu())
    assert all(torch.equal(each.view(torch.int32)[:2], found[0].view(torch.int32)[:2]) for each in found)
    assert all(torch.equal(each.view(torch.int32)[5:], found[0].view(torch.int32)[5:]) for each in found)
    exact, sizes = numbers.double().sum(0), numbers.double().abs().sum(0)
    assert ((found[0].double() - exact).abs() <= 2**-24 * exact.abs() + 2**-38 * sizes)[5:].all()
    assert found[0][1] == 0
    assert found[0][2].isnan()
    assert found[0][3] == INF
    assert found[0][4].isnan()
    in_other_orders = [functools.reduce(torch.add, numbers[torch.randperm(64, generator=draw)]) for _ in range(5)]
    assert any(not torch.equal(each[5:], in_other_orders[0][5:]) for each in in_other_orders), "numbers that show an order"


@triton.jit
def _first_columns(out_ptr, n_cols, FORM: tl.constexpr):
    split = tl.program_id(0)
    first_col = first_of_split(split, n_cols, FORM)
    tl.store(out_ptr + 2 * split, first_col)
    tl.store(out_ptr + 2 * split + 1, tl.minimum(first_col + FORM.tile_cols, n_cols))


def test_splits_past_2_to_the_31_columns(where):
    """Columns of (2_200_000_000, 2) in 80 splits, as an H200 is planned to have: each begins where the one before ends."""
    n_cols, tile_cols = torch.tensor(2_200_000_000), 27_500_544
    out = torch.zeros(80, 2, dtype=torch.int64, device=where)
    _first_columns[(80,)](out, int(n_cols), in_kernel(width=tile_cols, axis=0))
    first = torch.arange(80) * tile_cols
    assert torch.equal(out.cpu(), torch.stack([first, (first + tile_cols).minimum(n_cols)], 1))
