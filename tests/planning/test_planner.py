"""The planner's decisions: arithmetic over a profile, and a function in place of the compiler."""

import pytest
from offline import A2, B200, H200, MI300X, light, planned, read_problem, with_numbers

from portable_softmax import CompileError, Device, KernelResources, PlanError
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem, next_power_of_2
from portable_softmax.planning.request import contiguous_problem


def test_float64_rows_that_no_tile_holds_are_read_twice():
    plan = planned(H200, 4096, 16385, "float64")
    assert (plan.tiling.strategy, plan.tiling.tile_rows, plan.tiling.splits) == ("online", 1, 1)


@pytest.mark.parametrize("elements", [16, 32, 64, 128])
@pytest.mark.parametrize("n_cols", [2048, 4096, 8192])
def test_a_row_in_one_block_has_threads_of_half_the_elements(n_cols, elements):
    device = with_numbers(H200, {"elements_per_thread": elements})
    plan = choose(contiguous_problem(4096, n_cols, "float32"), device, light)
    assert n_cols == elements // 2 * 32 * plan.num_warps


def test_a_candidate_that_spills_is_passed_over_and_the_plan_says_so():
    def spills_at_first(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 16, spilled_bytes_per_thread=8 if tiling.num_warps == 4 else 0)

    plan = planned(H200, 4096, 4096, measure=spills_at_first)
    assert plan.num_warps == 8
    assert plan.reasons[0] == "passed over tile 1 x 4096, num_warps 4: spills into 8 bytes per thread"


@pytest.mark.parametrize(
    ("dtype", "elements", "compiled"), [("float32", 64, True), ("float32", 128, False), ("bfloat16", 128, True)]
)
def test_a_split_that_registers_cannot_hold_is_not_compiled(dtype, elements, compiled):
    """Both inputs of a gradient, by threads that have 255 registers each."""
    device = with_numbers(H200, {"elements_per_split": elements})
    measured = []

    def measure(problem, tiling, device):
        measured.append(f"passed over {tiling}")
        return light(problem, tiling, device)

    plan = choose(contiguous_problem(4096, 65_536, dtype, backward=True), device, measure)
    refused = [each for each in plan.reasons if each.endswith("its elements alone take more registers than there are")]
    assert any(f" in {512 // elements} splits" in each for each in refused) == (not compiled)
    assert any(f" in {512 // elements} splits" in each for each in measured) == compiled
    assert not any(each.startswith(f"{shared}:") for shared in measured for each in refused)


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
    plan = planned(H200, 1823, 500)
    text = "\n".join(plan.reasons)
    assert "tile: one row per program, read once; 500 columns padded to 512" in text
    assert "a thread holds 4 elements of float32" in text
    assert "num_programs 1823: one per tile" in text
    assert "H200" in text, "where the policy was measured"


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "inner", "strategy"),
    [
        (64 * 512, 20, 512, "tile"),
        (640 * 512, 9, 512, "tile"),
        (64 * 512, 781, 512, "tile"),
        (64 * 512, 4000, 512, "shared"),
        (2 * 17, 9000, 17, "shared"),  # single elements, each with an address
        (200 * 17, 20, 17, "tile"),
        (6, 3, 2, "tile"),
        (200 * 12, 16, 12, "tile"),
    ],
)
def test_rows_that_lie_side_by_side(n_rows, n_cols, inner, strategy):
    across = Problem(n_rows, n_cols, "float32", "float32", 4 if inner % 4 == 0 else 1, inner=inner)
    plan = choose(across, Device.from_profile(H200), light)
    assert plan.tiling.strategy == strategy
    assert plan.tiling.tile_rows >= min(8, inner), "32 bytes of each line, the least that memory moves"
    assert plan.problem.scattered == (inner * n_cols * 4 <= 768), "a tile takes several small matrices"
    assert plan.num_programs == plan.problem.tiles(plan.tiling.tile_rows) * plan.tiling.splits


def test_what_has_no_plan_is_named_by_its_form():
    gradient = Problem(64, 4096, "float32", "float32", 1, form="log_softmax", backward=True)
    with pytest.raises(PlanError, match="no launch of a gradient of a float32 log_softmax of 64 x 4096"):
        choose(gradient, Device.from_profile(MI300X), lambda *_: KernelResources(4, 32, 10**6))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("n_cols", [3, 4, 9, 20, 33, 34])
def test_of_short_rows_each_thread_makes_one_access_for_a_block(n_cols, dtype):
    """An access is a single element, or as many as 16 bytes hold where all rows start at a multiple of them."""
    plan = planned(H200, 10**6, n_cols, dtype)
    tiling = plan.tiling
    elements = tiling.tile_rows * tiling.width
    access = plan.problem.vector * tiling.num_warps * 32
    assert elements == access or (elements > access and tiling.tile_cols == plan.problem.vector), "no block is narrower"
    assert tiling.tile_cols - tiling.width < n_cols, "no block is empty"


def test_gradients_of_short_rows_have_room_for_two_operands():
    assert planned(H200, 10**6, 10, backward=True).tiling.tile_rows < planned(H200, 10**6, 10).tiling.tile_rows


def test_short_rows_in_blocks_that_do_not_compile_are_taken_whole():
    device = Device.from_profile(H200)
    problem = read_problem(10**6, 9, "float32", device)

    def measure(problem, tiling, device):
        if tiling.blocks > 1:
            raise CompileError("this Triton has no tuples")
        return light(problem, tiling, device)

    tiling = choose(problem, device, measure).tiling
    assert tiling.tile_rows == planned(H200, 10**6, 9).tiling.tile_rows
    assert (tiling.blocks, tiling.tile_cols) == (1, 16)


@pytest.mark.parametrize("profile", [H200, MI300X])
def test_rows_whose_elements_are_loaded_one_by_one_get_fewer_per_thread(profile):
    device = Device.from_profile(profile)
    vectors, single = (
        choose(read_problem(4096, n_cols, "float32", device, batch_invariant=True), device, light) for n_cols in (4096, 4095)
    )
    assert single.problem.access == "scalar"
    assert (single.tiling.tile_cols, single.tiling.blocks) == (vectors.tiling.tile_cols, vectors.tiling.blocks) == (4096, 1)
    assert single.num_warps == 2 * vectors.num_warps


def with_whole_rows(n_cols, measure):
    """The plan of rows that take up to half of the registers."""
    return choose(contiguous_problem(4096, n_cols, "float32"), with_numbers(H200, {"row_share": 0.5}), measure)


def test_a_program_that_would_be_alone_makes_way_for_two_of_other_warps():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, {8: 160, 16: 71, 32: 32}[tiling.num_warps], 16)

    plan = with_whole_rows(16384, measure)
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (32, 2)
    assert plan.reasons[0] == "passed over tile 1 x 16384, num_warps 16: would be alone on its multiprocessor"
    plan = with_whole_rows(12672, measure)
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (8, 1), "16 are alone too"
    assert plan.tiling.blocks > 1
    assert not any("alone" in reason for reason in plan.reasons)


@pytest.mark.parametrize(("n_cols", "num_warps"), [(16384, 16), (12672, 8)])
def test_a_program_that_is_alone_either_way_keeps_its_warps(n_cols, num_warps):
    plan = with_whole_rows(n_cols, lambda problem, tiling, device: KernelResources(tiling.num_warps, 48, 120_000))
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (num_warps, 1)
    assert not any("alone" in reason for reason in plan.reasons)


def test_a_tile_of_a_long_row_that_is_alone_does_not_become_narrower():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 90, 16)

    plan = planned(B200, 4096, 50_257, "float64", measure=measure)
    assert (plan.tiling.strategy, plan.occupancy.programs_per_multiprocessor) == ("online", 1)
    wider = f"passed over online 1 x {2 * plan.tiling.tile_cols}, num_warps {2 * plan.num_warps}: does not fit: "
    assert any(each.startswith(wider) for each in plan.reasons)


@pytest.mark.parametrize("size", [4, 8, 16, 32])
@pytest.mark.parametrize("n_cols", [640, 1000, 4100, 8320])
def test_a_row_is_held_in_blocks_of_so_many_bytes_a_thread_where_a_power_of_two_would_be_longer(n_cols, size):
    device = with_numbers(H200, {"bytes_per_block": size})
    plan = choose(contiguous_problem(4096, n_cols, "float32"), device, light)
    tiling = plan.tiling
    if tiling.blocks > 1:
        assert size // 4 * 32 * tiling.num_warps == tiling.width
        assert tiling.tile_cols < next_power_of_2(n_cols)
    else:
        assert tiling.tile_cols == next_power_of_2(n_cols)
    cut = f"{tiling.blocks} x {tiling.width}"
    assert (f"; {n_cols} columns {'as' if n_cols == tiling.tile_cols else 'padded to'} {cut}" in "\n".join(plan.reasons)) == (
        tiling.blocks > 1
    )
    assert (tiling.blocks > 1) == (n_cols != 1000)


def test_where_there_are_no_tuples_a_row_is_held_in_one_block():
    def measure(problem, tiling, device):
        if tiling.blocks > 1:
            raise CompileError("no tuples of tensors")
        return light(problem, tiling, device)

    assert planned(H200, 4096, 6000, measure=measure).tiling == planned(H200, 4096, 8192).tiling
    shared = planned(H200, 4096, 40_000, measure=measure)
    assert (shared.tiling.strategy, shared.tiling.blocks, shared.tiling.max_registers) == ("shared", 1, None)
    uneven = choose(contiguous_problem(4096, 40_000, "float32"), with_numbers(H200, {"elements_per_split": 40}), measure).tiling
    assert (uneven.strategy, uneven.splits, uneven.tile_cols) == ("shared", 10, 4096), "a block has a power of two of columns"


def test_what_is_unaligned():
    """Rows of single elements from 65 on, and whatever has no whole vectors from 513 on."""
    device = with_numbers(H200, {"access": "scalar", "unaligned_cols": 65}, {"unaligned_cols": 513})

    def kind(n_cols, dtype="float32", device=device, **kind):
        found = read_problem(64, n_cols, dtype, device, **kind)
        return found.vector, found.unaligned

    assert kind(781) == kind(513) == kind(514) == kind(65) == (4, True)
    assert kind(8) == kind(4) == kind(780) == (4, False), "whole vectors"
    assert kind(63) == (1, False), "too short"
    assert kind(66) == kind(510) == (2, False), "read by 8 bytes"
    assert kind(198, "bfloat16") == (2, False), "read by 4 bytes"
    assert kind(780, "bfloat16") == kind(65, "bfloat16") == (8, True)
    assert kind(781, "float64") == (2, True)
    for other in (MI300X, A2):
        numbers = {"unaligned_cols": 65}
        assert kind(781, device=with_numbers(other, numbers)) == ((4, True) if other == MI300X else (1, False))
    assert kind(781, batch_invariant=True) == (1, False), "the order of its sums would depend on where a row starts"


def test_what_is_paired():
    two, four = ({"direction": "backward", "element_bytes": size, "paired_cols": 300 // size**2} for size in (2, 4))
    device = with_numbers(H200, two, four)

    def paired(n_rows, n_cols, dtype="bfloat16", device=device, **kind):
        return read_problem(n_rows, n_cols, dtype, device, **{"backward": True} | kind).paired

    assert paired(64, 33)
    assert paired(64, 33, "float16")
    assert paired(64, 7, "float32")
    assert not paired(64, 19, "float32"), "too long"
    assert paired(63, 33), "the last pair is half of one"
    assert not paired(1, 33)
    assert not paired(64, 34), "whole words as it is"
    assert not paired(64, 33, backward=False), "a softmax"
    assert not paired(64, 77), "too long"
    assert paired(64, 4095, device=with_numbers(H200, {"paired_cols": 4096}))
    assert not paired(64, 33, batch_invariant=True), "its bits would depend on how many rows there are"
    assert not paired(64, 33, device=Device.from_profile(MI300X)), "no number for it"


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
