"""Rows that start anywhere: each is read in whole vectors, and in two edges."""

import functools

import pytest
import torch
from direct import as_they_are, backward, forward, launch

from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")
CASES = [  # lengths from a vector on, with every remainder; below, at and above whole tiles of the online form
    (torch.float16, "tile", (9, 32)),
    (torch.bfloat16, "online", (8, 33)),
    (torch.float32, "tile", (4, 5, 6, 7, 16)),
    (torch.float32, "rows", (4, 5, 6, 7, 16)),
    (torch.bfloat16, "rows", (9, 32, 33)),
    (torch.float32, "online rows", (7, 16, 18)),
    (torch.float32, "online", (7, 16, 18)),
    (torch.float64, "tile", (2, 3)),
    (torch.float64, "online", (3, 8, 9)),
]


@pytest.fixture(autouse=True)
def _aligned_access(device):
    if device.backend != "interpreter" and not device.vendor.aligned_access:
        pytest.skip(f"{device.backend} has no unaligned rows")


def vector_of(dtype):
    return 16 // dtype.itemsize


def tiling(strategy, n_cols, vector):
    least = max(vector, 1 << (n_cols - 1).bit_length())
    blocks = -(-n_cols // vector)
    return {
        "tile": Tiling(1, least),
        "rows": Tiling(4, vector, blocks=blocks),
        "online": Tiling(1, 2 * vector, held=False),
        "online rows": Tiling(2, 2 * vector, held=False),
    }[strategy]


def stride_of(n_cols):
    """Odd, so that rows of every lead follow each other."""
    return n_cols + 2 - n_cols % 2 + 1


@pytest.fixture
def unaligned(device, where):
    """Launches rows of every lead, forward or backward, and compares them with float64."""

    def run(direction, form, dtype, strategy, n_cols, special=as_they_are):
        vector, stride = vector_of(dtype), stride_of(n_cols)
        assert {row * stride % vector for row in range(vector)} == set(range(vector))
        n_rows = vector + 1  # so that the last tile of several rows is not full
        how = tiling(strategy, n_cols, vector), 2, vector, stride, n_rows, special
        direction(functools.partial(launch, device), form, dtype, where, n_cols, *how)

    return run


@pytest.mark.parametrize(("dtype", "strategy", "lengths"), CASES, ids=str)
def test_every_length_and_start(unaligned, dtype, strategy, lengths):
    for n_cols in lengths:
        unaligned(forward, "softmax", dtype, strategy, n_cols)
        unaligned(backward, "softmax", dtype, strategy, n_cols)


@pytest.mark.parametrize("strategy", ["tile", "rows", "online"])
@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
def test_every_form(unaligned, form, strategy):
    unaligned(forward, form, torch.float32, strategy, 13)
    unaligned(backward, form, torch.float32, strategy, 13)


@pytest.mark.parametrize(
    ("form", "strategy"),
    [("softmax", "tile"), ("softmax", "rows"), ("log_softmax", "online"), ("softmin", "tile"), ("softmin", "online")],
)
def test_special_values_at_edges_and_between(unaligned, form, strategy):
    def first(x, sign):
        x[0] = -INF
        x[1, 0], x[2, -1], x[3, 9] = NAN, NAN, INF

    def second(x, sign):
        x[0, -1], x[1, 0] = INF, INF
        x[2, 4:-4] = -INF
        x[3, :4], x[3, -4:] = -INF, -INF

    def third(x, sign):  # one element of the first edge, of the last, of the body; none at all
        for row, col in enumerate((0, -1, 9)):
            keep = x[row, col].clone()
            x[row], x[row, col] = -INF, keep
        x[3] = INF

    for special in (first, second, third):
        unaligned(forward, form, torch.float32, strategy, 19, special)
