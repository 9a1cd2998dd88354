"""The planner's decisions: arithmetic over a profile, and a function in place of the compiler."""

import pytest
from offline import A2, B200, H200, MI300X, every_candidate, light, planned, read_problem, with_rules

from portable_softmax import CompileError, Device, KernelResources, PlanError, profiles
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "tile_rows", "tile_cols"),
    [
        (32768, 128, 8, 128),
        (32768, 500, 2, 512),
        (32768, 1000, 1, 1024),
        (4096, 4096, 1, 4096),
        (4096, 8192, 1, 8192),
        (4096, 256, 2, 256),
        (10**6, 1, 512, 1),
        (16 * 132, 16, 1, 16),  # 16 programs for every SM rather than fewer with more rows
        (16 * 132 + 1, 16, 2, 16),
    ],
)
def test_short_rows_share_a_tile_as_long_as_multiprocessors_get_half_their_programs(n_rows, n_cols, tile_rows, tile_cols):
    plan = planned(H200, n_rows, n_cols)
    assert (plan.tiling.strategy, plan.tiling.tile_cols) == ("tile", tile_cols)
    assert plan.tiling.tile_rows == tile_rows


def test_float64_rows_that_no_tile_holds_are_read_twice_in_tiles_of_half_the_columns():
    plan = planned(H200, 4096, 16385, "float64")
    assert (plan.tiling.strategy, plan.tiling.tile_rows, plan.tiling.tile_cols, plan.tiling.parts) == ("online", 1, 16384, 1)


@pytest.mark.parametrize(("n_cols", "num_warps"), [(1024, 1), (2048, 2), (4096, 4), (8192, 8)])
def test_warps_hold_32_elements_per_thread_on_an_h200(n_cols, num_warps):
    assert planned(H200, 4096, n_cols).num_warps == num_warps


def test_a_program_has_no_more_threads_than_the_device_allows():
    for profile in profiles():
        device = Device.from_profile(profile)
        for n_rows, n_cols in ((4096, 32768), (2, 10**6), (2, 10**8)):
            for tiling in every_candidate(read_problem(n_rows, n_cols, "float32", device), device):
                if tiling.num_warps is not None:
                    assert tiling.num_warps * device.hardware.warp_size <= device.hardware.max_threads_per_program


def test_a_candidate_that_spills_is_passed_over_and_the_plan_says_so():
    def spills_at_first(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 16, spilled_bytes_per_thread=8 if tiling.num_warps == 4 else 0)

    plan = planned(H200, 4096, 4096, measure=spills_at_first)
    assert plan.num_warps == 8
    assert plan.reasons[0] == "passed over tile 1 x 4096, num_warps 4: spills 8 bytes per thread"


@pytest.mark.parametrize(("dtype", "n_cols", "compiled"), [("float32", 16384, True), ("float32", 32768, False),
                                                            ("bfloat16", 32768, True), ("float64", 16384, False)])  # fmt: skip
def test_a_tile_that_registers_cannot_hold_is_not_compiled(dtype, n_cols, compiled):
    """Both inputs of a gradient, by 1024 threads that have 64 registers each."""
    device = with_rules(H200, {"strategy": "tile", "tile_elements": 1, "elements_per_thread": 32})
    measured = []

    def measure(problem, tiling, device):
        measured.append(str(tiling))
        return light(problem, tiling, device)

    plan = choose(contiguous_problem(4096, n_cols, dtype, backward=True), device, measure)
    refused = f"tile 1 x {n_cols}, num_warps 32: its elements alone take more registers than there are"
    assert (f"passed over {refused}" in plan.reasons) == (not compiled)
    assert any(each.startswith(f"tile 1 x {n_cols},") for each in measured) == compiled


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
    assert "a row is read once, as a tile of 1 x 512" in text
    assert "a thread holds 4 elements of float32" in text
    assert "num_programs 1823: one per tile" in text
    assert "H200" in text, "where the policy was measured"


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "inner", "strategy", "tile_rows", "tile_cols"),
    [
        (64 * 512, 20, 512, "tile", 32, 20),
        (640 * 512, 9, 512, "tile", 32, 10),
        (64 * 512, 781, 512, "tile", 32, 832),  # lines of 128 bytes
        (64 * 512, 1500, 512, "tile", 16, 1536),  # of 64 bytes
        (64 * 512, 4000, 512, "shared", 16, 512),
        (64 * 512, 5000, 512, "shared", 16, 1024),
        (2 * 17, 9000, 17, "shared", 64, 256),  # single elements, each with an address; of both matrices
        (6, 3, 2, "tile", 8, 4),
    ],
)
def test_rows_that_lie_side_by_side(n_rows, n_cols, inner, strategy, tile_rows, tile_cols):
    across = Problem(n_rows, n_cols, "float32", "float32", 4 if inner % 4 == 0 else 1, inner=inner)
    plan = choose(across, Device.from_profile(H200), light)
    assert (plan.tiling.strategy, plan.tiling.tile_rows, plan.tiling.tile_cols) == (strategy, tile_rows, tile_cols)
    assert plan.problem.scattered == (inner < 32)
    assert plan.num_programs == plan.problem.tiles(tile_rows) * plan.tiling.parts


def test_what_has_no_plan_is_named_by_its_form():
    gradient = Problem(64, 4096, "float32", "float32", 1, form="log_softmax", backward=True)
    with pytest.raises(PlanError, match="no launch of a gradient of a float32 log_softmax of 64 x 4096"):
        choose(gradient, Device.from_profile(MI300X), lambda *_: KernelResources(4, 32, 10**6))


@pytest.mark.parametrize(
    ("n_cols", "dtype", "rows", "pieces", "width"),
    [
        (3, "float32", 128, 3, 1),  # an element a thread, three times
        (9, "bfloat16", 64, 5, 2),
        (33, "float32", 16, 5, 8),
        (34, "bfloat16", 32, 5, 8),  # two elements at once
        (34, "float32", 16, 3, 16),  # their 8 bytes are two words, so there are half as many rows
        (20, "float32", 32, 2, 16),  # 16 bytes at once
        (9, "float64", 32, 3, 4),
        (4, "bfloat16", 256, 1, 4),  # no piece is narrower than an access
        (57, "bfloat16", 32, 2, 32),  # in vectors between edges
    ],
)
def test_of_short_rows_each_thread_makes_one_access_for_a_piece(n_cols, dtype, rows, pieces, width):
    tiling = planned(H200, 10**6, n_cols, dtype).tiling
    assert (tiling.strategy, tiling.num_warps) == ("tile", 4)
    assert (tiling.tile_rows, tiling.pieces, tiling.tile_cols) == (rows, pieces, pieces * width)


def test_gradients_of_short_rows_have_room_for_two_operands():
    assert planned(H200, 10**6, 10, backward=True).tiling.tile_rows == 32
    assert planned(H200, 10**6, 10).tiling.tile_rows == 64


def test_few_short_rows_share_no_tile():
    tiling = planned(H200, 64, 100).tiling
    assert (tiling.tile_rows, tiling.pieces, tiling.tile_cols) == (1, 1, 128)


def test_short_rows_in_pieces_that_do_not_compile_are_taken_whole():
    device = Device.from_profile(H200)
    problem = read_problem(10**6, 9, "float32", device)

    def measure(problem, tiling, device):
        if tiling.pieces > 1:
            raise CompileError("this Triton has no tuples")
        return light(problem, tiling, device)

    tiling = choose(problem, device, measure).tiling
    assert (tiling.tile_rows, tiling.pieces, tiling.tile_cols) == (64, 1, 16)


def test_rows_whose_elements_are_loaded_one_by_one_get_fewer_per_thread():
    def tile(n_cols):
        tiling = planned(MI300X, 32768, n_cols).tiling
        return tiling.tile_rows, tiling.tile_cols, tiling.num_warps

    assert tile(508) == (4, 512, 1), "32 per thread of a wavefront of 64"
    assert tile(511) == (2, 512, 1)


WHOLE = {"strategy": "tile", "tile_elements": 1024, "elements_per_thread": 32}  # a rule for rows of any length


def with_whole_rows(n_cols, measure, **choices):
    device = with_rules(H200, WHOLE | choices)
    return choose(contiguous_problem(4096, n_cols, "float32"), device, measure)


def test_a_program_that_would_be_alone_makes_way_for_two_of_other_warps():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, {8: 160, 16: 71, 32: 32}[tiling.num_warps], 16)

    plan = with_whole_rows(16384, measure)
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (32, 2)
    assert plan.reasons[0] == "passed over tile 1 x 16384, num_warps 16: would be alone on its multiprocessor"
    plan = with_whole_rows(12672, measure, elements_per_piece=8)
    assert (plan.num_warps, plan.tiling.pieces, plan.occupancy.programs_per_multiprocessor) == (8, 7, 1), "16 are alone too"
    assert not any("alone" in reason for reason in plan.reasons)


@pytest.mark.parametrize(("n_cols", "num_warps"), [(16384, 16), (12672, 8)])
def test_a_program_that_is_alone_either_way_keeps_its_warps(n_cols, num_warps):
    plan = with_whole_rows(
        n_cols, lambda problem, tiling, device: KernelResources(tiling.num_warps, 48, 120_000), elements_per_piece=8
    )
    assert (plan.num_warps, plan.occupancy.programs_per_multiprocessor) == (num_warps, 1)
    assert not any("alone" in reason for reason in plan.reasons)


def test_a_tile_of_a_long_row_that_is_alone_does_not_become_narrower():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 90, 16)

    plan = planned(B200, 4096, 50_257, "float64", measure=measure)
    assert (plan.tiling.strategy, plan.tiling.tile_cols, plan.num_warps) == ("online", 8192, 16)


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "elements", "tile_rows", "pieces", "piece_cols", "num_warps"),
    [
        (4096, 640, 4, 1, 5, 128, 1),
        (4096, 640, 8, 1, 3, 256, 1),
        (4096, 8320, 8, 1, 5, 2048, 8),
        (4096, 8320, 4, 1, 9, 1024, 8),
        (32768, 384, 4, 2, 6, 64, 1),
        (4096, 513, 4, 1, 5, 128, 1),  # ragged
        (4096, 1000, 4, 1, 1, 1024, 1),  # 8 pieces would hold as much
        (4096, 8192, 4, 1, 1, 8192, 8),
    ],
)
def test_rows_are_held_in_pieces_where_a_power_of_two_would_be_longer(
    n_rows, n_cols, elements, tile_rows, pieces, piece_cols, num_warps
):
    """Pieces of so many elements for each of half as many threads as would hold the power of two."""
    device = with_rules(H200, WHOLE | {"elements_per_piece": elements})
    plan = choose(contiguous_problem(n_rows, n_cols, "float32"), device, light)
    tiling = plan.tiling
    found = tiling.tile_rows, tiling.pieces, tiling.tile_cols, tiling.num_warps
    assert found == (tile_rows, pieces, pieces * piece_cols, num_warps)
    assert (f"in {pieces} pieces" in "".join(plan.reasons)) == (pieces > 1)


@pytest.mark.parametrize("profile", ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx"])
def test_only_the_last_piece_reaches_past_a_row(profile):
    """As only its columns are compared with the row's length, unless programs share the row."""
    device = Device.from_profile(profile)
    for n_cols in (129, 257, 513, 781, 1023, 1025, 4100, 8190, 12673, 20_001, 40_001, 10**6):
        for dtype, backward in (("float32", False), ("bfloat16", True), ("float64", False)):
            problem = read_problem(4096, n_cols, dtype, device, backward=backward)
            for tiling in every_candidate(problem, device):
                piece_cols, rest = divmod(tiling.tile_cols, tiling.pieces)
                assert rest == 0
                assert piece_cols & (piece_cols - 1) == 0, "a power of two"
                if tiling.strategy == "tile":
                    assert problem.width <= tiling.tile_cols < problem.width + piece_cols or tiling.pieces == 1
                elif tiling.parts > 1:
                    assert (tiling.parts - 1) * tiling.tile_cols < problem.width <= tiling.parts * tiling.tile_cols


def test_where_there_are_no_tuples_a_row_is_held_in_one_piece():
    def measure(problem, tiling, device):
        if tiling.pieces > 1:
            raise CompileError("no tuples of tensors")
        return light(problem, tiling, device)

    assert planned(H200, 4096, 6000, measure=measure).tiling == planned(H200, 4096, 8192).tiling
    shared = planned(H200, 4096, 40_000, measure=measure)
    assert (shared.tiling.strategy, shared.tiling.pieces, shared.tiling.max_registers) == ("shared", 1, None)


def test_what_is_ragged():
    device = Device.from_profile(H200)

    def kind(n_cols, dtype="float32", device=device):
        found = read_problem(64, n_cols, dtype, device)
        return found.vector, found.ragged

    assert kind(781) == kind(513) == kind(782) == (4, True)
    assert kind(511) == kind(65) == (4, True)
    assert kind(8) == kind(4) == (4, False), "whole vectors"
    assert kind(63) == (1, False), "too short"
    assert kind(41, "bfloat16") == (8, True)
    assert kind(39, "bfloat16") == (1, False), "too short"
    assert kind(66) == kind(510) == (2, False), "read by 8 bytes"
    assert kind(198, "bfloat16") == (2, False), "read by 4 bytes"
    assert kind(511, device=Device.from_profile(MI300X)) == (1, False), "too short there"
    assert kind(512) == kind(780) == (4, False), "whole vectors"
    assert kind(780, "bfloat16") == (8, True)
    assert kind(781, "float64") == (2, True)
    assert kind(781, device=Device.from_profile(MI300X)) == (4, True)
    assert kind(781, device=Device.from_profile(A2)) == (1, False)
    invariant = read_problem(64, 781, "float32", device, batch_invariant=True)
    assert not invariant.ragged, "the order in which its elements are added would depend on where a row starts"


def test_what_is_paired():
    device = Device.from_profile(H200)

    def paired(n_rows, n_cols, dtype="bfloat16", device=device, **kind):
        return read_problem(n_rows, n_cols, dtype, device, **{"backward": True} | kind).paired

    assert paired(64, 33)
    assert paired(64, 33, "float16")
    assert paired(64, 7, "float32")
    assert not paired(64, 17, "float32"), "no rule for it"
    assert paired(63, 33), "the last pair is half of one"
    assert not paired(1, 33)
    assert not paired(64, 34), "whole words as it is"
    assert not paired(64, 33, backward=False), "no rule for it"
    assert not paired(64, 781), "no rule for it"
    assert not paired(64, 2**31 - 2**17 - 1), "no line is as long as both together"
    assert not paired(64, 33, batch_invariant=True), "its bits would depend on how many rows there are"
    assert not paired(64, 33, device=Device.from_profile(MI300X)), "no rule for it"


def test_pairs_are_planned_as_rows_of_both_and_say_so():
    plan = planned(H200, 10**6, 33, "bfloat16", backward=True)
    assert (plan.tiling.strategy, plan.tiling.tile_rows, plan.tiling.tile_cols, plan.tiling.pieces) == ("tile", 16, 80, 5)
    assert plan.num_programs == 10**6 // 2 // 16
    assert "paired: two rows of 33 columns are read as one, in accesses of 2 elements" in plan.reasons


def test_a_reason_that_stands_against_every_launch_is_told_once():
    def measure(problem, tiling, device):
        raise CompileError("there is no compiler")

    with pytest.raises(PlanError) as failed:
        planned(MI300X, 64, 4096, measure=measure)
    message = str(failed.value)
    assert message.count("there is no compiler") == 1
    assert "launches, and each does not compile: there is no compiler" in message
