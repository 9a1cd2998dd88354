"""The planner's decisions: arithmetic over a profile, and a function in place of the compiler."""

import pytest

from portable_softmax import CompileError, Device, KernelResources, PlanError, profiles
from portable_softmax.launch import contiguous_problem
from portable_softmax.planner import choose
from portable_softmax.problem import Problem
from portable_softmax.tilings import candidates

H200, MI300X, A2 = "nvidia/h200", "amd/mi300x", "ascend/910b3"


def problem(n_rows, n_cols, dtype="float32"):
    return contiguous_problem(n_rows, n_cols, dtype)


def light(problem, tiling, device):
    """A compiler that never needs much."""
    return KernelResources(tiling.num_warps, tiling.num_warps and 32, 16)


def planned(profile, *args, measure=light):
    return choose(problem(*args), Device.from_profile(profile), measure)


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "tile_rows", "tile_cols"),
    [
        (32768, 128, 16, 128),
        (32768, 776, 2, 1024),
        (4096, 4096, 1, 4096),
        (4096, 32768, 1, 32768),
        (100000, 1, 1024, 1),
        (132, 16, 1, 16),  # one row for every SM rather than many for a few
        (500, 16, 4, 16),
    ],
)
def test_short_rows_share_a_tile_as_long_as_all_multiprocessors_get_one(n_rows, n_cols, tile_rows, tile_cols):
    plan = planned(H200, n_rows, n_cols)
    assert (plan.strategy, plan.tile_cols) == ("tile", tile_cols)
    assert plan.tile_rows == tile_rows


def test_rows_beyond_a_tile_are_taken_online():
    assert planned(H200, 4096, 32768).strategy == "tile"
    plan = planned(H200, 4096, 32769)
    assert (plan.strategy, plan.tile_rows, plan.tile_cols) == ("online", 1, 32768)


def test_elements_of_8_bytes_fill_a_tile_twice_as_fast():
    assert planned(H200, 4096, 16384, "float64").strategy == "tile"
    assert planned(H200, 4096, 16385, "float64").strategy == "online"


@pytest.mark.parametrize(("n_cols", "num_warps"), [(1, 1), (1024, 2), (4096, 4), (32768, 32), (10**6, 32)])
def test_warps_hold_32_elements_per_thread_on_an_h200(n_cols, num_warps):
    assert planned(H200, 4096, n_cols).num_warps == num_warps


def test_a_program_has_no_more_threads_than_the_device_allows():
    for profile in profiles():
        device = Device.from_profile(profile)
        for tiling in candidates(problem(4096, 32768), device):
            if tiling.num_warps is not None:
                assert tiling.num_warps * device.hardware.warp_size <= device.hardware.max_threads_per_program


def test_a_candidate_that_spills_is_passed_over_and_the_plan_says_so():
    def spills_at_first(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 16, spilled_bytes_per_thread=8 if tiling.num_warps == 4 else 0)

    plan = planned(H200, 4096, 4096, measure=spills_at_first)
    assert plan.num_warps == 8
    assert plan.reasons[0] == "passed over tile 1 x 4096, num_warps 4: spills 8 bytes per thread"


def test_a_candidate_that_does_not_fit_or_compile_is_passed_over():
    def measure(problem, tiling, device):
        if tiling.strategy == "tile":
            raise CompileError("ub overflow")
        return KernelResources(shared_memory_bytes=200_000 if tiling.tile_cols > 1024 else 1000)

    plan = planned(A2, 4096, 4096, measure=measure)
    assert (plan.strategy, plan.tile_cols) == ("online", 1024)
    assert plan.reasons[0] == "passed over tile 2 x 4096: does not compile: ub overflow"
    assert "passed over online 1 x 4096: does not fit: unified buffer" in plan.reasons


def test_when_nothing_fits_all_that_was_tried_is_told():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 32, 10**6)

    with pytest.raises(
        PlanError, match=r"(?s)float32 softmax of 64 x 4096 fits .*tile 1 x 4096.*online 1 x 1024.*shared memory"
    ):
        planned(MI300X, 64, 4096, measure=measure)


def test_grid_of_a_tile_per_program_and_of_resident_programs():
    assert planned(H200, 4096, 4096).num_programs == 4096
    assert planned(A2, 4096, 4096).num_programs == 40
    assert planned(A2, 3, 4096).num_programs == 3


def test_npu_plans_have_no_warps_or_stages_and_fit_the_grid():
    for n_rows, n_cols in ((10, 10), (10**7, 16), (4096, 8192), (7, 200003)):
        plan = planned("ascend/910b1", n_rows, n_cols)
        assert plan.num_warps is None
        assert plan.num_stages is None
        assert plan.num_programs <= 48


def test_reasons_name_the_decisions_and_the_source_of_the_policy():
    plan = planned(H200, 1823, 776)
    text = "\n".join(plan.reasons)
    assert "2 rows are read once, as a tile of 2 x 1024" in text
    assert "a thread holds 32 elements of float32" in text
    assert "num_programs 912: one per tile" in text
    assert "H200" in text, "where the policy was measured"


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "inner", "strategy", "tile_rows", "tile_cols"),
    [
        (64 * 512, 20, 512, "tile", 64, 32),
        (64 * 512, 781, 512, "tile", 32, 1024),  # lines of 128 bytes
        (64 * 512, 4000, 512, "tile", 8, 4096),  # of 32 bytes, the least that memory moves
        (64 * 512, 5000, 512, "online", 32, 1024),
        (2 * 17, 9000, 17, "online", 32, 1024),
        (6, 3, 2, "tile", 2, 4),
    ],
)
def test_rows_that_lie_side_by_side(n_rows, n_cols, inner, strategy, tile_rows, tile_cols):
    across = Problem(n_rows, n_cols, "float32", "float32", 1, inner=inner)
    plan = choose(across, Device.from_profile(H200), light)
    assert (plan.strategy, plan.tile_rows, plan.tile_cols) == (strategy, tile_rows, tile_cols)
    assert plan.num_programs == n_rows // inner * -(-inner // tile_rows)


def test_what_has_no_plan_is_named_by_its_form():
    gradient = Problem(64, 4096, "float32", "float32", 1, form="log_softmax", backward=True)
    with pytest.raises(PlanError, match="no launch of a gradient of a float32 log_softmax of 64 x 4096"):
        choose(gradient, Device.from_profile(MI300X), lambda *_: KernelResources(4, 32, 10**6))


def test_rows_whose_elements_are_loaded_one_by_one_get_half_as_many_per_thread():
    plan = planned(H200, 32768, 781)
    assert (plan.tile_rows, plan.tile_cols, plan.num_warps) == (1, 1024, 2)


@pytest.mark.parametrize(
    ("n_cols", "dtype", "num_stages"),
    [(12672, "bfloat16", 3), (32768, "float16", 3), (8192, "bfloat16", 1), (12672, "float32", 1), (65536, "bfloat16", 1)],
)
def test_long_16_bit_rows_are_prefetched_by_resident_programs(n_cols, dtype, num_stages):
    plan = planned(H200, 4096, n_cols, dtype)
    assert plan.num_stages == num_stages
    resident = 132 * plan.occupancy.programs_per_multiprocessor
    assert plan.num_programs == (resident if num_stages > 1 else 4096)
    assert ("loads 3 stages ahead" in plan.reasons[-1]) == (num_stages > 1)


def test_a_prefetch_that_does_not_fit_is_passed_over():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 10**6 if tiling.num_stages > 1 else 16)

    plan = planned(H200, 4096, 12672, "bfloat16", measure=measure)
    assert plan.num_stages == 1
    assert "does not fit: shared memory" in plan.reasons[0]


def test_a_program_that_would_be_alone_makes_way_for_two_of_other_warps():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, {16: 71, 32: 32}[tiling.num_warps], 16)

    plan = planned(H200, 4096, 12672, measure=measure)
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (32, 2)
    assert plan.reasons[0] == "passed over tile 1 x 16384, num_warps 16: would be alone on its multiprocessor"


def test_a_program_that_is_alone_either_way_keeps_its_warps():
    plan = planned(H200, 4096, 12672, measure=lambda problem, tiling, device: KernelResources(tiling.num_warps, 48, 120_000))
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (16, 1)
    assert not any("alone" in reason for reason in plan.reasons)
