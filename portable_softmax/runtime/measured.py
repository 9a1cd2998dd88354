"""Times the first launches of a softmax by cost, and lets its bucket of rows use the fastest."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError
from portable_softmax.planning.operands import bucket_of
from portable_softmax.planning.plan import LaunchPlan, spilled_by
from portable_softmax.planning.planner import launch_of, ranked, unfit, using
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.bind import Launch
from portable_softmax.runtime.compile import resources_of
from portable_softmax.runtime.kernel import Kernel, kernels_of
from portable_softmax.runtime.timing import MIN_US, fastest, is_capturing, timed

PICKED = {"n_ids": 1, "ignored": -100}  # sizes of a launch of log-probabilities


def measure(choice: LaunchPlan, problem: Problem, device: Device, count: int) -> LaunchPlan:
    """Times the first `count` launches of a contiguous problem on the current device, and returns the fastest.

    The first by cost stays unless another one is 2% faster twice. Nothing is timed below 10 us, while a stream captures, or
    where a row's bits may not depend on the launch.
    """
    if problem.batch_invariant or is_capturing(device) or choice.terms is None or choice.us < MIN_US:
        return choice
    candidates = [choice, *_others(choice, problem, device, count)][:count]
    where = torch.device(device.vendor.torch_device_type, device.index or 0)
    try:
        operands = _operands(problem, kernels_of(choice.problem, choice.tiling, device)[0], where)
        rounds = timed([_call(one, problem, device, where, operands) for one in candidates], device)
    except torch.OutOfMemoryError:
        return choice
    us = [mean(times) for times in zip(*rounds, strict=True)]
    lines = [f"{one.tiling} took {time:.1f} us" for one, time in zip(candidates, us, strict=True)]
    best = fastest(rounds)
    reason = f"measured: {'; '.join([lines.pop(best), *lines])}"
    return replace(candidates[best], reasons=(reason, *choice.reasons))


def _others(choice: LaunchPlan, problem: Problem, device: Device, count: int) -> list[LaunchPlan]:
    """Returns the first launches by cost but for a choice, of those that compile, fit and do not spill."""
    others = []
    for expected in ranked(bucket_of(problem), device)[:count]:
        if (expected.problem, replace(expected.tiling, walk=True)) == (choice.problem, replace(choice.tiling, walk=True)):
            continue
        try:
            launch = using(expected, resources_of(kernels_of(expected.problem, expected.tiling, device)[0], device), device)
        except CompileError:
            continue
        others += [] if unfit(launch, device) or spilled_by(launch.resources) else [launch]
    return sorted(others, key=lambda launch: launch.us)


def _operands(problem: Problem, kernel: Kernel, where: torch.device) -> list[Any]:
    """Returns the tensors of a launch: contiguous, and of random numbers where they are read."""
    matrix, of_rows = (problem.n_rows, problem.n_cols), (problem.n_rows,)
    picks = problem.log_probs
    shapes: dict[str, tuple[int, ...]] = {"ids_ptr": of_rows, "out_ptr": of_rows, "d_out_ptr": of_rows}
    if picks:
        shapes["statistics_ptr"] = (picks.n_statistics, problem.n_rows)
    dtypes = {"*i64": torch.int64, "*fp32": torch.float32, "*fp16": torch.float16, "*bf16": torch.bfloat16}
    operands: list[Any] = []
    types = dict(kernel.signature)
    for name in kernel.operands:
        if types[name] is None:
            operands.append(None)
            continue
        operands.append(torch.zeros(shapes.get(name, matrix), dtype=dtypes[types[name].removesuffix(":16")], device=where))
        if name not in ("ids_ptr", "statistics_ptr"):
            operands[-1].normal_()
    return operands


def _call(choice: LaunchPlan, problem: Problem, device: Device, where: torch.device, operands: list[Any]) -> Callable[[], None]:
    launch = launch_of(choice, problem, device)
    return partial(Launch(launch.problem, launch.tiling, launch.num_programs, device, where, sizes=PICKED), *operands)
