"""explain: the plan of the very launch that a call makes, or why there is none."""

import os
import subprocess
import sys

import pytest
import torch

from portable_softmax import DtypeError, LayoutError, batch_invariant, explain, softmax

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(24, 37, generator=torch.Generator().manual_seed(0)).to(where)


CALLS = {
    "rows": (lambda x: x, -1, None),
    "rows side by side": (lambda x: x, 0, None),
    "slices": (lambda x: x[::2, 3:], 1, None),
    "another type": (lambda x: x.half(), 1, torch.float64),
    "converted": (lambda x: x.int(), 1, torch.float32),
    "copied": (lambda x: x[:, ::2], 1, None),
    "a number": (lambda x: x[0, 0], 0, None),
    "needs a gradient": (lambda x: x.clone().requires_grad_(), 1, None),
}


@pytest.mark.parametrize(("make", "dim", "dtype"), CALLS.values(), ids=CALLS)
def test_it_is_the_plan_of_the_call(x, plans, make, dim, dtype):
    given = make(x)
    told = explain(given, dim, dtype)
    assert not plans, "something was launched"
    softmax(given, dim, dtype)
    ((_, plan),) = plans
    assert told.endswith(str(plan))
    assert ("is copied first" in told) == (make is CALLS["copied"][0])
    assert ("torch converts int32 to float32 first" in told) == (make is CALLS["converted"][0])
    types = f"{str(torch.float32 if given.dtype is torch.int32 else given.dtype)[6:]} to {str(dtype or given.dtype)[6:]}:"
    assert f"rows of {plan.problem.n_cols} columns on " in told
    assert types in told


SCORES = {
    "a mask of columns": lambda x: {"mask": torch.arange(37, device=x.device) < 20, "scale": 0.5},
    "a mask of each element": lambda x: {"mask": x > 0},
    "an added mask": lambda x: {"mask": x.half(), "softcap": 5.0},
    "temperatures": lambda x: {"temperature": x[:, :1].abs() + 1},
    "causal": lambda x: {"causal": True, "masked_rows": "zero"},
    "a sink": lambda x: {"sink": 1.0},
}


@pytest.mark.parametrize("name", SCORES)
def test_it_is_the_plan_of_a_call_of_scores(x, plans, name):
    given = SCORES[name](x)
    told = explain(x, **given)
    assert not plans, "something was launched"
    softmax(x, **given)
    ((_, plan),) = plans
    assert plan.problem.scores
    assert told.endswith(str(plan))


def test_scores_whose_mask_has_too_many_levels(where):
    x, mask = torch.randn(2, 2, 2, 2, 3, 8, device=where), torch.rand(2, 1, 2, 1, 3, 8, device=where) > 0.5
    assert explain(x, mask=mask).startswith(
        "a launch for each index of the outermost dimension computes it: (2, 2, 2, 2, 3, 8)"
    )


def test_the_choices_that_are_in_force_are_read(x, plans):
    with torch.autocast(x.device.type, torch.bfloat16):
        told = explain(x.bfloat16())
        softmax(x.bfloat16())
    assert "bfloat16 to float32:" in told
    assert told.endswith(str(plans[-1][1]))
    with batch_invariant():
        told = explain(x, 0)
        softmax(x, 0)
    assert "is copied first, and the result back if need be: batch_invariant reads rows as" in told
    assert told.endswith(str(plans[-1][1]))


def test_no_elements(x):
    assert explain(x[:0]) == "nothing is computed: the tensor has no elements"


def test_a_tensor_on_the_cpu_is_torchs():
    code = "import torch; from portable_softmax import explain; print(explain(torch.zeros(2, 3)))"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    assert told == "torch.softmax computes it: the tensor is on the CPU, and TRITON_INTERPRET=1 is not set\n"


class Sharded(torch.Tensor):
    device_mesh = None


REFUSED = {
    "a list": (lambda x: [1.0], -1, None, TypeError, "argument 'x' must be Tensor, not list"),
    "a DTensor": (lambda x: x.as_subclass(Sharded), -1, None, TypeError, r"give x.to_local\(\)"),
    "a dim": (lambda x: x, 2, None, IndexError, "Dimension out of range"),
    "a dim of another type": (lambda x: x, 1.0, None, TypeError, "argument 'dim' must be int, not float"),
    "a dtype": (lambda x: x, 1, "float32", TypeError, "argument 'dtype' must be torch.dtype, not str"),
    "integers": (lambda x: x.int(), 1, None, DtypeError, "int32 was asked for"),
    "a layout": (lambda x: x.to_sparse(), 1, None, LayoutError, "use x.to_dense"),
}


@pytest.mark.parametrize(("make", "dim", "dtype", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_the_call_would_refuse(x, make, dim, dtype, error, words):
    with pytest.raises(error, match=words):
        explain(make(x), dim, dtype)
