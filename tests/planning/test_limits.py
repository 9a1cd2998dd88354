"""Launches have no more programs than they may: where there would be more, they walk."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offline import GPUS, foremost, light, with_hardware

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.request import contiguous_problem

AMD = [name for name in GPUS if name.startswith("amd/")]
NVIDIA = [name for name in GPUS if name.startswith("nvidia/")]
LENGTHS = (64, 781, 4096, 16384, 50_257, 10**5)  # rows are several in a tile, one, or shared
MANY = 2**40  # rows


def plan_of(device, n_rows, n_cols, **others):
    return choose(contiguous_problem(n_rows, n_cols, "float32", **others), device, light)


@pytest.mark.parametrize("n_cols", LENGTHS)
@pytest.mark.parametrize("profile", foremost(AMD))
def test_the_threads_of_a_launch_of_hip_are_less_than_2_to_the_32nd(profile, n_cols):
    device = Device.from_profile(profile)
    for backward in (False, True):
        many = plan_of(device, MANY, n_cols, backward=backward)
        threads = many.num_warps * device.hardware.warp_size
        assert 0 < many.num_programs * threads < 2**32
        assert "the most that one launch may have" in many.reasons[-1]
        fits(device, n_cols, (2**32 - 1) // threads, backward)


@pytest.mark.parametrize("n_cols", LENGTHS)
@pytest.mark.parametrize("profile", foremost(NVIDIA))
def test_the_programs_of_a_launch_of_cuda_are_less_than_2_to_the_31st(profile, n_cols):
    device = Device.from_profile(profile)
    for backward in (False, True):
        fits(device, n_cols, 2**31 - 1, backward)


def fits(device, n_cols, most, backward):
    """Asserts that so many programs are launched where there is work for more, in whole rows, and walk only then."""
    many = plan_of(device, MANY, n_cols, backward=backward)
    programs = most // many.tiling.splits * many.tiling.splits
    n_rows = most // many.tiling.splits * many.tiling.tile_rows
    last, first_too_many = (plan_of(device, each, n_cols, backward=backward) for each in (n_rows, n_rows + 1))
    assert [(plan.tiling.walk, plan.num_programs) for plan in (last, first_too_many, many)] == [
        (False, programs),
        *2 * [(True, programs)],
    ]


@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x", "amd/rx-7900-xtx", "ascend/910b3"])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    most_programs=st.one_of(st.none(), st.integers(1, 2**31)),
    most_threads=st.one_of(st.none(), st.integers(1024, 2**32)),
    n_rows=st.one_of(st.integers(1, 10_000), st.integers(1, 2**40)),
    n_cols=st.sampled_from(LENGTHS),
)
def test_programs_are_whole_groups_within_every_limit_and_walk_if_need_be(profile, most_programs, most_threads, n_rows, n_cols):
    device = with_hardware(profile, max_programs=most_programs, max_threads=most_threads)
    plan = plan_of(device, n_rows, n_cols)
    threads = (plan.num_warps or 1) * (device.hardware.warp_size or 1)
    assert 0 < plan.num_programs <= (most_programs or plan.num_programs)
    assert plan.num_programs * threads <= (most_threads or plan.num_programs * threads)
    assert plan.num_programs % plan.tiling.splits == 0
    assert plan.tiling.walk or plan.num_programs == plan.tiling.splits * -(-n_rows // plan.tiling.tile_rows), (
        "every tile is taken"
    )
