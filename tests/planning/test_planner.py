"""The planner's decisions: arithmetic over a profile, and a function in place of the compiler; recorded plans."""

import json
from pathlib import Path

import pytest
from offline import A2, H200, MI300X, choose, planned, table, with_hardware

from portable_softmax import CompileError, Device, KernelResources, PlanError
from portable_softmax.planning.candidates import estimated
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime import plans


def test_a_launch_that_spills_much_is_replaced_and_the_plan_names_both():
    tried = []

    def spills_at_first(problem, tiling, device):
        tried.append(tiling)
        return KernelResources(tiling.num_warps, 64, 16, spilled_bytes_per_thread=0 if len(tried) > 1 else 200)

    plan = planned(H200, 4096, 4096, measure=spills_at_first)
    assert plan.tiling in tried[1:]
    assert plan.warnings == ()
    (runner_up,) = (reason for reason in plan.reasons if reason.startswith("runner-up of "))
    assert str(tried[0]) not in runner_up, "it is the fastest of all others, compiled or not"


def test_a_launch_that_does_not_fit_or_compile_is_rejected():
    def measure(problem, tiling, device):
        if tiling.strategy == "in registers":
            raise CompileError("ub overflow")
        return KernelResources(shared_memory_bytes=200_000 if tiling.split_cols > 1024 else 1000)

    plan = planned(A2, 4096, 4096, measure=measure)
    assert (plan.tiling.strategy, plan.tiling.split_cols) == ("two-pass", 1024)
    assert plan.reasons[0] == "rejected in registers 2 x 4096: does not compile: ub overflow"
    assert "rejected two-pass 1 x 4096: does not fit: unified buffer" in plan.reasons


def test_when_nothing_fits_the_error_names_all_attempts():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 32, 10**6)

    gradient = Problem(64, 4096, "float32", "float32", 1, form="log_softmax", backward=True)
    with pytest.raises(PlanError, match="no launch of gradient of log_softmax in float32, 64 x 4096, fits"):
        choose(gradient, Device.from_profile(MI300X), measure)
    with pytest.raises(
        PlanError, match=r"(?s)softmax in float32, 64 x 4096, fits .*in registers 1 x 4096.*does not fit: shared memory"
    ):
        planned(MI300X, 64, 4096, measure=measure)


def test_errors_name_the_rows_of_the_caller(monkeypatch):
    monkeypatch.setattr(plans, "_choices", {})
    monkeypatch.setattr(plans, "_compile", lambda *candidate: KernelResources(4, 32, 10**6))
    with pytest.raises(PlanError, match="no launch of softmax in float32, 1000 x 4096, fits"):
        plans.plan(1000, 4096, "float32", H200)


@pytest.mark.parametrize(
    ("form", "backward", "name"),
    [
        ("softmax", False, "softmax in float32"),
        ("log_softmax", True, "gradient of log_softmax in float32"),
        ("token_log_probs", False, "log-probabilities of tokens in float32"),
        ("token_log_probs", True, "gradient of log-probabilities of tokens in float32"),
    ],
)
def test_names_and_estimates_of_problems(form, backward, name):
    problem, device = contiguous_problem(64, 4096, "float32", form=form, backward=backward), Device.from_profile(H200)
    assert problem.name == name
    narrow, wide, bounded = (
        estimated(problem, tiling, device)
        for tiling in (Tiling(1, 1024, 4), Tiling(4, 4096, 4), Tiling(1, 1024, 4, max_registers=16))
    )
    assert wide.registers_per_thread == min(
        255, narrow.registers_per_thread + (4 * 4096 - 1024) * (1 + problem.backward) // 128
    )
    assert (wide.spilled_bytes_per_thread > 0, narrow.spilled_bytes_per_thread) == (problem.backward, 0)
    assert (bounded.registers_per_thread, bounded.spilled_bytes_per_thread // 4) == (16, narrow.registers_per_thread - 16)


def test_reasons_name_the_decisions_and_the_source_of_the_policy():
    plan = planned(H200, 1823, 500)
    text = "\n".join(plan.reasons)
    assert f"num_programs {plan.num_programs}: one per tile" in text
    assert "runner-up of " in text
    assert f"expected {plan.terms}" in str(plan).replace("\n    ", " ")


def test_a_row_is_not_shared_where_its_splits_would_not_run_at_once():
    """They would look in vain, and compute all of it again."""
    device = with_hardware(H200, multiprocessor_count=4)
    problem = contiguous_problem(64, 262_144, "float32")
    plan = choose(problem, device, lambda problem, tiling, device: KernelResources(tiling.num_warps, 32, 70_000))
    assert plan.tiling.splits <= 12, "three on each multiprocessor"


GOLDEN = Path(__file__).parents[1] / "support" / "recorded" / "plans.json"


def test_plans_change_only_on_purpose():
    golden, planned = json.loads(GOLDEN.read_text()), table()
    changed = [f"{name}: {golden.get(name)} -> {plan}" for name, plan in planned.items() if golden.get(name) != plan]
    assert not changed, "\n".join(["if it is meant to be so, run: python scripts/record.py --plans", *changed])
    assert golden.keys() == planned.keys()
