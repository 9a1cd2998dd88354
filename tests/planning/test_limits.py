"""Launches have no more programs than they may: where there would be more, they walk."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offline import GPUS, foremost, light, with_hardware

from portable_softmax import Device
from portable_softmax.planning.planner import choose
from portable_softmax.planning.request import contiguous_problem

LENGTHS = (64, 781, 4096, 16384, 50_257, 10**5)  # rows are several in a tile, one, or shared
MANY = 2**40  # rows


def plan_of(device, n_rows, n_cols, **others):
    return choose(contiguous_problem(n_rows, n_cols, "float32", **others), device, light)


@pytest.mark.parametrize("n_cols", LENGTHS)
@pytest.mark.parametrize("profile", foremost(GPUS))
def test_a_launch_has_no_more_programs_and_threads_than_there_may_be(profile, n_cols):
    """Fewer than 2 to the 31st programs by CUDA, than 2 to the 32nd threads by HIP; more tiles are walked to."""
    device = Device.from_profile(profile)
    for backward in (False, True):
        many = plan_of(device, MANY, n_cols, backward=backward)
        most = 2**31 - 1 if device.backend == "cuda" else (2**32 - 1) // (many.num_warps * device.hardware.warp_size)
        assert many.tiling.walk
        assert many.num_programs == most // many.tiling.splits * many.tiling.splits
        assert "the most that one launch may have" in many.reasons[-1]


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
