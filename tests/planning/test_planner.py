"""The planner's decisions: arithmetic over a profile, and a function in place of the compiler."""

import pytest
from offline import A2, H200, MI300X, planned

from portable_softmax import CompileError, Device, KernelResources, PlanError
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem


def test_a_candidate_that_spills_is_passed_over_and_the_plan_says_so():
    def spills_at_first(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 16, spilled_bytes_per_thread=8 if tiling.num_warps == 4 else 0)

    plan = planned(H200, 4096, 4096, measure=spills_at_first)
    assert plan.num_warps == 8
    assert plan.reasons[0] == "passed over tile 1 x 4096, num_warps 4: spills into 8 bytes per thread"


def test_a_candidate_that_does_not_fit_or_compile_is_passed_over():
    def measure(problem, tiling, device):
        if tiling.strategy == "tile":
            raise CompileError("ub overflow")
        return KernelResources(shared_memory_bytes=200_000 if tiling.tile_cols > 1024 else 1000)

    plan = planned(A2, 4096, 4096, measure=measure)
    assert (plan.tiling.strategy, plan.tiling.tile_cols) == ("online", 1024)
    assert plan.reasons[0] == "passed over tile 2 x 4096: does not compile: ub overflow"
    assert "passed over online 1 x 4096: does not fit: unified buffer" in plan.reasons


def test_when_nothing_fits_all_that_was_tried_is_told():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 32, 10**6)

    with pytest.raises(
        PlanError, match=r"(?s)float32 softmax of 64 x 4096 fits .*tile 1 x 4096.*online 1 x 1024.*shared memory"
    ):
        planned(MI300X, 64, 4096, measure=measure)


def test_npu_plans_have_no_warps_or_stages_and_fit_the_grid():
    for n_rows, n_cols in ((10, 10), (10**7, 16), (4096, 8192), (7, 200003)):
        plan = planned("ascend/910b1", n_rows, n_cols)
        assert plan.num_warps is None
        assert plan.num_stages is None
        assert plan.num_programs <= 48


def test_reasons_name_the_decisions_and_the_source_of_the_policy():
    plan = planned(H200, 1823, 500)
    text = "\n".join(plan.reasons)
    assert "tile: one row per program, read once; 500 columns padded to 512" in text
    assert "a thread holds 4 elements of float32" in text
    assert "num_programs 1823: one per tile" in text
    assert "H200" in text, "where the policy was measured"


def test_what_has_no_plan_is_named_by_its_form():
    gradient = Problem(64, 4096, "float32", "float32", 1, form="log_softmax", backward=True)
    with pytest.raises(PlanError, match="no launch of a gradient of a float32 log_softmax of 64 x 4096"):
        choose(gradient, Device.from_profile(MI300X), lambda *_: KernelResources(4, 32, 10**6))


def test_pairs_are_planned_as_rows_of_both_and_say_so():
    plan = planned(H200, 10**6, 33, "bfloat16", backward=True)
    assert (plan.problem.n_rows, plan.problem.n_cols) == (10**6 // 2, 66)
    assert plan.num_programs == 10**6 // 2 // plan.tiling.tile_rows
    assert "paired: two rows of 33 columns are read as one, in accesses of 2 elements" in plan.reasons


def test_a_reason_that_stands_against_every_launch_is_told_once():
    def measure(problem, tiling, device):
        raise CompileError("there is no compiler")

    with pytest.raises(PlanError) as failed:
        planned(MI300X, 64, 4096, measure=measure)
    message = str(failed.value)
    assert message.count("there is no compiler") == 1
    assert "launches, and each does not compile: there is no compiler" in message
