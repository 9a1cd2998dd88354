"""Measures one launch: the resources it uses, its result and its time."""

import functools
import timeit
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from portable_probe.closeness import softmax_in_float64, worst_error
from portable_probe.tune.cells import Cell, tensors_of
from portable_probe.tune.files import Launch
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError, PortableSoftmaxError
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import unfit
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.compiled import resources_of
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.launch import bind_tiling, sizes_of
from portable_softmax.runtime.specialization import KernelSpec

WARMUP_MS, REPEAT_MS = 1, 6  # of each of two turns


class WrongResultError(PortableSoftmaxError):
    """A launch computes another result than float64."""


def compiled(cell: Cell, problem: Problem, tiling: Tiling) -> Launch:
    """Compiles a launch for the device that is here.

    Raises:
        PlanError, CompileError: it does not compile, or too few programs are resident.
    """
    device, tiling = current_device(), replace(tiling, walk=False)
    resources = resources_of(KernelSpec.of(problem, tiling), device)
    occupancy = device.vendor.occupancy(resources, device.hardware)
    if reason := unfit(problem, tiling, occupancy, device):
        raise PlanError(reason)
    return Launch(cell, problem, tiling, resources, occupancy.programs_per_multiprocessor)


def timed(launch: Launch) -> Launch:
    """Launches, compares the result with float64, and returns it with its median time, the cache flushed for each.

    Raises:
        WrongResultError: the result differs by more than is allowed.
        CompileError: the kernel does not compile.
    """
    device, (cell, problem, tiling, *_) = current_device(), launch
    where = device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}")
    operands, dim = tensors_of(cell, where)
    torch.manual_seed(0)
    result, first, *last = operands
    result.fill_(float("nan"))
    first.normal_()
    exact, terms = softmax_in_float64(first, dim), torch.zeros(())
    for y in last:
        y.copy_(torch.softmax(y.normal_().float(), dim))
        total, size = ((each * y.double()).sum(dim, True) for each in (first.double(), first.double().abs()))
        exact, terms = y.double() * (first.double() - total), y.double() * (first.double().abs() + size)
    prepared = bind_tiling(problem, tiling, launch.n_programs, sizes_of(problem), device, result.device)
    call = functools.partial(launch_on, guard_of(device), prepared, *operands)
    call()
    if not (error := worst_error(result, exact, terms)) <= 1:
        raise WrongResultError(f"the result differs from float64 by {error:.3g} times what is allowed")
    return launch._replace(us=_median_us(call, device))


def _median_us(call: Callable[[], Any], device: Device) -> float:
    """Times a call; on a CPU, where Triton's interpreter runs, once by the clock, which tells nothing of a device.

    A host that stalls while do_bench estimates how often to call leaves it one call: so the lower of two medians counts.
    """
    if device.index is None:
        return timeit.timeit(call, number=1) * 1e6
    from triton.testing import do_bench

    return min(float(do_bench(call, warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median")) for _ in range(2)) * 1e3
