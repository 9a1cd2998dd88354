"""Closeness, on which most other tests rely, tells right from wrong."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of, worst_error

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FORMS = ("softmax", "log_softmax", "softmin")


def rows(dtype):
    x = torch.randn(3, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[1] = 3 * x[1] - 40  # far from 0
    x[2, :30] = -INF
    return x


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_rounded_once_is_close_and_what_is_a_hundredth_off_is_not(form, dtype):
    x = rows(dtype)
    if form == "softmin":
        x = -x
    exact = expected(form, x)
    assert worst_error(exact.to(dtype), exact, terms_of(form)) <= 0.5
    for row in range(3):
        wrong = exact.clone()
        wrong[row, 50] *= 1.02
        assert worst_error(wrong.to(dtype), exact, terms_of(form)) > 1
        wrong[row, 50] = 0.0
        with pytest.raises(AssertionError, match="of what is allowed"):
            assert_close(wrong.to(dtype), exact, terms_of(form))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients_are_torchs_and_may_err_by_what_cancels(form, dtype):
    leaf = torch.randn(3, 100, dtype=torch.float64, requires_grad=True)
    y, dy = expected(form, leaf), torch.randn(3, 100).to(dtype)
    (theirs,) = torch.autograd.grad(y, leaf, dy.double())
    exact, scale = expected_gradient(form, dy, y.detach()), gradient_scale(form, dy, y.detach())
    torch.testing.assert_close(exact, theirs)
    assert worst_error(theirs.to(dtype), exact, scale) <= 0.5
    assert worst_error((theirs + scale / 20).to(dtype), exact, scale) > 1


@pytest.mark.parametrize(("found", "exact"), [(NAN, 1.0), (1.0, NAN), (INF, -INF), (1.0, INF), (INF, 1.0), (NAN, INF)])
def test_nan_and_inf_are_close_to_themselves_alone(found, exact):
    one = torch.ones(4, dtype=torch.float64)
    one[2] = exact
    result = torch.ones(4)
    result[2] = found
    assert worst_error(result, one) == INF
    result[2] = exact
    assert worst_error(result, one) == 0
