"""The one notion of closeness to float64, and the terms of each form and its gradient.

Errors are counted in units of `portable_softmax.probe.verify.allowed_error`, as in the probe and the benchmark.
"""

import torch

from portable_softmax.probe.verify import allowed_error


def worst_error(result, exact, terms=0.0):
    """Returns the largest error in units of the allowed error; inf if only one of the two is nan or inf.

    Args:
        exact: the result in float64.
        terms: the size of the terms that were added up, in float32 or float64, if they may cancel: a number or a tensor.
    """
    assert result.shape == exact.shape
    if not exact.numel():
        return 0.0
    found, compute = result.double(), torch.promote_types(result.dtype, torch.float32)
    size = (torch.zeros((), dtype=torch.float64, device=exact.device) + terms).abs()
    allowed = allowed_error(exact.nan_to_num(0, 0, 0), result.dtype) + allowed_error(size, compute)
    same = (found == exact) | (found.isnan() & exact.isnan())  # the same infinity too
    error = torch.where(same, 0.0, (found - exact).abs() / allowed)
    return error.nan_to_num(nan=float("inf"), posinf=float("inf")).max().item()


def assert_close(result, exact, terms=0.0):
    worst = worst_error(result, exact, terms)
    assert worst <= 1, f"an error of {worst:.3g} of what is allowed"


def expected(form, x, dim=-1):
    exact = -x.double() if form == "softmin" else x.double()
    return (torch.log_softmax if form == "log_softmax" else torch.softmax)(exact, dim)


def terms_of(form):
    """A logarithm is the difference of numbers of about 1; nothing cancels in a softmax."""
    return float(form == "log_softmax")


def expected_gradient(form, dy, y, dim=-1):
    dy, y = dy.double(), y.double()
    if form == "log_softmax":
        return dy - y.exp() * dy.sum(dim, keepdim=True)
    return (y * (dy - (dy * y).sum(dim, keepdim=True))) * (-1 if form == "softmin" else 1)


def gradient_scale(form, dy, y, dim=-1):
    """Returns the size of the terms of a gradient's elements."""
    dy, y = dy.double().abs(), y.double()
    if form == "log_softmax":
        return dy + y.exp() * dy.sum(dim, keepdim=True)
    return y.abs() * (dy + (dy * y.abs()).sum(dim, keepdim=True))
