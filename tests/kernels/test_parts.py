"""Device functions by themselves: sums over splits, and where a split begins."""

import functools

import pytest
import torch
import triton
import triton.language as tl
from direct import INF, NAN
from forms import in_kernel

from portable_softmax.kernels.addressing import first_of_split
from portable_softmax.kernels.splits import sum_over_splits

pytestmark = pytest.mark.kernel


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
