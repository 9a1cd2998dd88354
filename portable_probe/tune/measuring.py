"""Work of the processes: a cell's plan with some numbers, and a launch's result and time."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from portable_probe.closeness import softmax_in_float64, worst_error
from portable_probe.tune.cells import Cell, problem_on, tensors_of
from portable_probe.tune.processes import WrongResultError
from portable_probe.tune.variations import with_rows
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import NumberRow
from portable_softmax.planning.plan import LaunchPlan, Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.launch import sizes_of
from portable_softmax.runtime.plans import plan_problem
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec
from portable_softmax.runtime.workspace import with_workspace

WARMUP_MS, REPEAT_MS = 2, 12
Operands = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Launch:
    """A plan's choices: how rows are read and cut, and the number of programs."""

    problem: Problem
    tiling: Tiling
    num_programs: int

    @classmethod
    def of(cls, plan: LaunchPlan) -> "Launch":
        """Returns the choices of a plan."""
        return cls(plan.problem, plan.tiling, plan.num_programs)

    def __str__(self) -> str:
        return f"{self.problem.access}: {self.tiling}, {self.num_programs} programs"


class Timing(NamedTuple):
    """A launch's median time, its largest error in units of what is allowed, and the time of a copy of as many bytes.

    A reduction writes nothing, and has no copy.
    """

    us: float
    error: float
    copy_us: float | None = None


def planned(cell: Cell, rows: tuple[NumberRow, ...]) -> Launch:
    """Plans a cell on the device that is here, with rows of numbers before its own; compiles what the planner tries.

    Raises:
        PlanError, CompileError: nothing fits, or the device's compiler cannot be used.
    """
    return Launch.of(plan_on(cell, with_rows(current_device(), rows)))


def plan_on(cell: Cell, device: Device) -> LaunchPlan:
    """Plans a cell on any device; see `planned`."""
    problem = problem_on(cell, device)
    assert problem, "cells_of leaves out what the device does not take"
    return plan_problem(problem, device)


def timed(cell: Cell, launch: Launch, with_copy: bool) -> Timing:
    """Launches, compares the result with float64, and times it, with the cache flushed each time.

    Raises:
        WrongResultError: the result differs by more than is allowed.
        CompileError: the kernel does not compile.
    """
    device = current_device()
    where = device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}")
    operands, result, exact, terms, more_sizes = _filled(cell, where)
    call = _call(launch, device, operands, more_sizes)
    result.fill_(float("nan"))
    call()
    error = worst_error(result, exact, terms)
    if not error <= 1:
        raise WrongResultError(f"the result differs from float64 by {error:.3g} times what is allowed")
    if not with_copy or cell.step == "reduce":
        return Timing(_median_us(call, device), error)
    copy = _copying(operands[:-1] if cell.step else operands)
    return Timing(_median_us(call, device), error, _median_us(copy, device))


def _call(launch: Launch, device: Device, operands: Operands, more_sizes: tuple[int, ...]) -> Callable[[], Any]:
    problem, tiling, sizes = launch.problem, launch.tiling, (*sizes_of(launch.problem), *more_sizes)
    prepared = prepare(KernelSpec.of(problem, tiling), device, (launch.num_programs, 1, 1), sizes)
    if tiling.is_shared:
        prepared = with_workspace(prepared, problem, tiling, operands[0].device)
    guard = guard_of(device)
    return lambda: launch_on(guard, prepared, *operands)


def _filled(cell: Cell, where: str) -> tuple[Operands, torch.Tensor, torch.Tensor, torch.Tensor | float, tuple[int, ...]]:
    """Returns a launch's operands, the result among them, what it should be in float64, its terms, and sizes of a step."""
    operands, dim = tensors_of(cell, where)
    torch.manual_seed(0)
    given = operands if cell.step == "reduce" else operands[1:]
    given[0].normal_()
    if cell.backward:
        given[1].copy_(torch.softmax(given[1].normal_().float(), dim))
    first, last = given[0].double(), given[-1].double()
    if not cell.step:
        if not cell.backward:
            return operands, operands[0], softmax_in_float64(first, dim), 0.0, ()
        total, size = ((each * last).sum(dim, True) for each in (first, first.abs()))
        return operands, operands[0], last * (first - total), last * (first.abs() + size), ()
    numbers = torch.empty(1, 1 if cell.backward else 2, cell.n_rows, device=where)
    whole = (first * last).sum(1)[None, None] if cell.backward else _maximum_and_sum(first)
    size = (first * last).abs().sum(1)[None, None] if cell.backward else whole
    if cell.step == "reduce":
        return (*operands, numbers), numbers, whole, size, ()
    numbers.copy_(whole)
    row = whole[0, :, :, None]
    if cell.backward:
        return (*operands, numbers), operands[0], last * (first - row[0]), last * (first.abs() + size[0, 0, :, None]), (1,)
    return (*operands, numbers), operands[0], (first - row[0]).exp() / row[1], 0.0, (1,)


def _maximum_and_sum(x: torch.Tensor) -> torch.Tensor:
    most = x.amax(1, keepdim=True)
    return torch.stack([most[:, 0], (x - most).exp().sum(1)])[None]


def _copying(operands: Operands) -> Callable[[], Any]:
    """Returns a copy of as many bytes: of one operand, or the sum of two."""
    out, *given = (torch.empty(each.numel(), dtype=each.dtype, device=each.device) for each in dict.fromkeys(operands))
    return (lambda: torch.add(*given, out=out)) if len(given) == 2 else (lambda: out.copy_(given[0]))


def _median_us(call: Callable[[], Any], device: Device) -> float:
    """Times a call; on a CPU, where Triton's interpreter runs, a few times by the clock, which tells nothing of a device."""
    if device.index is None:
        return statistics.median(_seconds(call) for _ in range(2)) * 1e6
    from triton.testing import do_bench

    return float(do_bench(call, warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median")) * 1e3


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
