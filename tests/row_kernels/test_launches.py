"""Launches of row kernels on the device that is here: right whatever is given, by position and by name, and kept."""

import pytest
import row_kernels
import torch
import triton
from row_kernels import RMS, adding, fresh, one_row, scaled

from portable_softmax import launcher

pytestmark = pytest.mark.kernel


@pytest.mark.parametrize("case", row_kernels.CASES)
@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (7, 40), (33, 1000), (5, 1040), (3, 5000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_on_the_device_here(where, case, rows, cols, dtype):
    run, arguments, given, exact = case(rows, cols, dtype)
    placed = [each.to(where) if hasattr(each, "to") else each for each in arguments]
    run(*placed, **given)
    row_kernels.assert_right(case, placed, exact)


def test_arguments_by_name_and_no_rows(where):
    x = torch.rand(3, 70, device=where)
    y = torch.empty_like(x)
    scaled(n_rows=3, n_cols=70, y=y, x=x)
    assert torch.equal(y, x * 3)
    scaled(x, y, 3, n_cols=70, SCALE=2)
    assert torch.equal(y, x * 2)
    assert scaled(x, torch.empty(0, 70, device=where), 0, 70) is None


def test_decorated_kernels_run(where):
    configs = [
        triton.Config({"SCALE": scale}, num_warps=4, pre_hook=lambda arguments: arguments["y"].fill_(1)) for scale in (3, 3)
    ]
    x = torch.rand(3, 70, device=where)
    for kernel in (triton.autotune(configs, ["n_cols"])(one_row), triton.heuristics({"SCALE": lambda arguments: 3})(one_row)):
        run, y = launcher(kernel, cols="n_cols", block="BLOCK", grid=lambda meta: (meta["n_rows"],)), torch.empty_like(x)
        for _ in range(2):
            run(x, y, 3, 70)
            assert torch.equal(y, x * 3)


@pytest.mark.accelerator
def test_the_first_call_may_be_captured(where):
    x = torch.randn(64, 1000, device=where)
    w, y = torch.rand(1000, device=where), torch.empty_like(x)
    run, graph = fresh(), torch.cuda.CUDAGraph()
    RMS.forward(x, w, y, 64, 1000, 1e-6)  # loads the code
    expected = y.clone()
    y.zero_()
    with torch.cuda.graph(graph):
        run(x, w, y, 64, 1000, 1e-6)
    graph.replay()
    assert torch.equal(y, expected)


def test_a_call_wins_over_what_was_given_before(where):
    run, x = fresh(adding, eps=0.5), torch.zeros(2, 4, device=where)
    y = torch.empty_like(x)
    for given, expected in (({}, 0.5), ({"eps": 1.5}, 1.5), ({"eps": 2.5}, 2.5), ({}, 0.5)):
        run(x, y, 2, 4, **given)
        assert y[0, 0] == expected
    run(x, y, 2, 4, 3.5)
    assert y[0, 0] == 3.5


def test_constants_that_compare_equal_are_launches_of_their_own(where):
    run = fresh(adding, eps=0)
    x, y = torch.full((2, 4), 100, dtype=torch.int8, device=where), torch.empty(2, 4, dtype=torch.int32, device=where)
    for factor in (2, 2.0, True, 1, 2):
        run(x, y, 2, 4, F=factor)
        expected = torch.empty_like(y)
        fresh(adding, eps=0)(x, expected, 2, 4, F=factor)
        assert torch.equal(y, expected)
    plan = [run.plan(x, y, 2, 4, F=factor).meta["F"] for factor in (2, 2.0)]
    assert [*map(type, plan)] == [int, float]
