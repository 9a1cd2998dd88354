"""explain: the plan of the very launch that a call makes, or why there is none."""

import os
import subprocess
import sys

import pytest
import torch

from portable_softmax import Device, DtypeError, LayoutError, batch_invariant, explain, plan, softmax
from portable_softmax.devices.detect import interpreting
from portable_softmax.operators import launching

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


def test_what_is_asked_is_said(x):
    told = explain(x, scale=0.125, causal="lower_right", mask=x > 0, softcap=5.0, masked_rows="zero")
    words = "softmax along dim 1 of (24, 37), strides (37, 1), scale 0.125, mask bool (24, 37), causal lower_right, softcap 5.0"
    assert f"{words}, masked_rows zero" in told
    assert "along dim 0 of (37, 24), strides (1, 37)\n" in explain(x.t(), 0)


OUTS = {
    "in place": lambda x: x,
    "transposed": lambda x: torch.empty(37, 24, device=x.device).t(),
    "off every alignment": lambda x: torch.empty(24 * 37 + 1, device=x.device)[1:].view(24, 37),
    "resized": lambda x: torch.empty(0, device=x.device),
}


@pytest.mark.filterwarnings("ignore:An output with one or more")
@pytest.mark.parametrize("given", [{}, {"scale": 2.0}], ids=["plain", "scores"])
@pytest.mark.parametrize("name", OUTS)
def test_it_is_the_plan_of_a_call_into_a_tensor(x, plans, name, given):
    out = OUTS[name](x)
    told = explain(x, out=out, **given)
    assert ("in place" if name == "in place" else f"into strides {out.stride()}") in told
    softmax(x, out=out, **given)
    ((problem, plan),) = plans
    assert problem.in_place == (name == "in place")
    assert told.endswith(str(plan))


def test_a_tensor_without_memory_is_planned_for_a_device(x):
    """On meta, and on the CPU, for a device that is not here; Ascend's plans need no compiler."""
    for shape, offset in (((4096, 781), 0), ((4096, 768), 0), ((4096, 768), 1)):
        meta, here = (torch.empty(offset + shape[0] * shape[1], device=where)[offset:].view(shape) for where in ("meta", "cpu"))
        told = explain(meta, device="ascend/910b3")
        assert told == explain(here, device="ascend/910b3") == explain(meta, device=Device.from_profile("ascend/910b3"))
        assert offset or told.endswith(str(plan(*shape, "float32", "ascend/910b3")))
        assert explain(meta, device="ascend/910b3", out=meta).splitlines()[0].endswith("in place")
    with pytest.raises(DtypeError, match="float64 was asked for; npu/Ascend910B3 computes"):
        explain(meta.double(), device="ascend/910b3")
    assert explain(meta).startswith("nothing is computed: the tensor is on meta. Give device=")
    with torch.autocast("cpu", torch.bfloat16):
        assert softmax(meta.half(), scale=2.0).is_meta


def test_a_tensor_on_the_cpu_is_torchs(monkeypatch):
    code = """
import torch
from portable_softmax import explain, plan
print(explain(torch.zeros(2, 3)), explain(torch.zeros(2, 3), scale=2.0), sep="\\n")
told = explain(torch.empty(64, 777, device="meta"), device="nvidia/h200")
print(told.endswith(str(plan(64, 777, "float32", "nvidia/h200"))))
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    why = "it: the tensor is on the CPU, and TRITON_INTERPRET=1 is not set"
    assert told.splitlines() == [f"torch.softmax computes {why}", f"torch's operators compute {why}", "True"]


CPU = {  # calls that raise there, as explain does
    "integers": lambda function, x: function(x.int()),
    "causal along another dim": lambda function, x: function(x, dim=0, causal=True),
    "a mask that does not broadcast": lambda function, x: function(x, mask=torch.ones(3, 3) > 0),
    "a mask elsewhere": lambda function, x: function(x, mask=torch.ones(24, 37, device="meta") > 0),
    "a dim": lambda function, x: function(x, dim=2),
    "no cap": lambda function, x: function(x, softcap=0.0),
    "another type of result": lambda function, x: function(x, out=x.double()),
    "a result that lies partly under it": lambda function, x: function(x[:, :12], out=x[:, 5:17]),
    "a result of scores that does": lambda function, x: function(x[:, :12], scale=2.0, out=x[:, 5:17]),
    "a result that is no tensor": lambda function, x: function(x, out=1.0),
}


@pytest.mark.parametrize("by", ["kernel", "torch"])
@pytest.mark.parametrize("call", CPU.values(), ids=CPU)
def test_it_raises_what_the_call_raises(monkeypatch, call, by):
    x = torch.randn(24, 37)
    if by == "torch":
        monkeypatch.setattr(launching, "interpreting", lambda: False)
    elif not interpreting():
        pytest.skip("the tensors are on the CPU")
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        call(softmax, x)
    with pytest.raises(type(theirs.value)) as ours:
        call(explain, x)
    first, second = (
        str(each.value).split("\n")[0].removeprefix("explain()").removeprefix("softmax()") for each in (ours, theirs)
    )
    assert first == second


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
