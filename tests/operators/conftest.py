"""A tensor, and calls of each function with options of each kind."""

import pytest
import torch


@pytest.fixture
def x(where):
    return torch.randn(2, 3, 5, device=where)


@pytest.fixture
def ids(where):
    return torch.tensor([[0, 4, -100], [1, 2, 3]], device=where)


@pytest.fixture
def cases(where, ids):
    """(function, options) of each function: plain, and with options of each kind."""
    rows, sink = torch.rand(2, 3, 1, device=where) + 0.5, torch.randn(3, 1, device=where)
    seen, bias = torch.rand(3, 5, device=where) < 0.7, torch.randn(3, 5, device=where)
    scores = [
        {}, {"mask": seen}, {"mask": bias, "scale": 2.0}, {"scale": rows, "softcap": 1.5}, {"temperature": rows},
        {"sink": sink, "causal": "lower_right"}, {"temperature": 0.5, "masked_rows": "zero", "mask": seen},
        {"temperature": 0.0},
    ]  # fmt: skip
    of_tokens = [{}, {"temperature": rows, "entropy": True}, {"softcap": 2.0, "return_lse": True}]
    return [(name, options) for name in ("softmax", "log_softmax") for options in scores] + [
        ("log_probs", {"ids": ids, **options}) for options in of_tokens
    ]
