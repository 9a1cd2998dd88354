"""The compiled code of every strategy, executed and compared with float64: hostile rows, types, forms, gradients, warps.

A vendor's test file takes these tests (`from strategies import *`) and has PRODUCTS, those of them that are FOREMOST, and
`RUN_ON(product)`, which is a `run` of direct.forward and direct.backward.
"""

import itertools

import pytest
import torch
from direct import INF, NAN, as_they_are, backward, forward
from machine_code import CASES, CPU, compare, spikes

from portable_softmax.planning.plan import Tiling

TYPES = (torch.float32, torch.float16, torch.bfloat16)
OTHERS = [(torch.float16, "softmax"), (torch.bfloat16, "softmax"), (torch.float32, "log_softmax")]
SPIKED = [(backward, torch.float32), *((forward, dtype) for dtype in TYPES)]  # float16 does not hold such gradients
WARPS = {1: 20, 2: 1, 4: 0, 8: 20, 16: 1}  # and columns that the row lacks


def pytest_generate_tests(metafunc):
    """Products of the vendor; `turn` are cases of the foremost ones, of which the other ones take every third."""
    products, foremost = metafunc.module.PRODUCTS, metafunc.module.FOREMOST
    every = itertools.product(products, CASES)
    turns = [case for at, case in enumerate(every) if case[0] in foremost or at % 3 == 0]
    for fixture, values in (("product", products), ("foremost", sorted(foremost)), ("turn", turns)):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, values, ids=str)


@pytest.fixture
def run_on(request):
    return request.module.RUN_ON


@pytest.fixture(params=[forward, backward], ids=["forward", "gradient"])
def direction(request):
    return request.param


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_masked_or_not_finite(run_on, product, name, direction):
    compare(direction, run_on(product), name, n_rows=5)


@pytest.mark.parametrize(("dtype", "form"), OTHERS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_types_and_forms(run_on, product, name, dtype, form, direction):
    compare(direction, run_on(product), name, form, dtype, special=as_they_are)


@pytest.mark.parametrize(("direction", "dtype"), SPIKED, ids=lambda value: getattr(value, "__name__", str(value)))
@pytest.mark.parametrize("name", ["rows", "one element at a time", "blocks", "unaligned", "shared", "online"])
def test_a_spike_in_many_lanes_of_rows_far_below_0(run_on, product, name, direction, dtype):
    """No padding and no lane may win."""
    compare(direction, run_on(product), name, dtype=dtype, special=spikes, n_rows=64 if name == "rows" else 8)


@pytest.mark.slow
def test_more_spikes(run_on, turn, direction):
    product, name = turn
    compare(direction, run_on(product), name, special=spikes, n_rows=128)


def wide(x):
    """Numbers from the smallest to the largest of their type, and rows of one value."""
    largest = torch.finfo(x.dtype).max
    x[0] = torch.linspace(-1, 1, x.shape[1], dtype=torch.float64).mul(largest)
    x[1] = largest
    x[2], x[2, 0] = -largest, 0.0
    x[3] = 0.0
    x[4, 1::2], x[4, ::2] = -INF, NAN


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("name", ["rows", "one element at a time", "blocks", "unaligned", "online"])
def test_wide_rows(run_on, foremost, name, dtype):
    compare(forward, run_on(foremost), name, dtype=dtype, special=wide)


@pytest.mark.parametrize(("num_warps", "missing"), WARPS.items())
def test_every_number_of_warps(run_on, product, num_warps, missing, direction):
    """A row for all of them, of which the last lanes have nothing; with a spike in many lanes, and with others."""
    width = 64 * num_warps * 4
    tiling, vector = Tiling(1, width, num_warps), 1 if missing % 4 else 4
    for special, n_rows in ((spikes, 8 if num_warps < 8 else 24), (None, 5)):
        direction(
            run_on(product), "softmax", torch.float32, CPU, width - missing, tiling, 3, vector, n_rows=n_rows, special=special
        )


@pytest.mark.parametrize("stride", [391, 393, 400, 1001])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rows_that_start_anywhere(run_on, foremost, direction, stride, dtype):
    tiling, n_cols, _ = CASES["unaligned"]
    direction(run_on(foremost), "softmax", dtype, CPU, n_cols, tiling, 3, 128 // torch.finfo(dtype).bits, stride=stride)
