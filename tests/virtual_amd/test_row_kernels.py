"""Kernels of examples/ on AMD devices that are virtual: planned, compiled and launched as on a real one."""

import pytest
import row_kernels
import torch

from portable_softmax import current_device

pytestmark = pytest.mark.each_value


@pytest.mark.parametrize("case", row_kernels.CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("file", ["driver_mi300x", "driver_rx7900xtx"])
@pytest.mark.parametrize(("rows", "cols"), [(3, 40), (2, 300)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right(machine, case, file, rows, cols, dtype):
    run, arguments, given, exact = case(rows, cols, dtype)
    index = machine.index(file)
    with torch.cuda.device(index):
        placed = [each.to(f"cuda:{index}") if hasattr(each, "to") else each for each in arguments]
        plan = run.plan(*placed, **given)
        run(*placed, **given)
        launch = machine.launches[-1]
    row_kernels.assert_right(case, placed, exact)
    assert (launch.grid, launch.num_warps) == ((plan.num_programs, 1, 1), plan.meta["num_warps"])
    assert plan.device == current_device(index).name
