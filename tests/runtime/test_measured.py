"""warm_up(measure=) times the first launches of a softmax, and its bucket of rows uses the fastest."""

from dataclasses import replace

import pytest
import torch
from offline import light

from portable_softmax import Device
from portable_softmax.planning.operands import bucket_of, contiguous_problem
from portable_softmax.planning.planner import ranked
from portable_softmax.runtime import measuring, plans
from portable_softmax.runtime.kernel import kernels_of

H200 = Device.from_profile("nvidia/h200")


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(plans, "_choices", {})
    monkeypatch.setattr(plans, "_compile", light)


def measure(monkeypatch, problem, count):
    """Returns what is timed, of which every launch but the first takes half as long, and the choice."""
    calls = []
    monkeypatch.setattr(measuring, "is_capturing", lambda device: False)
    monkeypatch.setattr(measuring, "operands_of", lambda *of: [])
    monkeypatch.setattr(measuring, "loaded", lambda *of: [(None, None)])
    monkeypatch.setattr(measuring, "bind", lambda plan, *of: plan.tiling)
    monkeypatch.setattr(measuring, "partial", lambda tiling: tiling)
    monkeypatch.setattr(measuring, "timed", lambda some, device: calls.extend(some) or [[8, *[4] * (len(some) - 1)]] * 2)
    return calls, plans.choice_of(problem, H200, count, lambda launches: measuring.time_softmaxes(launches, problem, H200))


@pytest.mark.parametrize("form", ["softmax", "token_log_probs"])
def test_the_fastest_launch_serves_its_bucket(form, monkeypatch):
    problem = contiguous_problem(4096, 32000, "bfloat16", form=form)
    before = plans.n_measured
    timed, _ = measure(monkeypatch, problem, 3)
    assert (len(timed), plans.n_measured) == (3, before + 1)
    for rows in (4096, 5000):
        plan = plans.plan_problem(contiguous_problem(rows, 32000, "bfloat16", form=form), H200)
        assert plan.tiling == timed[1]
        assert plan.reasons[0].startswith(f"measured: {plan.tiling} took 4.0 us; {timed[0]} took 8.0 us")
    other = contiguous_problem(12288, 32000, "bfloat16", form=form)
    assert not any("measured" in reason for reason in plans.plan_problem(other, H200).reasons)


@pytest.mark.parametrize(("n_rows", "invariant"), [(4096, True), (1, False)])
def test_what_is_not_timed_is_the_launch_of_least_cost_even_if_it_spills(monkeypatch, n_rows, invariant):
    problem = contiguous_problem(n_rows, 32000, "bfloat16", batch_invariant=invariant)
    first = ranked(bucket_of(problem), H200)[0].tiling
    monkeypatch.setattr(plans, "_compile", lambda *of: replace(light(*of), spilled_bytes_per_thread=int(of[1] == first)))
    timed, choice = measure(monkeypatch, problem, 4)
    assert (timed, choice.tiling, choice.reasons[0].startswith("not measured: ")) == ([], first, not invariant)


@pytest.mark.parametrize("form", ["softmax", "log_softmax", "token_log_probs"])
@pytest.mark.parametrize("backward", [False, True])
def test_operands_are_those_of_the_kernel(form, backward):
    problem = contiguous_problem(96, 4096, "bfloat16", form=form, backward=backward)
    choice = plans.choice_of(problem, H200)
    operands = measuring.operands_of(kernels_of(choice.problem, choice.tiling, H200)[0], problem, torch.device("cpu"))
    shapes = {operand.shape for operand in operands if operand is not None}
    assert (96, 4096) in shapes
    assert {shape[-1] for shape in shapes} <= {96, 4096}
