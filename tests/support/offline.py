"""Plans with a function in place of the compiler."""

import dataclasses
import itertools
import math
from dataclasses import replace
from typing import Any

import msgspec
from sweep import mostly_slow

from portable_softmax import Device, KernelResources, LaunchPlan, profiles
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.grid import readings
from portable_softmax.planning.operands import TOKEN_LOG_PROBS, contiguous_problem, problem_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose, ranked
from portable_softmax.planning.problem import Problem

H200, B200, MI300X, A2 = "nvidia/h200", "nvidia/b200", "amd/mi300x", "ascend/910b3"
LENGTHS = (7, 10, 17, 64, 100, 333, 781, 1000, 4096, 12672, 16384, 20_000, 20_001, 24576, 32768, 32769, 50_257, 65_536,
           100_000, 131_072, 151_936, 262_144, 10**6)  # fmt: skip
FOREMOST = {H200, B200, MI300X, A2, "nvidia/t4", "amd/rx-7900-xtx", "intel/max-1100", "triton/interpreter"}  # of each kind

_ONE_EACH = {(profiles()[name].backend, profiles()[name].arch): name for name in sorted(profiles(), key=FOREMOST.__contains__)}
PRODUCTS = sorted(_ONE_EACH.values())  # one of each architecture, a foremost one if there is


def foremost(names) -> list[Any]:
    """Returns parameters of the names; all but a few of each vendor are slow."""
    return mostly_slow(names, FOREMOST.__contains__)


def light(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Returns small resources of a kernel, in place of the compiler."""
    return KernelResources(tiling.num_warps, tiling.num_warps and 32, 16)


def planned(profile, n_rows, n_cols, dtype="float32", measure=light, backward=False) -> LaunchPlan:
    device = Device.from_profile(profile)
    return choose(contiguous_problem(n_rows, n_cols, dtype, backward=backward), device, measure)


def with_hardware(profile: str, **facts) -> Device:
    """Returns the profile's device with other values for some facts."""
    device = Device.from_profile(profile)
    return dataclasses.replace(device, hardware=msgspec.structs.replace(device.hardware, **facts))


def every_launch(problem: Problem, device: Device) -> list[tuple[Problem, Tiling]]:
    """Returns all launches that are weighed for a problem, and how each reads it, the one of the least time first."""
    return [(candidate.problem, candidate.tiling) for candidate in ranked(problem, device)]


def read_widely(problem: Problem, device: Device) -> Problem:
    """Returns the problem in vectors between two edges, or with rows of several matrices in a tile, if it can be read so."""
    return readings(problem, device)[-1]


def read_problem(n_rows, n_cols, dtype, device, *form, **kind) -> Problem:
    """Returns a contiguous problem, read widely."""
    return read_widely(contiguous_problem(n_rows, n_cols, dtype, *form, **kind), device)


def table() -> dict[str, str]:
    """Returns the tiling and the grid of rows on an H200, of rows side by side and on vector cores, and of random problems."""
    return _of_rows(H200) | _of_rows(A2, (1, 4096), (7, 781, 4096, 32_769, 131_072)) | _side_by_side() | _at_random()


def heavy(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Returns the resources of a kernel that needs 90 registers, and spills what it may not use."""
    registers = min(tiling.max_registers or 90, 90)
    return KernelResources(tiling.num_warps, tiling.num_warps and registers, 40 * tiling.tile_rows, 8 * (90 - registers))


def _at_random() -> dict[str, str]:
    """Returns plans of problems of every kind, with kernels that need little and much, how they are read, and all launches."""
    from random_plans import random_problems  # which needs torch's operators

    picks = itertools.product((8, 4096), (5000, 128_257), (False, True), (False, True))
    picked = [
        replace(contiguous_problem(*size, "bfloat16", TOKEN_LOG_PROBS, backward=backward), batch_invariant=invariant)
        for *size, backward, invariant in picks
    ]
    cells = {}
    for profile, measure in itertools.product(
        (H200, MI300X, A2, "nvidia/t4", "nvidia/jetson-agx-orin", "intel/max-1100"), (light, heavy)
    ):
        device = Device.from_profile(profile)
        for number, problem in enumerate([*itertools.islice(random_problems(device, seed=7), 20), *picked]):
            plan, launches = choose(problem, device, measure), ranked(problem, device)
            access = "unaligned" if plan.problem.unaligned else f"in accesses of {plan.problem.vector}"
            why = "; ".join(reason.partition(" (")[0] for reason in plan.reasons)
            us = f"{len(launches)} launches of {sum(launch.us for launch in launches):.6g}"
            cells[f"{profile}: {number}, {measure.__name__}"] = f"{plan.tiling} of {plan.problem.size} {access}: {why}; {us}"
    return cells


def _side_by_side() -> dict[str, str]:
    cells = {}
    for profile, dtype, backward in itertools.product((H200, MI300X, A2), ("float32", "bfloat16"), (False, True)):
        for inner, n_cols in itertools.product((3, 64, 1000), (10, 300, 3000, 40_999)):
            vector = math.gcd(inner, 16 // DTYPE_BYTES[dtype])
            problem = Problem(64 * inner, n_cols, dtype, dtype, vector, inner=inner, backward=backward)
            plan = choose(problem, Device.from_profile(profile), light)
            kind = "gradient" if backward else "softmax"
            cells[f"{profile}: {dtype} {kind} of 64 x {n_cols} x {inner}"] = f"{plan.tiling}, {plan.num_programs} programs"
    for dtype, backward in itertools.product(("float32", "bfloat16"), (False, True)):
        strides = [(20_000 * 333, 333, 1)] * (3 if backward else 2)
        problem = problem_of((5, 20_000, 333), 1, strides, (dtype, dtype), backward=backward)
        for profile in (H200, MI300X):
            plan = choose(problem, Device.from_profile(profile), light)
            name = f"{profile}: {dtype} {'gradient' if backward else 'softmax'} of 5 x 20000 x 333"
            cells[name] = f"{plan.tiling}, {plan.num_programs} programs"
    return cells


def _of_rows(profile: str, rows=(1, 132, 4096), cols=LENGTHS) -> dict[str, str]:
    cells = {}
    for dtype in ("float32", "bfloat16"):
        for backward in (False, True):
            for n_rows, n_cols in itertools.product(rows, cols):
                plan = planned(profile, n_rows, n_cols, dtype, backward=backward)
                name = f"{profile}: {dtype} {'gradient' if backward else 'softmax'} of {n_rows} x {n_cols}"
                cells[name] = f"{plan.tiling}, {plan.num_programs} programs"
    return cells
