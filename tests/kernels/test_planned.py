"""What a call plans here, launched and compared with float64."""

import pytest
import torch
from exact import assert_close, expected
from sweep import in_turn
from table import random

from portable_probe.report import SoftmaxProblem
from portable_probe.verify import verify_softmax
from portable_softmax import softmax, token_log_probs

pytestmark = pytest.mark.kernel
SHAPES = (1, 1), (100, 1), (1, 2), (3, 17), (33, 64), (1823, 781), (5, 1024), (2, 4099), (70, 16384), (3, 65536), (2, 200_003)


@pytest.mark.parametrize(("shape", "dtype"), in_turn(SHAPES, ["float16", "bfloat16", "float32"]), ids=str)
def test_shapes_and_types(device, shape, dtype):
    n_rows, n_cols = shape
    outcome = verify_softmax(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype), None, device)
    assert outcome.right, outcome


def test_rows_of_a_stride_beyond_32_bits(where):
    """Three rows, 2^32 elements from the first to the last, in virtual memory that nothing touches."""
    x = torch.empty(2**32, dtype=torch.float16, device=where).as_strided((3, 100), (2**31 - 100, 1))
    x.copy_(random(3, 100, seed=0))
    assert_close(softmax(x).cpu(), expected("softmax", x.cpu()))
    picked = token_log_probs(x, torch.tensor([3, 50, 99], device=where))
    assert_close(picked.cpu(), expected("log_softmax", x.cpu())[[0, 1, 2], [3, 50, 99]], 1.0)
