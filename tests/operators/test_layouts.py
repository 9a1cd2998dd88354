"""Inner dimensions, and what lies next to a result."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale
from pairs import PAIRS, assert_like_torch

from portable_softmax import softmax

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")


@pytest.mark.pairwise
@pytest.mark.parametrize("shape", [(2, 781, 33), (3, 5, 400), (1, 70000, 16), (2, 40, 17), (700, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_inner_dimensions(where, form, shape, dtype):
    x = torch.randn(shape, device=where).to(dtype)
    x[0, :, 1] = -INF
    x[-1, 2, 0] = NAN
    assert_like_torch(form, x, 1)


NESTED = {
    "heads": lambda **like: torch.randn(2, 20, 4, 40, **like).transpose(1, 2),
    "heads of odd length": lambda **like: torch.randn(2, 6, 3, 33, **like).transpose(1, 2),
    "long heads": lambda **like: torch.randn(2, 3, 2, 20_000, **like).transpose(1, 2),
    "a slice of the rows": lambda **like: torch.randn(3, 9, 800, **like)[:, 1:6],
    "every second matrix": lambda **like: torch.randn(6, 5, 64, **like)[::2],
    "matrices side by side": lambda **like: torch.randn(3, 2, 300, 40, **like).transpose(0, 1),
}
SIDE_BY_SIDE = [(2, 500, 32), (1, 70_000, 16), (700, 3, 2), (50, 19, 3), (9, 1200, 15), (1, 900, 7), (5, 9, 1), (1, 1, 40)]


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", NESTED)
def test_rows_in_matrices_and_blocks_are_taken_as_they_lie(where, plans, name, dtype):
    x = NESTED[name](device=where, dtype=dtype)
    dim = 2 if name == "matrices side by side" else -1
    x[0, 0, : x.shape[2] // 2 + 1] = -INF
    x[-1, -1, -1, ...] = -INF
    assert_like_torch("softmax", x, dim)
    assert all(problem.depth > 1 for problem, _ in plans)


@pytest.mark.parametrize("form_of_all", ["log_softmax", "softmin"])
def test_nested_rows_of_the_other_forms(where, form_of_all):
    assert_like_torch(form_of_all, NESTED["heads"](device=where), -1)
    assert_like_torch(form_of_all, torch.randn(30, 5, 3, device=where), 1)


@pytest.mark.parametrize("shape", SIDE_BY_SIDE, ids=str)
def test_inner_dimensions_of_any_size_are_one_launch(where, plans, shape):
    x = torch.randn(shape, device=where)
    assert_close(softmax(x, 1), expected("softmax", x, 1))
    ((problem, _),) = plans
    assert problem.across == (min(shape[1:]) > 1)  # rows of one element are anywhere
    if where.type == "cpu":  # a profile may cut few rows of another device otherwise
        assert problem.scattered == (problem.across and shape[2] < 32)


TRANSPOSED = {
    "t()": (torch.randn(40, 30).t(), 1),
    "t(), other dim": (torch.randn(40, 30).t(), 0),
    "channels last": (torch.randn(2, 5, 6, 7).permute(0, 2, 3, 1), -1),
    "channels last, other dim": (torch.randn(2, 6, 7, 5).permute(0, 3, 1, 2), 1),
    "three dims reversed": (torch.randn(3, 5, 36).permute(2, 1, 0), 2),
    "a cut": (torch.randn(40, 50)[:, :33].t(), 1),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_what_lies_another_way_than_its_result_is_one_launch(where, plans, name):
    x, dim = TRANSPOSED[name]
    x = x.to(where)
    y = softmax(x, dim)
    assert y.is_contiguous()
    assert_close(y, expected("softmax", x, dim))
    ((problem, _),) = plans
    assert problem.transposed


@pytest.mark.parametrize("x", [torch.randn(9, 60)[:, ::2], torch.randn(3, 2, 4, 5, 6).permute(1, 3, 0, 2, 4)])
def test_rows_that_no_stride_leads_to_are_copied(where, x):
    assert_like_torch("softmax", x.to(where), -1)


def test_what_is_copied_first_is_planned_once(where, plans):
    def strided(seed):
        return torch.randn(9, 60, generator=torch.Generator().manual_seed(seed)).to(where)[:, ::2]

    for seed in range(3):
        assert_close(softmax(strided(seed), -1), expected("softmax", strided(seed), -1))
    assert len(plans) == 1


@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_gradient_that_lies_another_way_than_its_output_is_one_launch(where, plans, name):
    dy, dim = TRANSPOSED[name]
    dy = dy.to(where)
    y = torch.rand(dy.shape, device=where).softmax(dim)
    dx = torch.ops.portable_softmax.softmax_backward(dy, y, dim, y.dtype)
    assert dx.is_contiguous()
    assert_close(dx, expected_gradient("softmax", dy, y, dim), gradient_scale("softmax", dy, y, dim))
    ((problem, _),) = plans
    assert problem.transposed
    assert problem.backward


def test_a_gradient_that_is_copied_first_is_planned_once_if_it_and_its_output_are_aligned(where, plans):
    """An output that is not aligned, and a gradient that is, or the other way round, must not meet a kept launch for both."""
    y = torch.randn(30, 40, device=where).softmax(1)
    for offset, planned in ((0, 1), (0, 1), (1, 2), (1, 3), (0, 3)):
        memory = torch.randn(30 * 80 + 1, device=where)
        dy = memory[offset : offset + 30 * 80].view(30, 80)[:, ::2]
        dx = torch.ops.portable_softmax.softmax_backward(dy, y, 1, y.dtype)
        assert_close(dx, expected_gradient("softmax", dy, y), gradient_scale("softmax", dy, y))
        assert len(plans) == planned


@pytest.mark.parametrize("shape", [(4, 60), (50, 19, 3), (2, 40, 33)], ids=str)
def test_batch_invariant_rows_are_alike_wherever_they_lie(where, shape):
    """Along rows, each of which is a matrix of its own, or one of many side by side."""
    from portable_softmax import batch_invariant

    x = torch.randn(shape, device=where)
    with batch_invariant():
        y = softmax(x, 1)
        rows = x.movedim(1, -1).reshape(-1, shape[1]).contiguous()
        assert torch.equal(y.movedim(1, -1).reshape(-1, shape[1]), softmax(rows, -1))
        memory = torch.randn(rows.numel() + 3, device=where)[3:].view(rows.shape)  # not aligned
        assert torch.equal(softmax(memory.copy_(rows), -1), softmax(rows, -1))


def test_output_rows_next_to_the_result_stay_as_they_are(device, where):
    """Guards of nan around every operand of the gradient's kernel, in both directions."""
    from portable_softmax.runtime.launch import softmax_backward_rows, softmax_rows

    for n_rows, n_cols, across in ((5, 70, False), (2, 70001, False), (40, 9, True)):
        shape = (1, n_cols, n_rows) if across else (n_rows, n_cols)
        wide = (*shape[:-1], shape[-1] + 8)
        x, y, dy, dx = (torch.full(wide, NAN, device=where) for _ in range(4))
        cut = [each[..., : shape[-1]] for each in (x, y, dy, dx)]
        cut[0].copy_(torch.randn(shape))
        cut[2].copy_(torch.randn(shape))
        softmax_rows(cut[0], cut[1], device)
        softmax_backward_rows(cut[2], cut[1], cut[3], device)
        assert_close(cut[1], expected("softmax", cut[0], 1))
        gradient = expected_gradient("softmax", cut[2], cut[1], 1)
        assert_close(cut[3], gradient, gradient_scale("softmax", cut[2], cut[1], 1))
        for each in (y, dx):
            assert each[..., shape[-1] :].isnan().all()


def test_the_same_bits_from_run_to_run(where, form):
    x = torch.randn(37, 1001, device=where)
    assert torch.equal(PAIRS[form][0](x), PAIRS[form][0](x))
