"""The softmax of scores on npu tensors and its gradient, the whole way, against float64."""

import pytest
import torch
from scored import TOGETHER, compare, compare_gradient

COLUMNS = {"held": 781, "streamed": 10_000}


@pytest.mark.each_value
@pytest.mark.parametrize("direction", [compare, compare_gradient])
@pytest.mark.parametrize("strategy", COLUMNS)
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("form", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_steps_together(machine, direction, strategy, name, form, dtype):
    direction(f"npu:{machine.index('Ascend910B3')}", name, form, dtype, COLUMNS[strategy])
