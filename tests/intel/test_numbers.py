"""The SPIR-V of every strategy against float64: forms, gradients, types, hostile rows, odd strides, guards around results."""

import pytest
import torch
from direct import INF, NAN, as_they_are, backward, forward
from machine_code import CASES, compare, spikes

from intel.machine import on_the_cpu
from intel.spirv import edited, never_published
from portable_softmax.planning.plan import Tiling

PRODUCTS = {"32 lanes": "intel/max-1550", "16 lanes": "intel/arc-a770"}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(params=PRODUCTS.values(), ids=PRODUCTS.keys())
def product(request):
    return request.param


@pytest.fixture(params=[forward, backward], ids=["forward", "gradient"])
def direction(request):
    return request.param


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_strategy(direction, name, dtype):
    compare(direction, on_the_cpu(PRODUCTS["32 lanes"]), name, dtype=dtype)


@pytest.mark.parametrize("name", CASES)
def test_every_strategy_in_sub_groups_of_16_lanes(direction, name):
    compare(direction, on_the_cpu(PRODUCTS["16 lanes"]), name)


@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
@pytest.mark.parametrize("name", CASES)
def test_every_form(direction, form, name):
    compare(direction, on_the_cpu(PRODUCTS["32 lanes"]), name, form)


@pytest.mark.parametrize("name", ["rows", "no mask", "online"])
def test_float64(direction, name):
    """In sub-groups of 32 lanes: a device of 16 has no float64."""
    tiling, n_cols, _ = CASES[name]
    direction(on_the_cpu(PRODUCTS["32 lanes"]), "softmax", torch.float64, torch.device("cpu"), n_cols, tiling, 3, vector=2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["rows", "one element at a time", "pieces", "ragged", "shared", "online"])
def test_rows_far_below_0(name, dtype):
    """With one number in each that is less far below: no padding and no lane may win."""
    compare(forward, on_the_cpu(PRODUCTS["32 lanes"]), name, dtype=dtype, special=spikes)


def wide(x, sign):
    """Numbers from the smallest to the largest of their type, and rows of one value."""
    largest = torch.finfo(x.dtype).max
    x[0] = torch.linspace(-1, 1, x.shape[1], dtype=torch.float64).mul(largest)
    x[1] = largest
    x[2], x[2, 0] = -largest, 0.0
    x[3] = 0.0
    x[4, 1::2], x[4, ::2] = -sign * INF, NAN


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["rows", "one element at a time", "pieces", "ragged", "online"])
def test_wide_rows(name, dtype):
    compare(forward, on_the_cpu(PRODUCTS["32 lanes"]), name, dtype=dtype, special=wide)


@pytest.mark.parametrize("num_warps", [1, 2, 8, 16, 32])
@pytest.mark.parametrize("n_cols", [2048, 1500, 1023])
def test_programs_of_any_number_of_warps(direction, n_cols, num_warps):
    tiling = Tiling("tile", 1, 2048, num_warps)
    vector = 4 if n_cols % 4 == 0 else 1
    direction(on_the_cpu(PRODUCTS["32 lanes"]), "softmax", torch.float32, torch.device("cpu"), n_cols, tiling, 2, vector)


@pytest.mark.parametrize("stride", [391, 393, 400, 1001])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_that_start_anywhere(direction, stride, dtype):
    tiling, n_cols, _ = CASES["ragged"]
    widest = 128 // torch.finfo(dtype).bits
    run = on_the_cpu(PRODUCTS["32 lanes"])
    direction(run, "softmax", dtype, torch.device("cpu"), n_cols, tiling, 3, widest, stride=stride)


SHARED = ["shared", "shared, ragged", "shared, in one piece"]


@pytest.mark.parametrize("name", SHARED)
def test_shared_rows_have_the_same_bits_in_every_run(product, direction, name):
    """Programs that run side by side, one after another, or find nothing that another one publishes."""
    runs = [compare(direction, on_the_cpu(product), name, special=as_they_are) for _ in range(20)]
    lost = on_the_cpu(product, lambda spirv: edited(spirv, never_published))
    runs += [compare(direction, lost, name, special=as_they_are) for _ in range(5)]
    assert all(torch.equal(runs[0], each) for each in runs[1:])
