"""Both kernels as the vendors' compilers make them, for devices that are not here."""

import dataclasses

import pytest
from offline import H200, MI300X, read_problem

from portable_softmax import Device
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.plans import plan_problem

STEPS = [(step, backward) for step in ("reduce", "map") for backward in (False, True)]


@pytest.mark.each_value
@pytest.mark.parametrize("profile", [H200, MI300X])
@pytest.mark.parametrize(("step", "backward"), STEPS)
def test_shards_of_a_vocabulary_have_a_launch_that_spills_nothing(profile, step, backward):
    device = Device.from_profile(profile)
    for dtype, n_cols in (("bfloat16", 25_129), ("bfloat16", 75_968)):
        problem = read_problem(4096, n_cols, dtype, device, "log_softmax", backward)
        assert problem.unaligned == (n_cols % 8 != 0)
        plan = plan_problem(dataclasses.replace(problem, step=step), device)
        assert plan.resources.spilled_bytes_per_thread == 0
        assert plan.occupancy.programs_per_multiprocessor >= 1
        assert plan.num_programs * plan.tiling.tile_rows >= 4096


@pytest.mark.slow
@pytest.mark.parametrize("profile", [H200, MI300X])
@pytest.mark.parametrize(("step", "backward"), STEPS)
def test_other_layouts_and_types_compile(profile, step, backward):
    device = Device.from_profile(profile)
    for layout in ({}, {"depth": 3}, {"inner": 128}, {"inner": 4, "scattered": True, "depth": 2}):
        for types in (("float64", "float64"), ("bfloat16", "float32")):
            assert plan_problem(Problem(4096, 20_000, *types, 1, backward=backward, step=step, **layout), device)
