"""The softmax of scores on npu tensors, the whole way, against float64: every step, in the forms that plans take."""

import pytest
import torch
from closeness import assert_close
from scored import added, computed, expected, joined, random, some, steps

from portable_softmax.operators import scored
from portable_softmax.planning.scores import Scores


def on_npu(given):
    return {key: each.to("npu:0") if isinstance(each, torch.Tensor) else each for key, each in given.items()}


@pytest.mark.parametrize("name", steps(1, 1, 1, 1, "cpu"))
def test_each_step(machine, name):
    scores, given = joined(steps(2, 1, 3, 40, "cpu")[name])
    x = random(2, 1, 3, 40)
    result = computed(x.to("npu:0"), "softmax", scores, **on_npu(given))
    assert_close(result.cpu(), *expected(x, "softmax", scores, **given))
