"""This package's functions beside torch's, and the properties in which they must agree."""

import torch
import torch.nn.functional as F
from closeness import assert_close, expected, terms_of

from portable_softmax import log_softmax, softmax, softmin

PAIRS = {"softmax": (softmax, torch.softmax), "log_softmax": (log_softmax, torch.log_softmax), "softmin": (softmin, F.softmin)}
FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64  # no kernel computes the last one


def assert_like_torch(form, x, dim, dtype=None):
    """Asserts that the result has the type, layout, nan and inf of torch's, and is close to float64."""
    ours, theirs = PAIRS[form]
    result, like = ours(x, dim, dtype), theirs(x, dim, dtype=dtype)
    assert (result.dtype, result.shape, result.stride()) == (like.dtype, like.shape, like.stride())
    assert torch.equal(result.isnan(), like.isnan())
    given = (-x if form == "softmin" else x).to(like.dtype)  # in this order: torch negates bytes without their signs
    assert_close(result, expected("log_softmax" if form == "log_softmax" else "softmax", given, dim), terms_of(form))
