"""explain: the plan of the very launch that a call makes, or why there is none; test_arguments.py has what both refuse."""

import os
import subprocess
import sys

import pytest
import torch

from portable_softmax import Device, DtypeError, batch_invariant, explain, plan, softmax

pytestmark = [pytest.mark.kernel, pytest.mark.filterwarnings("ignore:An output with one or more")]


@pytest.fixture
def x(where):
    return torch.randn(24, 37, generator=torch.Generator().manual_seed(0)).to(where)


def softly(x, dim=-1, dtype=None, **given):
    """A call, as its positional arguments and its options."""
    return (x, dim, dtype), given


COPIED, CONVERTED = "the input is copied first, and", "torch converts int32 to float32 first"
CALLS = {  # and what is said of each beside the plan
    "rows": (softly, "float32 to float32: softmax along dim 1 of (24, 37), strides (37, 1)\n"),
    "rows side by side": (lambda x: softly(x, 0), "24 columns on ;; along dim 0 of (24, 37), strides (37, 1)\n"),
    "t()": (lambda x: softly(x.t(), 0), f"{COPIED} ;; 37 columns on ;; along dim 0 of (37, 24), strides (1, 37)\n"),
    "slices": (lambda x: softly(x[::2, 3:], 1), "rows of 34 columns on "),
    "another type": (lambda x: softly(x.half(), 1, torch.float64), "float16 to float64:"),
    "converted": (lambda x: softly(x.int(), 1, torch.float32), f"{CONVERTED} ;; float32 to float32:"),
    "copied": (lambda x: softly(x[:, ::2], 1), COPIED),
    "a number": (lambda x: softly(x[0, 0], 0), "1 columns on "),
    "needs a gradient": (lambda x: softly(x.clone().requires_grad_()), ""),
    "a mask of columns": (lambda x: softly(x, mask=torch.arange(37, device=x.device) < 20, scale=0.5), "scale 0.5, mask bool"),
    "an added mask": (lambda x: softly(x, mask=x.half(), softcap=5.0), "mask float16 (24, 37), softcap 5.0"),
    "temperatures": (lambda x: softly(x, temperature=x[:, :1].abs() + 1), ""),
    "a sink": (lambda x: softly(x, sink=1.0), ""),
    "everything": (
        lambda x: softly(x, scale=0.125, causal="lower_right", mask=x > 0, softcap=5.0, masked_rows="zero"),
        "scale 0.125, mask bool (24, 37), causal lower_right, softcap 5.0, masked_rows zero",
    ),
    "in place": (lambda x: softly(x, out=x), "in place"),
    "transposed": (lambda x: softly(x, out=x.new_empty(37, 24).t()), f"{COPIED} ;; into strides (1, 24)"),
    "off every alignment": (lambda x: softly(x, out=x.new_empty(24 * 37 + 1)[1:].view(24, 37)), "into strides (37, 1)"),
    "resized": (lambda x: softly(x, out=x.new_empty(0)), "into strides (1,)"),
    "scores into a tensor": (lambda x: softly(x, scale=2.0, out=x.new_empty(37, 24).t()), f"{COPIED} ;; into strides (1, 24)"),
    "scores in place": (lambda x: softly(x, scale=2.0, out=x), "in place"),
}


@pytest.mark.parametrize(("make", "words"), CALLS.values(), ids=CALLS)
def test_it_is_the_plan_of_the_call(x, plans, make, words):
    arguments, given = make(x)
    told = explain(*arguments, **given)
    assert not plans, "something was launched"
    softmax(*arguments, **given)
    ((problem, plan),) = plans
    assert told.endswith(str(plan))
    assert [each for each in words.split(" ;; ") if each not in told] == []
    assert (COPIED in told, CONVERTED in told, problem.in_place) == (COPIED in words, CONVERTED in words, words == "in place")


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


def test_where_there_is_no_plan(where):
    assert explain(torch.empty(0, 3, device=where)) == "nothing is computed: the tensor has no elements"
    x, mask = torch.randn(2, 2, 2, 2, 3, 8, device=where), torch.rand(2, 1, 2, 1, 3, 8, device=where) > 0.5
    said = "a launch for each index of the outermost dimension computes it: (2, 2, 2, 2, 3, 8)"
    assert explain(x, mask=mask).startswith(said)


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


def test_a_tensor_on_the_cpu_is_torchs():
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
