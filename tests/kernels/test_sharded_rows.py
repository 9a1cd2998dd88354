"""Both kernels of a sharded softmax against float64: every shard reduced, the numbers put together, every shard mapped."""

from dataclasses import replace

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of
from offline import every_launch

from portable_softmax.distributed import steps
from portable_softmax.operators import memory
from portable_softmax.planning import planner
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime import plans
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def given(shape, dtype, where, seed=0):
    return (3 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(where, dtype)


def in_shards(form, sizes, a, b, dtype, backward, x_dtype=None):
    """The results of all shards, put together; the operands are [outer, n_cols, inner]."""
    splits = [(x.contiguous(), y.contiguous()) for x, y in zip(a.split(sizes, 1), b.split(sizes, 1), strict=True)]
    numbers = torch.cat([steps.reduce_shard(*split, 1, dtype, form, backward) for split in splits])
    if backward:
        numbers = numbers.sum(0, keepdim=True)  # as an all-reduce does
    outs = [torch.empty_like(split[0], dtype=x_dtype or dtype) for split in splits]
    for split, out in zip(splits, outs, strict=True):
        steps.map_shard(*split, numbers, out, 1, form, backward)
    return torch.cat(outs, 1)


def check(form, shape, sizes, dtype, where):
    x = given(shape, dtype, where)
    y = in_shards(form, sizes, x, x, dtype, False)
    assert_close(y, expected(form, x, 1), terms_of(form))
    dy, whole = given(shape, dtype, where, seed=1), expected(form, x, 1).to(dtype)
    dx = in_shards(form, sizes, dy, whole, dtype, True)
    assert_close(dx, expected_gradient(form, dy, whole, 1), gradient_scale(form, dy, whole, 1))


SHAPES = {
    "short": ((10, 20, 1), [12, 8]),
    "unaligned, one empty": ((3, 5001, 1), [2501, 0, 2500]),
    "long": ((2, 6000, 1), [2800, 3200]),
    "more groups than are loaded at once": ((2, 1000, 1), 10 * [100]),
    "across lines": ((2, 600, 40), [250, 350]),
    "few neighbours": ((3, 600, 3), [400, 200]),
}


@pytest.fixture
def in_narrow_tiles(monkeypatch):
    """Has all rows taken in several tiles: by the narrowest launch that there is."""
    every = planner.ranked

    def narrowest(problem, device):
        return sorted(every(problem, device), key=lambda each: each.tiling.width)[:1]

    monkeypatch.setattr(planner, "ranked", narrowest)
    plans.plan_problem.cache_clear()
    memory.forget()
    yield
    plans.plan_problem.cache_clear()
    memory.forget()


@pytest.mark.each_value
@pytest.mark.parametrize("tiles", ["planned", "in_narrow_tiles"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "sizes"), SHAPES.values(), ids=SHAPES)
def test_shapes_types_and_forms(request, where, form, shape, sizes, dtype, tiles):
    if tiles != "planned":
        request.getfixturevalue(tiles)
    check(form, shape, sizes, dtype, where)


@pytest.mark.parametrize("sizes", [[100, 100], [3000, 2097]], ids=["aligned", "unaligned"])
def test_special_values_give_what_torch_gives(where, in_narrow_tiles, sizes):
    first = sizes[0]
    x = given((8, sum(sizes), 1), torch.float32, where)
    x[1, :first], x[2, first:], x[3] = -INF, -INF, -INF
    x[4, 0], x[5, -1], x[6], x[7, 0] = NAN, INF, 1e30, 80.0
    for form in ("softmax", "log_softmax"):
        y = in_shards(form, sizes, x, x, torch.float32, False)
        like = (torch.log_softmax if form == "log_softmax" else torch.softmax)(x, 1)
        assert torch.equal(y.isnan(), like.isnan())
        assert_close(y, expected(form, x, 1), terms_of(form))


def test_an_input_is_rounded_to_the_results_type_first(where):
    x = given((5, 300, 1), torch.float32, where)
    y = in_shards("softmax", [100, 200], x, x, torch.float16, False)
    assert_close(y, expected("softmax", x.half(), 1))
    dy = given((5, 300, 1), torch.float16, where, seed=1)
    dx = in_shards("softmax", [100, 200], dy, y, torch.float16, True, x_dtype=torch.float32)
    assert dx.dtype == torch.float32
    assert_close(dx, expected_gradient("softmax", dy, y, 1), gradient_scale("softmax", dy, y, 1))


@pytest.mark.pairwise
@pytest.mark.parametrize("step", ["reduce", "map"])
@pytest.mark.parametrize("backward", [False, True], ids=["softmax", "gradient"])
@pytest.mark.parametrize("num_programs", [1, 3, 100])
def test_any_number_of_programs_and_any_tile_is_right(device, where, step, backward, num_programs):
    n_rows, n_cols = 50, 600
    problem = Problem(n_rows, n_cols, "float32", "float32", 4, backward=backward, step=step)
    a, b = given((n_rows, n_cols), torch.float32, where), given((n_rows, n_cols), torch.float32, where, seed=1)
    b = b if backward else a
    numbers = steps.reduce_shard(a, b, 1, torch.float32, "softmax", backward)
    wanted = torch.empty_like(a)
    steps.map_shard(a, b, numbers, wanted, 1, "softmax", backward)
    for _, tiling in every_launch(problem, device)[:3]:
        walking = replace(tiling, walk=True)
        found = torch.full_like(numbers if step == "reduce" else a, NAN)
        taken = (a, b) if backward else (a,)
        operands = (*taken, found) if step == "reduce" else (found, *taken, numbers)
        strides, one = (n_cols // 4, n_cols // 4), (1, 0, 0)
        sizes = n_rows, n_cols // 4, *strides, *one, *one, *((1,) if step == "map" else ())
        prepare(KernelSpec.of(problem, walking), device, (num_programs, 1, 1), sizes)(*operands)
        terms = 4e-7 * (a * b).abs().sum(1).max().item() if backward else 1e-5  # of a sum, in which they may cancel
        torch.testing.assert_close(found, numbers if step == "reduce" else wanted, rtol=2e-6, atol=terms)
