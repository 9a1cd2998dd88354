"""Results in float64 of each form and its gradient, and their terms; how close is close says portable_probe/closeness.py."""

import torch

from portable_probe.closeness import worst_error


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
