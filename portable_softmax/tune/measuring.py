"""Work of the processes: a cell's plan with some numbers, and a launch's result and time."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

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
from portable_softmax.runtime.workspace import with_words
from portable_softmax.tune.cells import Cell, problem_on, tensors_of
from portable_softmax.tune.processes import WrongResultError
from portable_softmax.tune.variations import with_rows

WARMUP_MS, REPEAT_MS = 2, 12
EPSILONS = {"float32": 40, "bfloat16": 2}  # of the type, that a result may differ from float64
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
        stages = f", num_stages {self.tiling.num_stages}" if (self.tiling.num_stages or 1) > 1 else ""
        return f"{self.problem.access}: {self.tiling}{stages}, {self.num_programs} programs"


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
    operands, results, exact, more_sizes = _filled(cell, where)
    call = _call(launch, device, operands, more_sizes)
    for each in results:
        each.fill_(float("nan"))
    call()
    error = max(_error(result, each, cell.dtype) for result, each in zip(results, exact, strict=True))
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
        prepared = with_words(prepared, problem, tiling, operands[0].device)
    guard = guard_of(device)
    return lambda: launch_on(guard, prepared, *operands)


def _filled(cell: Cell, where: str) -> tuple[Operands, Operands, Operands, tuple[int, ...]]:
    """Returns a launch's operands, the results among them, what these should be in float64, and sizes that only a step has."""
    operands, dim = tensors_of(cell, where)
    torch.manual_seed(0)
    results, given = (operands[:0], operands) if cell.step == "reduce" else (operands[:1], operands[1:])
    given[0].normal_()
    if cell.backward:
        given[1].copy_(torch.softmax(given[1].normal_().float(), dim))
    first, last = given[0].double(), given[-1].double()
    if not cell.step:
        exact = (_gradient(first, last, (first * last).sum(dim, True)) if cell.backward else torch.softmax(first, dim),)
        return operands, results, exact, ()
    numbers = torch.empty(1, 1 if cell.backward else 2, cell.n_rows, device=where)
    whole = (first * last).sum(1)[None, None] if cell.backward else _maximum_and_sum(first)
    if cell.step == "reduce":
        return (*operands, numbers), (numbers,), (whole,), ()
    numbers.copy_(whole)
    row = whole[0, :, :, None]
    mapped = _gradient(first, last, row[0]) if cell.backward else (first - row[0]).exp() / row[1]
    return (*operands, numbers), results, (mapped,), (1,)


def _gradient(dy: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    return y * (dy - total)


def _maximum_and_sum(x: torch.Tensor) -> torch.Tensor:
    most = x.amax(1, keepdim=True)
    return torch.stack([most[:, 0], (x - most).exp().sum(1)])[None]


def _error(result: torch.Tensor, exact: torch.Tensor, dtype: str) -> float:
    """Returns the largest error in units of what is allowed; small elements are allowed that of the mean, as terms cancel."""
    name = "float32" if result.dtype == torch.float32 else dtype
    limits = torch.finfo(result.dtype)
    allowed = EPSILONS[name] * limits.eps * exact.abs().maximum(exact.abs().mean()) + limits.tiny
    return float(((result.double() - exact).abs() / allowed).nan_to_num(nan=float("inf")).max())


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
