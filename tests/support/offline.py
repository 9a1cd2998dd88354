"""Plans with a function in place of the compiler."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
from sweep import mostly_slow

from portable_softmax import Device, KernelResources, LaunchPlan, profiles
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.candidates import readings
from portable_softmax.planning.operands import TOKEN_LOG_PROBS, bucket_of, contiguous_problem
from portable_softmax.planning.planner import choose_launch, ranked
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling

H200, B200, MI300X, A2 = "nvidia/h200", "nvidia/b200", "amd/mi300x", "ascend/910b3"
LENGTHS = 7, 64, 781, 4096, 20_001, 32_769, 131_072, 10**6
FOREMOST = {H200, B200, MI300X, A2, "nvidia/t4", "amd/rx-7900-xtx", "intel/max-1100", "triton/interpreter"}  # of each kind

_ONE_EACH = {(profiles()[name].backend, profiles()[name].arch): name for name in sorted(profiles(), key=FOREMOST.__contains__)}
PRODUCTS = sorted(_ONE_EACH.values())  # one of each architecture, a foremost one if there is


def foremost(names) -> list[Any]:
    """Returns parameters of the names; all but a few of each vendor are slow."""
    return mostly_slow(names, FOREMOST.__contains__)


def choose(problem: Problem, device: Device, compile: Any) -> LaunchPlan:
    """Plans a launch with a function in place of the compiler; for a bucket where bits must not depend on the rows."""
    typical = bucket_of(problem) if problem.batch_invariant else problem
    return choose_launch(typical, device, compile).resized(problem)


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


def read_problem(n_rows, n_cols, dtype, device, *form, **kind) -> Problem:
    """Returns a contiguous problem, read in vectors between two edges if it can be read so."""
    return readings(contiguous_problem(n_rows, n_cols, dtype, *form, **kind), device)[-1]


def problems() -> Iterator[Problem]:
    """Yields rows, rows side by side, and log-probabilities of tokens."""
    for dtype, backward in (("float32", False), ("bfloat16", True)):
        for n_rows, n_cols in itertools.product((1, 4096), LENGTHS):
            yield contiguous_problem(n_rows, n_cols, dtype, backward=backward)
        for inner, n_cols in itertools.product((3, 64, 1000), (10, 300, 40_999)):
            vector = math.gcd(inner, 16 // DTYPE_BYTES[dtype])
            yield Problem(64 * inner, n_cols, dtype, dtype, vector, inner=inner, backward=backward)
    for n_rows, n_cols, backward, invariant in itertools.product((8, 4096), (5000, 128_257), (False, True), (False, True)):
        problem = contiguous_problem(n_rows, n_cols, "bfloat16", TOKEN_LOG_PROBS, backward=backward)
        yield replace(problem, batch_invariant=invariant)


def table() -> dict[str, str]:
    """Returns the plan of each problem: tiling, reading and reasons."""
    cells = {}
    for name in (H200, MI300X, A2, "intel/max-1100"):
        device = Device.from_profile(name)
        for number, problem in enumerate(problems()):
            plan = choose(problem, device, light)
            access = "unaligned" if plan.problem.whole_vectors else f"in accesses of {plan.problem.vector}"
            why = "; ".join(reason.partition(" (")[0] for reason in plan.reasons)
            cells[f"{name}: {number}, {plan.problem.name} of {plan.problem.size}"] = f"{plan.tiling} {access}: {why}"
    return cells
