"""Inner dimensions, and what lies next to a result."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale
from pairs import PAIRS, assert_like_torch

from portable_softmax import softmax

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("shape", [(2, 781, 33), (3, 5, 400), (1, 70000, 16), (2, 40, 17), (700, 3, 2)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_inner_dimensions(where, form, shape, dtype):
    x = torch.randn(shape, device=where).to(dtype)
    x[0, :, 1] = -INF
    x[-1, 2, 0] = NAN
    assert_like_torch(form, x, 1)


@pytest.mark.parametrize(
    ("shape", "strategy", "across"),
    [((2, 500, 32), "tile", True), ((1, 70000, 16), "online", True), ((700, 3, 2), "tile", False), ((4, 60), "tile", False)],
)
def test_inner_dimensions_are_copied_only_where_they_are_short(where, plans, shape, strategy, across):
    softmax(torch.randn(shape, device=where), 1)
    ((problem, plan),) = plans
    assert (plan.tiling.strategy, problem.across) == (strategy, across)


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
