"""The kernel's results against float64, for shapes, strides, types and special values."""

import pytest
import torch
from closeness import assert_close

from portable_probe.closeness import softmax_in_float64
from portable_probe.report_types import SoftmaxProblem
from portable_probe.trial import verify_here
from portable_softmax import softmax

pytestmark = pytest.mark.kernel
DTYPES = ("float16", "bfloat16", "float32")


def assert_softmax(result, x, dim=-1):
    assert torch.equal(result.isnan(), torch.softmax(x, dim).isnan())
    assert_close(result, softmax_in_float64(x, dim))


def matrix(where, *shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(where, dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n_rows", "n_cols"),
    [(1, 1), (100, 1), (1, 2), (3, 17), (33, 64), (1823, 781), (5, 1024), (2, 4099), (70, 16384), (3, 65536), (2, 200_003)],
)
def test_shapes_and_types(device, n_rows, n_cols, dtype):
    outcome = verify_here(SoftmaxProblem(n_rows=n_rows, n_cols=n_cols, dtype=dtype), device)
    assert outcome.right, outcome


def test_rows_of_a_stride_beyond_32_bits(where):
    """Two rows, 2^33 bytes apart in virtual memory that nobody touches."""
    x = torch.empty(2**31 + 8, dtype=torch.float32, device=where).as_strided((2, 100), (2**31 - 100, 1))
    x.copy_(matrix(where, 2, 100))
    assert_softmax(softmax(x), x)
