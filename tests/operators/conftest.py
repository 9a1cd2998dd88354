"""A tensor, and calls of each function with options of each kind."""

import pytest
import torch
from exact import OPTIONS, ROWS
from torch.utils._pytree import tree_map_only


@pytest.fixture
def x(where):
    return torch.randn(2, 3, 5, device=where)


@pytest.fixture
def ids(where):
    return torch.tensor([[0, 4, -100], [1, 2, 3]], device=where)


@pytest.fixture
def cases(where, ids):
    """(function, options) of each function: plain, and with options of each kind."""
    of_tokens = [{}, {"temperature": ROWS, "entropy": True}, {"softcap": 2.0, "return_lse": True}]
    calls = [(name, options) for name in ("softmax", "log_softmax") for options in OPTIONS]
    calls += [("log_probs", {"ids": ids, **options}) for options in of_tokens]
    return tree_map_only(torch.Tensor, lambda t: t.to(where, torch.float32 if t.is_floating_point() else t.dtype), calls)
