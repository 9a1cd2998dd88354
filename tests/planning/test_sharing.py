"""Which rows programs share, and how they are cut into parts: on every GPU that has a profile."""

import dataclasses
import itertools

import pytest
from offline import A2, GPUS, H200, MI300X, every_candidate, light, planned, read_problem, with_hardware, with_rules

from portable_softmax import Device, KernelResources
from portable_softmax.planning.candidates import MOST_PARTS
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel

TYPES = ("float32", "bfloat16", "float16")
DIRECTIONS = (False, True)


@pytest.mark.parametrize("profile", GPUS)
def test_long_rows_are_shared_however_many_there_are(profile):
    for n_rows, n_cols, dtype, backward in itertools.product((1, 4096), (32_769, 151_936), TYPES, DIRECTIONS):
        plan = planned(profile, n_rows, n_cols, dtype, backward=backward)
        assert plan.tiling.strategy == "shared"
        assert plan.tiling.parts > 1


@pytest.mark.parametrize("profile", GPUS)
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


@pytest.mark.parametrize("profile", GPUS)
def test_float64_is_never_shared(profile):
    """A word of the exchange holds a number of 32 bits."""
    device = Device.from_profile(profile)
    for n_rows, n_cols, backward in itertools.product((1, 4096), (16384, 10**6), DIRECTIONS):
        problem = read_problem(n_rows, n_cols, "float64", device, backward=backward)
        assert {tiling.parts for tiling in every_candidate(problem, device)} == {1}


def test_where_a_profile_does_not_say_how_rows_are_not_shared():
    assert {planned(A2, n_rows, 10**6).tiling.strategy for n_rows in (1, 4096)} == {"online"}


@pytest.mark.parametrize("profile", GPUS)
@pytest.mark.parametrize("dtype", TYPES)
def test_parts_cover_a_row_and_each_has_a_program_and_a_lane(profile, dtype):
    device = Device.from_profile(profile)
    lengths = (16384, 32769, 50_257, 65_536, 100_000, 129_025, 262_144, 10**6, 5 * 10**6)
    for n_rows, n_cols, backward in itertools.product((1, 7, 132, 4096), lengths, DIRECTIONS):
        problem = read_problem(n_rows, n_cols, dtype, device, backward=backward)
        plan = choose(problem, device, light)
        if plan.tiling.parts > 1:
            assert (plan.tiling.strategy, plan.tiling.tile_rows, plan.num_programs) == ("shared", 1, n_rows * plan.tiling.parts)
        for tiling in every_candidate(problem, device):
            if tiling.parts > 1:
                assert (tiling.parts - 1) * tiling.tile_cols < problem.width <= tiling.parts * tiling.tile_cols
                assert tiling.parts <= KernelSpec.of(problem, tiling).kernel_form(device).lanes
                assert tiling.words_per_tile % 16 == 0, "whole cache lines"
                assert tiling.words_per_tile >= 2 * tiling.parts


@pytest.mark.parametrize("n_cols", [100_000, 10**6])
def test_a_row_has_at_most_64_parts(n_cols):
    device = Device.from_profile(H200)
    for n_rows in (1, 4096):
        for tiling in every_candidate(read_problem(n_rows, n_cols, "float32", device), device):
            assert tiling.parts <= MOST_PARTS


def beside(n_cols, inner, **kind):
    """The softmax of 4096 rows, of which so many lie side by side."""
    return Problem(4096 // inner * inner, n_cols, "float32", "float32", 4, inner=inner, **kind)


@pytest.mark.parametrize(
    ("problem", "tile", "parts"),
    [
        (beside(4096, 4096), (16, 512), 8),
        (beside(10_000, 64), (16, 1024), 10),
        (beside(50_257, 1024), (64, 12_672), 4),  # read twice, by all of 264 programs that are resident
        (beside(50_257, 512), (64, 12_672), 4),
        (beside(50_257, 4096, backward=True), (64, 12_672), 4),
        (Problem(16, 151_936, "float32", "float32", 4, inner=16), (16, 2048), 75),
        (beside(8192, 4096, turned=True), (32, 512), 16),
        (Problem(4096, 8192, "float32", "float32", 4, turned=True), (32, 512), 16),
        (beside(4096, 8), (16, 512), 8),  # of two matrices
        (Problem(8, 4096, "float32", "float32", 4, inner=8), (8, 512), 8),  # no more rows than there are
    ],
)
def test_programs_share_several_rows_that_lie_side_by_side_or_are_turned(problem, tile, parts):
    device = Device.from_profile(H200)
    plan = choose(problem, device, light)
    tiling = plan.tiling
    assert (tiling.strategy, tiling.tile_rows, tiling.tile_cols, tiling.parts) == ("shared", *tile, parts)
    assert plan.num_programs == plan.problem.tiles(tiling.tile_rows) * parts
    form = KernelSpec.of(plan.problem, tiling).kernel_form(device)
    assert form.lanes >= parts * tiling.tile_rows, "a lane for each row's part"
    assert form.words == tiling.words_per_tile >= 2 * parts * tiling.tile_rows


def test_only_a_rule_of_their_layout_shares_rows_that_lie_side_by_side():
    rule = {"strategy": "shared", "tile_cols": 4096, "num_warps": 4}
    for layout, shared in (("across", True), ("turned", False), ("rows", False)):
        plan = choose(beside(9000, 64), with_rules(MI300X, rule | {"layout": layout}), light)
        assert (plan.tiling.strategy == "shared") == shared
    plan = choose(beside(9000, 64), with_rules(MI300X, rule), light)
    assert plan.tiling.strategy != "shared"


def test_a_rule_says_how_many_programs_share_a_row_at_most():
    rule = {"strategy": "shared", "tile_cols": 1024, "num_warps": 1}
    for most, parts in ((100, 98), (97, 49), (None, 49)):
        device = with_rules(H200, rule | ({"most_parts": most} if most else {}))
        assert choose(contiguous_problem(4096, 100_000, "float32"), device, light).tiling.parts == parts


@pytest.mark.parametrize("profile", GPUS)
@pytest.mark.parametrize("n_cols", [64, 781, 16384, 20480, 20484, 32764, 32768, 32769, 50_257, 10**6])
def test_batch_invariant_rows_are_cut_by_their_length_alone(profile, n_cols):
    device = Device.from_profile(profile)
    for backward in DIRECTIONS:
        found = read_problem(1, n_cols, "float32", device, backward=backward)
        problems = [dataclasses.replace(found, n_rows=n_rows, batch_invariant=True) for n_rows in (1, 132, 10**6, 2**31)]
        plans = [choose(problem, device, light) for problem in problems]
        assert len({dataclasses.replace(plan.tiling, walk=True) for plan in plans}) == 1


def heavy(registers):
    """A compiler that needs so many registers, and spills what it may not use."""

    def measure(problem, tiling, device):
        held = min(tiling.max_registers or registers, registers)
        return KernelResources(tiling.num_warps, held, 0, 8 * (registers - held))

    return measure


@pytest.mark.parametrize(("registers", "held"), [(60, 80), (80, 80), (81, None)])
def test_a_kernel_that_spills_when_held_to_registers_makes_way_for_the_next_rule(registers, held):
    free = {"from_cols": 30_000, "strategy": "shared", "tile_cols": 4096, "num_warps": 4}
    device = with_rules(H200, free | {"max_registers": 80}, free | {"to_cols": 10**6})
    plan = choose(contiguous_problem(4096, 40_000, "bfloat16"), device, heavy(registers))
    assert plan.tiling.max_registers == held
    spilled = "at most 80 registers: spills 8 bytes per thread"
    assert any(reason.endswith(spilled) for reason in plan.reasons) == (held is None)


@pytest.mark.parametrize("n_cols", [6144, 100_000, 10**6])
def test_parts_of_a_row_are_as_equal_as_pieces_allow(n_cols):
    device = with_rules(H200, {"strategy": "shared", "tile_cols": 4096, "num_warps": 4, "elements_per_piece": 4})
    problem = read_problem(4096, n_cols, "float32", device)
    tiling = choose(problem, device, light).tiling
    piece = tiling.tile_cols // tiling.pieces
    assert piece == 128 * tiling.num_warps
    assert tiling.parts * (tiling.tile_cols - piece) < n_cols <= tiling.parts * tiling.tile_cols


def test_a_row_is_not_shared_where_its_parts_would_not_run_at_once():
    """They would look in vain, and compute all of it again."""
    device = with_hardware(H200, multiprocessor_count=4)
    problem = read_problem(64, 262_144, "float32", device)
    plan = choose(problem, device, lambda problem, tiling, device: KernelResources(tiling.num_warps, 32, 70_000))
    assert plan.tiling.parts <= 12, "three on each multiprocessor"
    assert any("only 12 programs are resident at once" in reason for reason in plan.reasons)


@pytest.mark.parametrize("num_warps", [None, 1, 8])
@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x"])
def test_each_thread_of_a_program_has_a_lane_of_its_own(profile, num_warps):
    """Else its warps would look at words one by one, see them at other times, and disagree whether one is missing."""
    device = Device.from_profile(profile)
    spec = KernelSpec.of(Problem(3, 128, "float32", "float32", 4), Tiling("shared", 1, 64, num_warps, 1, 2))
    threads = compile_kernel(spec, device).metadata.num_warps * device.hardware.warp_size
    assert spec.kernel_form(device).lanes >= threads


TWICE = {"strategy": "shared", "num_warps": 4, "read_twice": True, "elements_per_piece": 4, "max_registers": 128}


def test_a_part_that_is_read_twice_is_not_held():
    problem = contiguous_problem(64, 100_000, "float32", Device.from_profile(H200))
    device = with_rules(H200, TWICE)
    plan = choose(problem, device, light)
    assert (plan.tiling.parts, plan.tiling.pieces, plan.tiling.held) == (8, 25, False)
    form = KernelSpec.of(problem, plan.tiling).kernel_form(device)
    assert (form.held, form.by_place) == (False, True)
    assert str(plan.tiling) == "shared 1 x 12800 in 8 parts of 25 pieces, read twice, num_warps 4, at most 128 registers"
    assert "tell each other what they find, and read it twice" in str(plan).replace("\n    ", " ")


def test_parts_that_are_read_twice_fill_the_device_and_no_more():
    device = with_rules(H200, TWICE)
    resident = 4 * 132  # 65536 registers are enough for 4 programs of 4 warps
    for n_rows in (1, 2, 3, 7, 33, 100, 264):
        plan = choose(contiguous_problem(n_rows, 200_000, "float32"), device, light)
        most = min(64, resident // n_rows)
        assert plan.num_programs == n_rows * plan.tiling.parts <= n_rows * most
        assert -(-200_000 // (plan.tiling.tile_cols - 512)) > most, "with a piece less for each, more programs than fit"
    for n_rows in (265, 10_000):
        plan = choose(contiguous_problem(n_rows, 200_000, "float32"), device, light)
        assert str(plan.tiling) == "online 1 x 512, read twice, num_warps 4, at most 128 registers"
        assert plan.num_programs == n_rows, "rows that fill it by themselves are not shared"
