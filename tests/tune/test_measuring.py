"""Timed launches compute what float64 does; live devices whose cost is assumed are reported once."""

import dataclasses
import logging

import pytest

from portable_softmax import Device
from portable_softmax.planning.problem import contiguous_problem
from portable_softmax.runtime import plans

NOTICE = "what launches cost on {} is assumed; `portable-softmax tune` measures it"


@pytest.fixture
def told(monkeypatch, caplog):
    """Returns what the log holds. A live device's plan is that of the same device elsewhere: the compiler is not asked."""
    plans._notify.cache_clear()
    elsewhere = plans.planner.choose(contiguous_problem(64, 128, "float32"), Device.from_profile("nvidia/h200"), plans._measure)
    monkeypatch.setattr(
        plans.planner, "choose", lambda problem, device, measure: dataclasses.replace(elsewhere, problem=problem)
    )
    caplog.set_level(logging.INFO, "portable_softmax")
    return lambda: [record.message for record in caplog.records]


@pytest.mark.parametrize("name", ["amd/mi300x", "nvidia/a100-40gb"])
def test_a_device_that_nobody_measured_is_told_once(name, told):
    device = dataclasses.replace(Device.from_profile(name), index=0)
    found = [plans.plan_problem(contiguous_problem(n_rows, 128, "float32"), device) for n_rows in (32, 64)]
    assert told() == [NOTICE.format(name)]
    assert all(plan.reasons[-1] == NOTICE.format(name) for plan in found)


@pytest.mark.parametrize(("name", "index"), [("nvidia/h200", 0), ("amd/mi300x", None), ("ascend/910b3", 0)])
def test_others_are_not(name, index, told):
    device = dataclasses.replace(Device.from_profile(name), index=index)
    for n_cols in (128, 5000):
        found = plans.plan_problem(contiguous_problem(64, n_cols, "float32"), device)
        assert told() == []
        assert not found.reasons[-1].startswith("what launches cost")
