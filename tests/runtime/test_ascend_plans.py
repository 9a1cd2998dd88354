"""This package's kernels by Ascend's own compiler: what is planned first compiles, and long rows are read once."""

from dataclasses import replace

import pytest
from sweep import mostly_slow

from portable_softmax import CompileError, Device
from portable_softmax.devices.backends import npu_compiler
from portable_softmax.planning.operands import TOKEN_LOG_PROBS
from portable_softmax.planning.operands import contiguous_problem as rows
from portable_softmax.planning.problem import LogProbs, Scores
from portable_softmax.runtime import plans
from portable_softmax.runtime.compile import compiled
from portable_softmax.runtime.kernel import kernels_of
from portable_softmax.runtime.plans import plan_problem

pytestmark = pytest.mark.skipif(npu_compiler.missing() is not None, reason=str(npu_compiler.missing()))
A2, A5 = (Device.from_profile(name) for name in ("ascend/910b3", "ascend/950pr_958x"))
EVERYTHING = Scores(mask="bool", causal="lower_right", cap=30.0, temperature="rows", sink=True, scale="rows")
TOKENS = rows(4000, 8192, "bfloat16", TOKEN_LOG_PROBS, backward=True)
PLANNED = {  # problem, device, tile: whole rows are read once, "two-pass" ones twice
    "plain": (rows(60, 16384, "float32"), A2, "in registers 1 x 16384"),
    "ending": (rows(60, 12672, "float32", scores=Scores(temperature="rows")), A2, "two-pass 1 x 4096"),
    "masked": (rows(60, 16384, "float32", scores=Scores(mask="bool")), A2, "two-pass 1 x 4096"),
    "everything": (rows(4000, 1000, "float32", scores=EVERYTHING), A2, "in registers 4 x 1024"),
    "logarithm": (rows(60, 16384, "float32", "log_softmax"), A5, "in registers 1 x 16384"),
    "gradient": (rows(4000, 781, "bfloat16", backward=True, scores=Scores(cap=30.0)), A5, "in registers 4 x 1024"),
    "tokens": (replace(TOKENS, log_probs=LogProbs(gradient=True, entropy=True)), A2, "in registers 1 x 8192"),
}


def kernel_of(name):
    problem, device, _ = PLANNED[name]
    return compiled(kernels_of(problem, plan_problem(problem, device).tiling, device)[0], device)


QUICK = "plain", "everything", "gradient", "tokens"


@pytest.mark.parametrize("name", mostly_slow(PLANNED, QUICK.__contains__))
def test_the_launch_that_is_planned_first_compiles(name, monkeypatch):
    problem, device, tile = PLANNED[name]
    planned = plan_problem(problem, device)
    assert (str(planned.tiling), [reason for reason in planned.reasons if "rejected" in reason]) == (tile, [])
    assert planned.resources.compiler.startswith("bishengir-compile 1.2.0, ")
    assert "math.fma" not in (linalg := kernel_of(name).asm["ttadapter"]), "it would round twice"
    assert "math.exp2" not in linalg, "it would be made of exp"
    monkeypatch.setenv(npu_compiler.FOLDER, "")
    monkeypatch.setattr(plans, "_choices", {})
    estimated = plan_problem(problem, device)
    assert (estimated.tiling, estimated.resources.estimated) == (planned.tiling, True)


def test_a_crash_of_the_compiler_is_no_overflow():
    """The compiler of the 950 ends by a signal where transfers are double-buffered."""
    linalg, single = kernel_of("logarithm").asm["ttadapter"], {"multibuffer": False}
    assert npu_compiler.planned(linalg, A5.arch, {}) == npu_compiler.planned(linalg, A5.arch, single)
    with pytest.raises(CompileError, match=r"1\.2\.0 failed: it was ended by signal 11"):
        npu_compiler.planned(linalg, A5.arch, {"multibuffer": True})
