"""Kernels of examples/ that go over rows: planned for a product of each architecture, and run from planning to numbers."""

import pytest
from row_kernels import CASES, PLANNED, assert_launched, assert_plan

from portable_softmax import Device, profiles

PRODUCTS = {device.arch: name for name in profiles() if (device := Device.from_profile(name)).backend == "xpu"}
pytestmark = pytest.mark.each_value


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("device", PRODUCTS.values())
def test_planned(name, device):
    assert_plan(name, device)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", ["driver_max1100", "driver_b580"])
@pytest.mark.parametrize(("rows", "cols"), [(3, 40), (70, 300), (5, 3000)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right(machine, case, name, rows, cols, dtype):
    assert_launched(machine, name, case, rows, cols, dtype)
