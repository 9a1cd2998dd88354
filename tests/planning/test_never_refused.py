"""A launch that can be had slower is never refused: random problems, and compilers that spill, fail, or need all there is."""

import itertools
import zlib

import pytest
from offline import H200, MI300X, PRODUCTS, choose, foremost
from random_plans import random_problems

from portable_softmax import CompileError, Device, KernelResources, PlanError
from portable_softmax.planning.operands import contiguous_problem
from portable_softmax.planning.planner import MAX_COMPILED
from portable_softmax.runtime import plans

PROBLEMS = 24  # of each product and compiler
MOST_COMPILATIONS = 24  # where many do not compile


def chance(*key):
    """A number of 0 to 99 that is the same for the same key."""
    return zlib.crc32(repr(key).encode()) % 100


def spills_always(problem, tiling, device):
    return KernelResources(tiling.num_warps, tiling.num_warps and 32, 16, 1000 + chance(tiling))


def spills_or_fails(problem, tiling, device):
    if tiling.strategy != "two-pass" and chance(str(tiling)) < 40:
        raise CompileError("not this one")
    return KernelResources(tiling.num_warps, tiling.num_warps and 32, 16, chance(tiling, "spills"))


def takes_all_registers(problem, tiling, device):
    hardware = device.hardware
    threads = (tiling.num_warps or 1) * (hardware.warp_size or 1)
    there = (hardware.registers_per_multiprocessor or 0) // threads // 8 * 8
    return KernelResources(tiling.num_warps, tiling.num_warps and min(there, hardware.max_registers_per_thread), 16)


@pytest.mark.parametrize("compiler", [spills_always, spills_or_fails, takes_all_registers])
@pytest.mark.parametrize("product", foremost(PRODUCTS))
def test_every_problem_has_a_launch_after_a_few_compilations(product, compiler):
    device, slow = Device.from_profile(product), []
    for problem in itertools.islice(random_problems(device, seed=chance(product)), PROBLEMS):
        tried = []

        def counted(*arguments, tried=tried):
            tried.append(arguments)
            return compiler(*arguments)

        plan = choose(problem, device, counted)
        tiling = plan.tiling
        assert plan.num_programs >= tiling.splits
        assert tiling.strategy == "two-pass" or tiling.splits * tiling.split_cols >= plan.problem.n_cols
        assert len(tried) <= MOST_COMPILATIONS
        if compiler is spills_always:
            assert len(tried) <= MAX_COMPILED
            slow.append(plan.warnings)
            words = f"slow: spills into {plan.resources.spilled_bytes_per_thread} bytes per thread"
            assert all(warning.startswith(words) for warning in plan.warnings)
        if compiler is takes_all_registers:
            assert plan.warnings == ()
    assert len([*filter(None, slow)]) >= len(slow) / 4, "spills are slow, but of small problems"


@pytest.mark.slow
@pytest.mark.parametrize("product", [H200, MI300X])
def test_compilers_refuse_no_random_problem(product):
    device = Device.from_profile(product)
    for problem in itertools.islice(random_problems(device, seed=0), PROBLEMS):
        try:
            plans.plan_problem(problem, device)
        except PlanError:
            if "bfloat16" not in (problem.x_dtype, problem.y_dtype):  # whose conversions older compilers lack
                raise


def test_of_launches_that_spill_the_fastest_is_used():
    spilled = {}

    def spills(problem, tiling, device):
        spilled[tiling] = [900, 800, 100, 700, 600, 500, 0][len(spilled)]
        return KernelResources(tiling.num_warps, 64, 16, spilled[tiling])

    plan = choose(contiguous_problem(4096, 4096, "float32"), Device.from_profile(H200), spills)
    assert list(spilled.values()) == [900, 800, 100, 700, 600, 500], "no more are compiled"
    assert spilled[plan.tiling] == 100
    assert plan.warnings[0].startswith("slow: spills into 100 bytes per thread; no other of ")


def test_an_impossible_launch_is_refused_with_one_reason():
    device = Device.from_profile(H200)

    def fails(problem, tiling, device):
        raise CompileError("there is no compiler")

    with pytest.raises(PlanError, match="launches, and each does not compile: there is no compiler") as failed:
        choose(contiguous_problem(4096, 4096, "float32"), device, fails)
    assert str(failed.value).count("there is no compiler") == 1
