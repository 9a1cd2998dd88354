"""Rows that start anywhere: each is read in whole vectors, and in two edges."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of
from direct import launch, problem_of, result_in, rows_in

from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")
CASES = [  # lengths from a vector on, with every remainder; below, at and above whole tiles of the online form
    (torch.float16, "tile", (9, 32)),
    (torch.bfloat16, "online", (8, 33)),
    (torch.float32, "tile", (4, 5, 6, 7, 16)),
    (torch.float32, "online", (7, 16, 18)),
    (torch.float64, "tile", (2, 3)),
    (torch.float64, "online", (3, 8, 9)),
]


@pytest.fixture(autouse=True)
def _aligned_access(device):
    if device.backend != "interpreter" and not device.vendor.aligned_access:
        pytest.skip(f"{device.backend} has no ragged rows")


def vector_of(dtype):
    return 16 // dtype.itemsize


def tiling(strategy, n_cols, vector):
    least = max(vector, 1 << (n_cols - 1).bit_length())
    return Tiling("tile", 1, least, None, None) if strategy == "tile" else Tiling("online", 1, 2 * vector, None, None)


def stride_of(n_cols):
    """Odd, so that rows of every lead follow each other."""
    return n_cols + 2 - n_cols % 2 + 1


def forward(device, where, form, dtype, strategy, n_cols, special=lambda x: None):
    vector = vector_of(dtype)
    n_rows, stride = vector, stride_of(n_cols)
    x, _ = rows_in(n_rows, n_cols, stride, dtype, where, NAN, seed=n_cols)
    special(x)
    y, assert_guards = result_in(n_rows, n_cols, stride, dtype, where)
    assert {row * stride % vector for row in range(n_rows)} == set(range(vector))
    launch(device, (y, x), problem_of((y, x), form, False, vector, True), tiling(strategy, n_cols, vector), 2)
    assert_guards()
    assert_close(y, expected(form, x), terms_of(form))


def backward(device, where, form, dtype, strategy, n_cols):
    vector = vector_of(dtype)
    n_rows, stride = vector, stride_of(n_cols)
    dy, y = (rows_in(n_rows, n_cols, stride, dtype, where, NAN, seed)[0] for seed in (n_cols, n_cols + 1))
    dx, assert_guards = result_in(n_rows, n_cols, stride, dtype, where)
    launch(device, (dx, dy, y), problem_of((dx, dy, y), form, True, vector, True), tiling(strategy, n_cols, vector), 2)
    assert_guards()
    assert_close(dx, expected_gradient(form, dy, y), gradient_scale(form, dy, y))


@pytest.mark.parametrize(("dtype", "strategy", "lengths"), CASES, ids=str)
def test_every_length_and_start(device, where, dtype, strategy, lengths):
    for n_cols in lengths:
        forward(device, where, "softmax", dtype, strategy, n_cols)
        backward(device, where, "softmax", dtype, strategy, n_cols)


@pytest.mark.parametrize("strategy", ["tile", "online"])
@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
def test_every_form(device, where, form, strategy):
    forward(device, where, form, torch.float32, strategy, 13)
    backward(device, where, form, torch.float32, strategy, 13)


@pytest.mark.parametrize(
    ("form", "strategy"), [("softmax", "tile"), ("log_softmax", "online"), ("softmin", "tile"), ("softmin", "online")]
)
def test_special_values_at_edges_and_between(device, where, form, strategy):
    def first(x):
        x[0] = -INF
        x[1, 0], x[2, -1], x[3, 9] = NAN, NAN, INF

    def second(x):
        x[0, -1], x[1, 0] = INF, INF
        x[2, 4:-4] = -INF
        x[3, :4], x[3, -4:] = -INF, -INF

    def third(x):  # one element of the first edge, of the last, of the body; none at all
        for row, col in enumerate((0, -1, 9)):
            keep = x[row, col].clone()
            x[row], x[row, col] = -INF, keep
        x[3] = INF

    for special in (first, second, third):
        forward(device, where, form, torch.float32, strategy, 19, special)
