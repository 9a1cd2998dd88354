"""Every kernel on a virtual NPU, compared with float64: rows of the table of tests/support/table.py."""

import machines
import pytest
from launched_rows import check
from table import table

QUICK = 7  # every so many rows are not slow


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.slow] * (at % QUICK > 0), id=str(row)) for at, row in enumerate(table())]
)
def test_right(machine, row):
    npu = machines.npu(machine)
    if reason := npu.lacks(row):
        pytest.skip(reason)
    check(row, npu)
