"""Which rows programs share, and how they are cut into splits: on every GPU that has a profile."""

import itertools

import pytest
from offline import (
    A2,
    H200,
    MI300X,
    SHARING,
    every_candidate,
    foremost,
    light,
    planned,
    read_problem,
    with_hardware,
    with_numbers,
)
from portable_softmax.planning.rows import MOST_SPLITS

from portable_softmax import Device, KernelResources
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import as_read
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.kernel_form import form_of
from portable_softmax.runtime.specialization import KernelSpec

TYPES = ("float32", "bfloat16", "float16")
DIRECTIONS = (False, True)


@pytest.mark.parametrize("profile", foremost(SHARING))
def test_long_rows_are_shared_however_many_there_are(profile):
    quarter = Device.from_profile(profile).hardware.registers_per_multiprocessor // 4
    for n_rows, n_cols, dtype, backward in itertools.product((1, 4096), (quarter, 151_936), TYPES, DIRECTIONS):
        plan = planned(profile, n_rows, n_cols, dtype, backward=backward)
        assert plan.tiling.strategy == "shared"
        assert plan.tiling.splits > 1


@pytest.mark.parametrize("profile", foremost(SHARING))
def test_few_rows_are_shared_from_shorter_ones_on_than_many(profile):
    """Few leave most of the device idle: one row is shared where the next shorter of many is not."""

    def shortest(n_rows):
        lengths = range(2048, 65_536, 1024)
        return next(n_cols for n_cols in lengths if planned(profile, n_rows, n_cols).tiling.strategy == "shared")

    assert shortest(1) <= shortest(4096)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_is_shared_from_shorter_rows_on_than_its_softmax(dtype):
    def shortest(backward):
        lengths = range(1024, 65_536, 1024)
        plans = ((n_cols, planned(H200, 4096, n_cols, dtype, backward=backward)) for n_cols in lengths)
        return next(n_cols for n_cols, plan in plans if plan.tiling.strategy == "shared")

    assert shortest(backward=True) < shortest(backward=False)


def test_where_a_profile_does_not_say_how_rows_are_not_shared():
    assert {planned(A2, n_rows, 10**6).tiling.strategy for n_rows in (1, 4096)} == {"online"}


@pytest.mark.parametrize("profile", foremost(SHARING))
@pytest.mark.parametrize("dtype", TYPES)
def test_splits_cover_a_row_and_each_has_a_program_and_a_lane(profile, dtype):
    device = Device.from_profile(profile)
    lengths = (16384, 32769, 50_257, 65_536, 100_000, 129_025, 262_144, 10**6, 5 * 10**6)
    for n_rows, n_cols, backward in itertools.product((1, 7, 132, 4096), lengths, DIRECTIONS):
        problem = read_problem(n_rows, n_cols, dtype, device, backward=backward)
        plan = choose(problem, device, light)
        if plan.tiling.splits > 1:
            assert (plan.tiling.strategy, plan.tiling.tile_rows, plan.num_programs) == (
                "shared",
                1,
                n_rows * plan.tiling.splits,
            )
        for tiling in every_candidate(problem, device):
            if tiling.splits > 1:
                assert (tiling.splits - 1) * tiling.tile_cols < problem.width <= tiling.splits * tiling.tile_cols
                assert tiling.splits <= form_of(KernelSpec.of(problem, tiling), device).lanes
                assert tiling.slots_per_tile % 16 == 0, "whole cache lines"
                assert tiling.slots_per_tile >= 2 * tiling.splits


@pytest.mark.parametrize("n_cols", [100_000, 10**6])
def test_a_row_has_at_most_64_splits_that_are_held(n_cols):
    device = Device.from_profile(H200)
    for n_rows in (1, 4096):
        for tiling in every_candidate(read_problem(n_rows, n_cols, "float32", device), device):
            assert tiling.splits <= MOST_SPLITS or not tiling.held


def beside(n_cols, inner, **kind):
    """The softmax of 4096 rows, of which so many lie side by side."""
    return Problem(4096 // inner * inner, n_cols, "float32", "float32", 4, inner=inner, **kind)


@pytest.mark.parametrize(
    "problem",
    [
        beside(4096, 4096),
        beside(10_000, 64),
        beside(50_257, 1024),
        beside(50_257, 4096, backward=True),
        Problem(16, 151_936, "float32", "float32", 4, inner=16),
        beside(8192, 4096, transposed=True),
        Problem(4096, 8192, "float32", "float32", 4, transposed=True),
        beside(20_000, 8),
        Problem(8, 20_000, "float32", "float32", 4, inner=8),  # no more rows than there are
    ],
)
@pytest.mark.parametrize("profile", [H200, MI300X])
def test_programs_share_several_rows_that_lie_side_by_side_or_are_transposed(profile, problem):
    device = Device.from_profile(profile)
    plan = choose(problem, device, light)
    tiling = plan.tiling
    assert tiling.strategy == "shared"
    assert tiling.tile_rows >= 8, "32 bytes of each line"
    assert plan.num_programs == plan.problem.tiles(tiling.tile_rows) * tiling.splits
    form = form_of(KernelSpec.of(plan.problem, tiling), device)
    assert form.lanes >= tiling.splits * tiling.tile_rows, "a lane for each row's split"
    assert form.slots == tiling.slots_per_tile >= 2 * tiling.splits * tiling.tile_rows


def heavy(registers):
    """A compiler that needs so many registers, and spills what it may not use."""

    def measure(problem, tiling, device):
        held = min(tiling.max_registers or registers, registers)
        return KernelResources(tiling.num_warps, held, 0, 8 * (registers - held))

    return measure


@pytest.mark.parametrize("registers", [60, 80, 81])
def test_splits_are_held_to_as_many_registers_as_their_number_says(registers):
    device = with_numbers(H200, {"split_registers": 80, "spilled_bytes": 63})
    plan = choose(contiguous_problem(4096, 40_000, "bfloat16"), device, heavy(registers))
    assert (plan.tiling.strategy, plan.tiling.max_registers) == ("shared", 80 if registers <= 80 else None)
    assert plan.warning is None, "without the limit it does not spill"


@pytest.mark.parametrize("few", [1, 4])
def test_splits_of_few_rows_are_half_as_long_and_have_half_the_threads(few):
    device = Device.from_profile(H200)
    one, many = (choose(read_problem(n_rows, 20_480, "float32", device), device, light) for n_rows in (few, 4096))
    assert one.tiling.splits == 2 * many.tiling.splits
    assert many.num_warps == 2 * one.num_warps


@pytest.mark.parametrize("n_cols", [6144, 100_000, 500_000])
def test_splits_of_a_row_are_as_equal_as_blocks_allow(n_cols):
    device = with_numbers(H200, {"bytes_per_block": 16, "row_share": 0.0625})
    problem = read_problem(4096, n_cols, "float32", device)
    tiling = choose(problem, device, light).tiling
    block = tiling.width
    assert tiling.splits > 1
    assert block == 128 * tiling.num_warps
    assert tiling.splits * (tiling.tile_cols - block) < n_cols <= tiling.splits * tiling.tile_cols


def test_a_row_is_not_shared_where_its_splits_would_not_run_at_once():
    """They would look in vain, and compute all of it again."""
    device = with_hardware(H200, multiprocessor_count=4)
    problem = read_problem(64, 262_144, "float32", device)
    plan = choose(problem, device, lambda problem, tiling, device: KernelResources(tiling.num_warps, 32, 70_000))
    assert plan.tiling.splits <= 12, "three on each multiprocessor"
    assert any("only 12 programs are resident at once" in reason for reason in plan.reasons)


@pytest.mark.parametrize("num_warps", [None, 1, 8])
@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x"])
def test_each_thread_of_a_program_has_a_lane_of_its_own(profile, num_warps):
    """Else its warps would look at words one by one, see them at other times, and disagree whether one is missing."""
    device = Device.from_profile(profile)
    spec = KernelSpec.of(Problem(3, 128, "float32", "float32", 4), Tiling(1, 64, num_warps, 1, 2))
    threads = compile_kernel(spec, device).metadata.num_warps * device.hardware.warp_size
    assert form_of(spec, device).lanes >= threads


MOST_READ = 20 * 256 // 64  # splits: a thread reads at most 20 numbers of others, of 64 rows for 256 threads


@pytest.mark.parametrize("n_rows", [64, 512, 2048])
def test_splits_that_are_read_twice_fill_the_device_and_no_more(n_rows):
    device = Device.from_profile(H200)
    problem = read_problem_beside(n_rows, device)
    tilings = [each for each in every_candidate(problem, device) if each.is_shared and not each.held]
    for tiling in tilings:
        threads, block = 32 * tiling.num_warps, tiling.width
        resident = 132 * (65_536 // (threads * tiling.max_registers))
        most = min(resident // problem.tiles(tiling.tile_rows), MOST_READ)
        assert tiling.splits <= most
        fewer = (tiling.blocks - 1) * block
        assert not fewer or -(-problem.n_cols // fewer) > most, "with a block less for each, more programs than fit"
        form = form_of(KernelSpec.of(problem, tiling), device)
        assert (form.held, form.accumulators * 64) == (False, threads * problem.vector)
    assert tilings


def read_problem_beside(n_rows, device):
    return as_read(Problem(n_rows, 100_000, "float32", "float32", 4, inner=n_rows), device)


def test_a_plan_says_that_splits_are_read_twice():
    device = with_numbers(H200, {"element_bytes": 2, "held_across": 4})
    plan = choose(Problem(4096, 50_257, "bfloat16", "bfloat16", 8, inner=1024), device, light)
    assert not plan.tiling.held
    assert f"of {plan.tiling.blocks} blocks, read twice, " in str(plan.tiling)
    assert "which exchange max and sum, and read it twice" in str(plan).replace("\n    ", " ")


def test_rows_side_by_side_that_fill_the_device_are_read_twice_by_one_program():
    device = Device.from_profile(H200)
    problem = as_read(Problem(2**20, 100_000, "float32", "float32", 4, inner=2**20), device)
    (first, *_) = [each for each in every_candidate(problem, device) if not each.held]
    assert (first.strategy, first.splits, first.blocks) == ("online", 1, 1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n_rows", [1, 300])
def test_rows_that_no_programs_can_hold_are_shared_and_read_twice(n_rows, dtype):
    for backward in DIRECTIONS:
        plan = planned(H200, n_rows, 20_000_000, dtype, backward=backward)
        assert (plan.tiling.strategy, plan.tiling.held) == ("shared", False)
        assert MOST_SPLITS // 2 < plan.tiling.splits <= (132 if n_rows == 1 else MOST_SPLITS)
        assert plan.tiling.splits * plan.tiling.tile_cols >= 20_000_000


@pytest.mark.parametrize("n_rows", [1, 4096])
@pytest.mark.parametrize("profile", ["nvidia/jetson-agx-orin", "intel/arc-140v"])
def test_a_small_device_shares_the_longest_rows_among_as_many_programs_as_run_at_once(profile, n_rows):
    device = Device.from_profile(profile)
    plan = choose(contiguous_problem(n_rows, 4_000_000, "float32"), device, heavy(64))
    assert (plan.tiling.strategy, plan.tiling.held) == ("shared", False)
    assert plan.tiling.splits <= device.resident(plan.occupancy) < 64
    assert device.hardware.multiprocessor_count <= 2 * plan.tiling.splits, "at most half of the multiprocessors are idle"


@pytest.mark.parametrize(("inner", "rows"), [(333, 128), (201, 128), (40_001, 128), (129, 64), (65, 64)])
@pytest.mark.parametrize(("dtype", "warps"), [("float32", 8), ("bfloat16", 16)])
def test_single_elements_side_by_side_are_read_in_wide_tiles_if_these_are_filled(inner, rows, dtype, warps):
    device = Device.from_profile(H200)
    problem = as_read(Problem(inner, 60_000, dtype, dtype, 1, inner=inner), device)
    first = next(each for each in every_candidate(problem, device) if not each.held)
    assert first.tile_rows == rows
    assert first.num_warps == (warps if rows == 128 else 4)
    assert choose(problem, device, light).tiling.tile_rows == rows


@pytest.mark.parametrize(("tiles", "splits"), [(313, 2), (250, 1), (137, 4), (133, 4), (100_000, 1)])
def test_tiles_that_leave_the_last_wave_of_programs_empty_are_shared(tiles, splits):
    """132 programs are resident: 137 tiles would keep 127 multiprocessors waiting for 5."""
    device = Device.from_profile(H200)
    problem = as_read(Problem(tiles * 128, 60_000, "float32", "float32", 1, inner=tiles * 128), device)
    first = next(each for each in every_candidate(problem, device) if not each.held)
    assert (first.tile_rows, first.splits) == (128, splits)


@pytest.mark.parametrize(
    ("profile", "inner", "tiling", "backward", "accumulators"),
    [
        (H200, 1, Tiling(1, 4096, 4, held=False), False, 128 * 4),  # threads, and elements of an access
        (H200, 1, Tiling(1, 256, 4, held=False), False, 256),
        (H200, 64, Tiling(64, 128, 8, held=False), True, 256 * 4 // 64),
        (H200, 64, Tiling(64, 128, 1, held=False), False, 32 * 4 // 64),
        (A2, 1, Tiling(1, 4096, held=False), False, 1),
        (A2, 1, Tiling(1, 4096, held=False), True, 4096),
    ],
)
def test_columns_of_one_thread_share_a_place(profile, inner, tiling, backward, accumulators):
    problem = Problem(1024, 8192, "float32", "float32", 4, inner=inner, backward=backward)
    assert form_of(KernelSpec.of(problem, tiling), Device.from_profile(profile)).accumulators == accumulators
