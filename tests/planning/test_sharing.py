"""Which rows programs share, and how they are cut into splits: on every GPU that has a profile."""

import pytest
from offline import A2, H200, light, planned, with_hardware

from portable_softmax import Device, KernelResources
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem


def test_where_a_profile_does_not_say_how_rows_are_not_shared():
    assert {planned(A2, n_rows, 10**6).tiling.strategy for n_rows in (1, 4096)} == {"online"}


def heavy(registers):
    """A compiler that needs so many registers, and spills what it may not use."""

    def measure(problem, tiling, device):
        held = min(tiling.max_registers or registers, registers)
        return KernelResources(tiling.num_warps, held, 0, 8 * (registers - held))

    return measure


def test_a_row_is_not_shared_where_its_splits_would_not_run_at_once():
    """They would look in vain, and compute all of it again."""
    device = with_hardware(H200, multiprocessor_count=4)
    problem = contiguous_problem(64, 262_144, "float32")
    plan = choose(problem, device, lambda problem, tiling, device: KernelResources(tiling.num_warps, 32, 70_000))
    assert plan.tiling.splits <= 12, "three on each multiprocessor"


def test_a_plan_says_that_splits_are_read_twice():
    plan = choose(Problem(64, 500_000, "bfloat16", "bfloat16", 8, inner=64), Device.from_profile(H200), light)
    assert plan.tiling.reads_splits_twice
    assert f"of {plan.tiling.blocks} blocks, read twice, " in str(plan.tiling)
    assert "which exchange max and sum, and read it twice" in str(plan).replace("\n    ", " ")


@pytest.mark.parametrize("profile", ["nvidia/jetson-agx-orin", "intel/arc-140v"])
def test_a_small_device_shares_the_longest_row_among_as_many_programs_as_run_at_once(profile):
    device = Device.from_profile(profile)
    plan = choose(contiguous_problem(1, 4_000_000, "float32"), device, heavy(64))
    assert (plan.tiling.strategy, plan.tiling.held) == ("shared", False)
    assert plan.tiling.splits <= device.resident(plan.occupancy)
    assert device.hardware.multiprocessor_count <= 2 * plan.tiling.splits, "at most half of the multiprocessors are idle"
