"""Kernels of examples/ that go over rows, planned for a product of each architecture."""

import pytest
from row_kernels import PLANNED, assert_plan

from portable_softmax import Device, profiles

PRODUCTS = {device.arch: name for name in profiles() if (device := Device.from_profile(name)).backend == "xpu"}
pytestmark = pytest.mark.each_value


@pytest.mark.parametrize("name", PLANNED)
@pytest.mark.parametrize("device", PRODUCTS.values())
def test_planned(name, device):
    assert_plan(name, device)
