"""Kernels of examples/ on AMD devices that are virtual: planned, compiled and launched as on a real one."""

import pytest
from row_kernels import CASES, assert_launched

pytestmark = pytest.mark.each_value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("name", ["driver_mi300x", "driver_rx7900xtx"])
@pytest.mark.parametrize(("rows", "cols"), [(3, 40), (2, 300)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right(machine, case, name, rows, cols, dtype):
    assert_launched(machine, name, case, rows, cols, dtype)
