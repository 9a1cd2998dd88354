"""Tells how tensors lie: which launches are made of them, and what lies next to a result."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale
from pairs import PAIRS, assert_like_torch

from portable_softmax import softmax

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


ONE_LAUNCH = {  # (x, dim, what is true of the problem); rows of one element are anywhere
    "heads": (normal(2, 20, 4, 40).transpose(1, 2), -1, "depth"),
    "heads of odd length": (normal(2, 6, 3, 33).transpose(1, 2), -1, "depth"),
    "long heads": (normal(2, 3, 2, 20_000).transpose(1, 2), -1, "depth"),
    "a slice of the rows": (normal(3, 9, 800)[:, 1:6], -1, "depth"),
    "every second matrix": (normal(6, 5, 64)[::2], -1, "depth"),
    "matrices side by side": (normal(3, 2, 300, 40).transpose(0, 1), 2, "depth"),
    **{
        str(shape): (normal(*shape), 1, "across" if min(shape[1:]) > 1 else "")
        for shape in (
            (2, 500, 32),
            (1, 70_000, 16),
            (700, 3, 2),
            (50, 19, 3),
            (9, 1200, 15),
            (1, 900, 7),
            (5, 9, 1),
            (1, 1, 40),
        )
    },
}


def both_ways(where, given, dim):
    """Checks a softmax and its gradient, which are contiguous whatever the operands are, and returns the input."""
    x = torch.empty_strided(given.shape, given.stride(), device=where).copy_(given)  # to() closes gaps
    y = softmax(x, dim)
    assert y.is_contiguous()
    assert_close(y, expected("softmax", x, dim))
    dx = torch.ops.portable_softmax.softmax_backward(x, y, dim, y.dtype)
    assert dx.is_contiguous()
    assert_close(dx, expected_gradient("softmax", x, y, dim), gradient_scale("softmax", x, y, dim))
    return x


@pytest.mark.parametrize("name", ONE_LAUNCH)
def test_what_strides_lead_to_is_one_launch_each_way(where, plans, name):
    given, dim, fact = ONE_LAUNCH[name]
    x = both_ways(where, given, dim)
    (first, _), (second, _) = plans
    assert (first.backward, second.backward) == (False, True)
    for problem in (first, second):
        assert {"depth": problem.depth > 1, "across": problem.across, "": True}[fact]
        assert problem.across or fact in ("depth", "")
        if fact == "across" and where.type == "cpu":  # a profile may cut few rows of another device otherwise
            assert problem.scattered == (x.shape[2] < 32)


TRANSPOSED = {
    "t()": (normal(40, 30).t(), 1),
    "t(), other dim": (normal(40, 30).t(), 0),
    "channels last": (normal(2, 5, 6, 7).permute(0, 2, 3, 1), -1),
    "channels last, other dim": (normal(2, 6, 7, 5).permute(0, 3, 1, 2), 1),
    "three dims reversed": (normal(3, 5, 36).permute(2, 1, 0), 2),
    "a cut": (normal(40, 50)[:, :33].t(), 1),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_what_is_transposed_is_copied(where, plans, name):
    both_ways(where, *TRANSPOSED[name])
    assert [problem.backward for problem, _ in plans] == [False, True]


def test_what_is_copied_first_is_planned_once(where, plans):
    for seed in range(3):
        x = torch.randn(9, 60, generator=torch.Generator().manual_seed(seed)).to(where)[:, ::2]
        assert_close(softmax(x, -1), expected("softmax", x, -1))
    assert len(plans) == 1
    assert_like_torch("softmax", normal(3, 2, 4, 5, 6).permute(1, 3, 0, 2, 4).to(where), -1)


def test_a_gradient_that_is_copied_first_is_planned_once_if_it_and_its_output_are_aligned(where, plans):
    """An output that is not aligned, and a gradient that is, or the other way round, must not meet a kept launch for both."""
    y = torch.randn(30, 40, device=where).softmax(1)
    for offset, planned in ((0, 1), (0, 1), (1, 2), (1, 3), (0, 3)):
        memory = torch.randn(30 * 80 + 1, device=where)
        dy = memory[offset : offset + 30 * 80].view(30, 80)[:, ::2]
        dx = torch.ops.portable_softmax.softmax_backward(dy, y, 1, y.dtype)
        assert_close(dx, expected_gradient("softmax", dy, y), gradient_scale("softmax", dy, y))
        assert len(plans) == planned


def test_the_same_bits_from_run_to_run(where, form):
    x = torch.randn(37, 1001, device=where)
    assert torch.equal(PAIRS[form][0](x), PAIRS[form][0](x))
