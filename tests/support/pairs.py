"""This package's functions beside torch's, and what they have to agree in."""

import torch
import torch.nn.functional as F

from portable_softmax import log_softmax, softmax, softmin

PAIRS = {"softmax": (softmax, torch.softmax), "log_softmax": (log_softmax, torch.log_softmax), "softmin": (softmin, F.softmin)}
ERRORS = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-6, torch.float64: 1e-14}
FLOATS = tuple(ERRORS)


def assert_like_torch(form, x, dim, dtype=None):
    """Within ERRORS of torch in float64, relative to 1 and to the value; the same type, layout, nan and inf."""
    ours, theirs = PAIRS[form]
    result, expected = ours(x, dim, dtype), theirs(x, dim, dtype=dtype)
    assert (result.dtype, result.shape, result.stride()) == (expected.dtype, expected.shape, expected.stride())
    rounded = (-x if form == "softmin" else x).to(expected.dtype).double()
    exact = (torch.log_softmax if form == "log_softmax" else torch.softmax)(rounded, dim).to(expected.dtype)
    tolerance = ERRORS[expected.dtype]
    torch.testing.assert_close(result, exact, rtol=tolerance, atol=tolerance, equal_nan=True)
