"""Which rows programs share, and how they are cut into parts: on every GPU that has a profile."""

import dataclasses
import itertools

import msgspec
import pytest
from offline import A2, GPUS, H200, light, planned, with_hardware, with_policy

from portable_softmax import Device, KernelResources
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.holding import BESIDE
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.planning.sharing import MOST_PARTS
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel

TYPES = ("float32", "bfloat16", "float16")
DIRECTIONS = (False, True)


def policy_of(profile):
    return Device.from_profile(profile).profile.launch


@pytest.mark.parametrize("profile", GPUS)
def test_rows_longer_than_a_tile_are_shared_however_many_there_are(profile):
    too_long = policy_of(profile).max_tile_cols.value + 1
    for n_rows, n_cols, dtype, backward in itertools.product((1, 4096), (too_long, 151_936), TYPES, DIRECTIONS):
        plan = planned(profile, n_rows, n_cols, dtype, backward=backward)
        assert plan.strategy == "shared"
        assert plan.parts > 1


@pytest.mark.parametrize("profile", GPUS)
def test_few_rows_are_shared_and_one_for_each_multiprocessor_is_few(profile):
    n_cols, count = policy_of(profile).shared_from_cols.value, Device.from_profile(profile).hardware.multiprocessor_count
    assert planned(profile, count, n_cols).strategy == "shared"
    assert planned(profile, count + 1, n_cols).strategy == "tile"
    assert planned(profile, 1, n_cols - 4).strategy == "tile", "not long enough to pay for the exchange"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gradient_is_shared_from_shorter_rows_on_than_its_softmax(dtype):
    def shortest(backward):
        lengths = range(1024, 65_536, 1024)
        return next(n_cols for n_cols in lengths if planned(H200, 4096, n_cols, dtype, backward=backward).strategy == "shared")

    assert shortest(backward=True) < shortest(backward=False) <= policy_of(H200).max_tile_cols.value


def test_a_row_that_fills_a_tile_is_read_once_by_one_program_in_float32():
    plans = [planned(H200, 4096, n_cols) for n_cols in (32764, 32768, 32772)]
    assert [plan.strategy for plan in plans] == ["shared", "tile", "shared"]


@pytest.mark.parametrize("profile", GPUS)
def test_float64_is_never_shared(profile):
    """A word of the exchange holds a number of 32 bits."""
    device = Device.from_profile(profile)
    for n_rows, n_cols, backward in itertools.product((1, 4096), (16384, 10**6), DIRECTIONS):
        problem = contiguous_problem(n_rows, n_cols, "float64", device, backward=backward)
        assert {tiling.parts for tiling in candidates(problem, device)} == {1}


def test_where_a_profile_does_not_say_how_rows_are_not_shared():
    assert {planned(A2, n_rows, 10**6).strategy for n_rows in (1, 4096)} == {"online"}


@pytest.mark.parametrize("profile", GPUS)
@pytest.mark.parametrize("dtype", TYPES)
def test_parts_cover_a_row_and_each_has_a_program_and_a_lane(profile, dtype):
    device = Device.from_profile(profile)
    lengths = (16384, 32769, 50_257, 65_536, 100_000, 129_025, 262_144, 10**6, 5 * 10**6)
    for n_rows, n_cols, backward in itertools.product((1, 7, 132, 4096), lengths, DIRECTIONS):
        problem = contiguous_problem(n_rows, n_cols, dtype, device, backward=backward)
        plan = choose(problem, device, light)
        if plan.parts > 1:
            assert (plan.strategy, plan.tile_rows, plan.num_programs) == ("shared", 1, n_rows * plan.parts)
        for tiling in candidates(problem, device):
            if tiling.parts > 1:
                assert (tiling.parts - 1) * tiling.tile_cols < problem.width <= tiling.parts * tiling.tile_cols
                assert tiling.parts <= KernelSpec.of(problem, tiling).constexprs(device)["LANES"]
                assert tiling.words_per_row % 16 == 0, "whole cache lines"
                assert tiling.words_per_row >= 2 * tiling.parts


@pytest.mark.parametrize("n_cols", [100_000, 10**6])
def test_a_row_has_at_most_64_parts_and_no_more_than_a_program_has_threads(n_cols):
    device = Device.from_profile(H200)
    for n_rows in (1, 4096):
        for tiling in candidates(contiguous_problem(n_rows, n_cols, "float32", device), device):
            assert tiling.parts <= min(MOST_PARTS, 32 * tiling.num_warps)


@pytest.mark.parametrize("profile", GPUS)
@pytest.mark.parametrize("n_cols", [64, 781, 16384, 20480, 20484, 32764, 32768, 32769, 50_257, 10**6])
def test_batch_invariant_rows_are_cut_by_their_length_alone(profile, n_cols):
    device = Device.from_profile(profile)
    for backward in DIRECTIONS:
        found = contiguous_problem(1, n_cols, "float32", device, backward=backward)
        problems = [dataclasses.replace(found, n_rows=n_rows, batch_invariant=True) for n_rows in (1, 132, 10**6, 2**31)]
        plans = [choose(problem, device, light) for problem in problems]
        assert len({dataclasses.replace(plan.tiling, walk=True) for plan in plans}) == 1


def test_twice_the_warps_take_a_part_where_rows_leave_most_of_the_device_idle():
    """An eighth of 132 * 64 warps is 1056: 66 rows of 16 parts, with a warp for 2048 columns."""
    few, more = planned(H200, 66, 32768), planned(H200, 67, 32768)
    assert (few.parts, more.parts) == (16, 16)
    assert few.num_warps == 2 * more.num_warps
    device = Device.from_profile(H200)
    assert choose(Problem(1, 40_000, "float32", "float32", 4, batch_invariant=True), device, light).num_warps == 4, "as of many"


def test_parts_are_wide_where_programs_are_many():
    """Half of 132 * 64 warps is 4224: 132 rows of 32 parts, with a warp for 2048 columns."""
    few, many = planned(H200, 132, 65_536), planned(H200, 133, 65_536)
    assert few.tile_cols == policy_of(H200).shared_tile_cols.value
    assert many.tile_cols == policy_of(H200).shared_wide_cols.value


def heavy(registers, spilled=0):
    """A compiler that needs so many registers; what is held to fewer spills."""

    def measure(problem, tiling, device):
        held = tiling.max_registers or registers
        return KernelResources(tiling.num_warps, min(held, registers), 0, spilled if held < registers else 0)

    return measure


def test_held_to_registers_a_kernel_may_spill_what_the_policy_allows():
    allowed = policy_of(H200).spilled_bytes.value
    steps = policy_of(H200).max_registers.value
    spills = planned(H200, 4096, 40_000, "bfloat16", heavy(200, allowed))
    assert spills.max_registers == steps[0]
    assert spills.resources.spilled_bytes_per_thread == allowed
    more = planned(H200, 4096, 40_000, "bfloat16", heavy(200, allowed + 8))
    assert (more.strategy, more.max_registers, more.resources.spilled_bytes_per_thread) == ("shared", None, 0)
    assert more.reasons[0].endswith(f"at most {steps[0]} registers: spills {allowed + 8} bytes per thread")
    enough = planned(H200, 4096, 40_000, "bfloat16", heavy(steps[1], allowed + 8))
    assert enough.max_registers == steps[1]


def test_what_is_not_held_to_registers_must_not_spill():
    def measure(problem, tiling, device):
        return KernelResources(tiling.num_warps, 64, 0, 0 if tiling.max_registers or tiling.num_warps != 8 else 8)

    plan = planned(H200, 4096, 8192, measure=measure)
    assert plan.num_warps == 16
    assert plan.reasons[0].endswith("spills 8 bytes per thread")


def test_where_a_profile_allows_no_spilled_bytes_there_are_none():
    device = with_policy(H200, spilled_bytes=msgspec.UNSET)
    plan = choose(contiguous_problem(4096, 40_000, "bfloat16", device), device, heavy(200, 8))
    assert plan.max_registers is None


@pytest.mark.parametrize("dtype", TYPES)
def test_registers_that_a_kernel_is_held_to_hold_its_elements_and_more(dtype):
    device = Device.from_profile(H200)
    for n_rows, n_cols, backward in itertools.product((1, 4096), (16384, 20_000, 50_257, 10**6), DIRECTIONS):
        problem = contiguous_problem(n_rows, n_cols, dtype, device, backward=backward)
        for tiling in candidates(problem, device):
            if tiling.max_registers:
                elements = tiling.tile_cols * (2 if backward else 1) / (32 * tiling.num_warps)
                assert elements + BESIDE <= tiling.max_registers
                assert tiling.max_registers in policy_of(H200).max_registers.value


def test_a_row_is_not_shared_where_its_parts_would_not_run_at_once():
    """They would look in vain, and compute all of it again."""
    device = with_hardware(H200, multiprocessor_count=4)
    problem = contiguous_problem(64, 262_144, "float32", device)
    plan = choose(problem, device, lambda problem, tiling, device: KernelResources(tiling.num_warps, 32, 70_000))
    assert plan.parts <= 12, "three on each multiprocessor"
    assert any("only 12 programs are resident at once" in reason for reason in plan.reasons)


@pytest.mark.parametrize("num_warps", [None, 1, 8])
@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x"])
def test_each_thread_of_a_program_has_a_lane_of_its_own(profile, num_warps):
    """Else its warps would look at words one by one, see them at other times, and disagree whether one is missing."""
    device = Device.from_profile(profile)
    spec = KernelSpec.of(Problem(3, 128, "float32", "float32", 4), Tiling("shared", 1, 64, num_warps, 1, 2))
    threads = compile_kernel(spec, device).metadata.num_warps * device.hardware.warp_size
    assert spec.constexprs(device)["LANES"] >= threads
