"""The interpreter computes what a device computes: every pair of types, and in threads."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale
from direct import planned

from portable_softmax import softmax

pytestmark = pytest.mark.kernel
DTYPES = torch.float16, torch.bfloat16, torch.float32
GUARD = 7.0
SHAPES = [(5, 37, 40), (3, 700, 704), (2, 5000, 5008)]  # rows, columns, stride


def framed(shape, dtype, where, content):
    """Rows with GUARD before, between and after them; (rows, all of the memory)."""
    n_rows, n_cols, stride = shape
    memory = torch.full((n_rows + 2, stride), GUARD, dtype=dtype, device=where)
    rows = memory[1:-1, :n_cols]
    rows.copy_(content)
    return rows, memory


def normal(shape, seed, scale=1.0):
    return torch.randn(shape[:2], generator=torch.Generator().manual_seed(seed)).double() * scale


def assert_only_rows_changed(rows, memory):
    rows.fill_(GUARD)
    assert (memory == GUARD).all()


@pytest.mark.pairwise
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("y_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("x_dtype", DTYPES, ids=str)
def test_a_gradient_of_another_type_than_its_output(device, where, x_dtype, y_dtype, shape):
    dy, _ = framed(shape, y_dtype, where, normal(shape, 2))
    y, _ = framed(shape, y_dtype, where, torch.softmax(normal(shape, 3), -1))
    dx, memory = framed(shape, x_dtype, where, -3.0)
    planned(device, (dx, dy, y), backward=True)
    assert_close(dx, expected_gradient("softmax", dy, y), gradient_scale("softmax", dy, y))
    assert_only_rows_changed(dx, memory)


def test_first_calls_of_many_threads(where):
    """Each of another shape and type, so that each plans, compiles and launches; threads change in the middle of all of it."""
    barrier = Barrier(8, timeout=60)

    def call(number):
        x = torch.randn(3, 901 + number, generator=torch.Generator().manual_seed(number)).to(where, DTYPES[number % 3])
        barrier.wait()
        for _ in range(4):
            assert_close(softmax(x, -1), expected("softmax", x))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(call, range(8)))
    finally:
        sys.setswitchinterval(interval)
