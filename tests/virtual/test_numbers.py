"""Every kernel on a virtual NPU, compared with float64: the rows of the table that it has, of which most are slow."""

import machines
import pytest
from launched_rows import check
from table import LAYOUTS, TILINGS, table

ROWS = [
    row
    for row in table()
    if TILINGS[row.tiling].blocks == TILINGS[row.tiling].splits == 1
    and LAYOUTS[row.layout].vector
    and not LAYOUTS[row.layout].scattered
]


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.slow] * (at % 7 > 0), id=str(row)) for at, row in enumerate(ROWS)]
)
def test_right(machine, row):
    npu = machines.npu(machine)
    assert not npu.lacks(row)
    check(row, npu)
