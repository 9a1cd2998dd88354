"""The machine code of each architecture, strategy, type and direction, executed and compared with float64."""

import pytest
import torch
from direct import as_they_are, backward, forward
from machine_code import CASES, PRODUCTS, compare, in_virtual_device, spikes

NARROW = [torch.float16, torch.bfloat16]


@pytest.fixture(params=PRODUCTS)
def run(request):
    return in_virtual_device(request.param)


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


@pytest.mark.parametrize("name", CASES)
def test_rows_that_are_masked_or_not_finite(run, direction, name):
    rows = {"n_rows": 5} if direction is forward else {}
    compare(direction, run, name, **rows)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_narrow_types(run, direction, name, dtype):
    compare(direction, run, name, dtype=dtype, special=as_they_are)


@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
@pytest.mark.parametrize("name", ["rows", "ragged", "shared", "online"])
def test_forms(run, direction, name, form):
    compare(direction, run, name, form=form, special=as_they_are)


@pytest.mark.parametrize("name", ["rows", "ragged", "shared"])
def test_a_spike_in_every_lane_of_negative_rows(run, direction, name):
    compare(direction, run, name, special=spikes, n_rows=64 if name == "rows" else 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_more_spikes(run, direction, name):
    compare(direction, run, name, special=spikes, n_rows=128)
