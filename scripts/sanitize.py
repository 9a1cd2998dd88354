#!/usr/bin/env python3
"""Runs each kernel once in each strategy, for compute-sanitizer.

    compute-sanitizer --tool memcheck python scripts/sanitize.py
    compute-sanitizer --tool racecheck python scripts/sanitize.py

Each operand has an allocation of its own, an odd length and an unaligned start, so that the tool sees every access outside it.
"""

import argparse
import itertools
from collections.abc import Iterator
from unittest import mock

import torch

from portable_softmax import Device, LaunchPlan, PlanError, current_device, plan
from portable_softmax.planning import planner
from portable_softmax.planning.planner import Ranked
from portable_softmax.planning.problem import FORMS, Problem
from portable_softmax.runtime import launch
from portable_softmax.runtime.plans import plan_problem

DTYPES = (torch.float32, torch.bfloat16)
# [rows, cols], [matrices, cols, rows]
SHAPES = ((5, 57), (6, 57), (5, 200), (5, 203), (5, 781), (5, 1300), (5, 1301), (2, 37, 40), (1, 9001, 19))
LONG = (1, 100_003), (2, 65_536)  # for every strategy of the device
MANY = (400, 40_000), (400, 40_003)  # more programs than run at once
STRATEGIES = ("online", "shared")
Case = tuple[str, tuple[int, ...], torch.dtype, int]  # form, shape, type, elements ahead of the first


def cases() -> Iterator[tuple[Case, str | None]]:
    """Yields each case and the one strategy that it is for; None is the planned strategy."""
    yield from itertools.product(itertools.product(FORMS, SHAPES, DTYPES, (0, 1)), (None,))
    yield from itertools.product(itertools.product(FORMS[:2], LONG, DTYPES[:1], (0, 1)), STRATEGIES)
    yield from itertools.product(itertools.product(FORMS[:1], MANY, DTYPES[:1], (0, 1)), ("shared",))


def main() -> None:
    """Launches all cases, and asserts that no strategy was left out."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    device = current_device()
    where = device.vendor.torch_device_type
    shared = plan(*LONG[0], "float32", device).tiling.strategy == "shared"
    strategies: set[tuple[str, str, str]] = set()
    launches, only = 0, None

    every = planner.ranked

    def ranked(problem: Problem, device: Device) -> list[Ranked]:
        return [each for each in every(problem, device) if only in (None, each.tiling.strategy)]

    def recorded(problem: Problem, device: Device) -> LaunchPlan:
        plan_problem.cache_clear()
        found = plan_problem(problem, device)
        problem = found.problem
        kind = "across" if problem.across else problem.access if problem.unaligned or problem.paired else "along"
        strategies.add(("backward" if problem.backward else "forward", kind, found.tiling.strategy))
        return found

    mock.patch.object(launch, "plan_problem", recorded).start()
    mock.patch.object(planner, "ranked", ranked).start()
    for (form, shape, dtype, start), only in cases():  # ranked reads `only`
        x, y, dy, dx = (operand(shape, dtype, start, where) for _ in range(4))
        try:
            launch.softmax_rows(x, y, device, form)
            launch.softmax_backward_rows(dy, y, dx, device, form)
        except PlanError:
            assert only == "shared"  # not every device has this strategy for every length
            continue
        assert not y.isnan().any(), (form, shape, dtype)
        assert not dx.isnan().any(), (form, shape, dtype)
        launches += 2
    kinds = {("across", "tile"), ("across", "online"), *itertools.product(("along",), ("tile", "online"))}
    if shared:
        kinds |= {("along", "shared")}
    if device.vendor.aligned_access:
        kinds |= {("unaligned", strategy) for kind, strategy in kinds if kind == "along"}
    expected = {(direction, *kind) for direction in ("forward", "backward") for kind in kinds}
    assert expected <= strategies, f"never launched: {expected - strategies}"
    print(f"{launches} launches, {len(strategies)} strategies: {', '.join(sorted(' '.join(each) for each in strategies))}")


def operand(shape: tuple[int, ...], dtype: torch.dtype, start: int, where: str) -> torch.Tensor:
    """Returns random numbers, from an element on that need not be aligned."""
    size = torch.Size(shape).numel()
    return torch.randn(start + size, device=where).to(dtype)[start:].view(shape)


if __name__ == "__main__":
    main()
