"""Measures one launch: the resources it uses, its result and its time."""

import functools
import timeit
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from portable_probe.tune import kernels
from portable_probe.tune.cells import Cell, tensors_of
from portable_probe.tune.launches import KernelLaunch, Launch, SoftmaxLaunch
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, PortableSoftmaxError
from portable_softmax.planning.facts import RowLaunch
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import unfit
from portable_softmax.planning.problem import Problem
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.traffic import known_multiple, traffic_of
from portable_softmax.row_kernels.ttir import parsed
from portable_softmax.runtime.compiled import resources_of
from portable_softmax.runtime.guard import guard_of, launch_on
from portable_softmax.runtime.launch import bind_tiling, sizes_of
from portable_softmax.runtime.specialization import KernelSpec

WARMUP_MS, REPEAT_MS = 1, 6  # of each of two turns
ROUNDING = 0.02  # error of a result, in parts of the largest element: bfloat16 rounds to 0.004


class WrongResultError(PortableSoftmaxError):
    """A launch computes another result than float64."""


def compiled(cell: Cell, problem: Problem, tiling: Tiling) -> SoftmaxLaunch:
    """Compiles a launch of the softmax for the local device.

    Raises:
        PlanError, CompileError: it does not compile, or too few programs are resident.
    """
    device, tiling = current_device(), replace(tiling, walk=False)
    resources = resources_of(KernelSpec.of(problem, tiling), device)
    occupancy = device.vendor.occupancy(resources, device.hardware)
    if reason := unfit(problem, tiling, occupancy, device):
        raise PlanError(reason)
    return SoftmaxLaunch(cell, problem, tiling, resources, occupancy.programs_per_multiprocessor)


def compiled_kernel(kernel: str, dtype: str, sizes: tuple[int, int], meta: dict[str, int], walks: bool) -> KernelLaunch:
    """Compiles a launch of a row kernel for the local device.

    Args:
        kernel: its name in KERNELS.
        dtype: torch's name of the operands' type.
        sizes: rows, and elements of one.
        meta: BLOCK, STAGES and num_warps.
        walks: as many programs as are resident go over all rows; else there is one for each row.

    Raises:
        PlanError, CompileError: it does not compile, or no program is resident.
    """
    import triton

    device, jit, (n_rows, n_cols) = current_device(), kernels.KERNELS[kernel], sizes
    x = torch.empty(sizes, dtype=getattr(torch, dtype), device="meta")
    arguments = {"y": x, "x": x, "n_rows": n_rows, "n_cols": n_cols}
    constants = {name: meta[name] for name in ("BLOCK", "STAGES")}
    (kernel_or_error,) = compiled_for(jit, [triton.Config(constants, num_warps=meta["num_warps"])], arguments, device)
    if isinstance(kernel_or_error, Exception):
        raise CompileError(f"{kernel}: {kernel_or_error}") from kernel_or_error
    resources = device.vendor.resources(kernel_or_error)
    resident = device.vendor.occupancy(resources, device.hardware).programs_per_multiprocessor
    if not resident:
        raise PlanError(f"{kernel}: no program of {meta} is resident")
    function = parsed(kernel_or_error.asm["ttir"], list(arguments))
    traffic = traffic_of(function, arguments, True, n_rows, n_cols, meta["BLOCK"])
    programs = min(n_rows, resident * (device.hardware.multiprocessor_count or 1)) if walks else n_rows
    in_blocks, spilled = kernel in kernels.IN_BLOCKS, resources.spilled_bytes_per_thread
    options = meta["num_warps"], meta["BLOCK"], meta["STAGES"]
    multiple = known_multiple(n_cols, False)
    launch = RowLaunch(n_rows, n_cols, multiple, programs, resident, *options, in_blocks, spilled)
    return KernelLaunch(kernel, dtype, launch, traffic)


def timed(launch: Launch) -> Launch:
    """Launches, compares the result with float64, and returns the launch with its median time, the cache flushed for each.

    Raises:
        WrongResultError: the result differs by more than rounding explains.
        CompileError: the kernel does not compile.
    """
    device = current_device()
    where = device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}")
    torch.manual_seed(0)
    call, result, exact = (_softmax if isinstance(launch, SoftmaxLaunch) else _kernel)(launch, device, where)
    result.fill_(float("nan"))
    call()
    if not (error := float((result.double() - exact).abs().max() / exact.abs().max())) <= ROUNDING:
        raise WrongResultError(f"the result differs from float64 by {error:.3g} of its largest element")
    return launch._replace(us=_median_us(call, device))


def _softmax(launch: Any, device: Device, where: str) -> tuple[Callable[[], Any], torch.Tensor, torch.Tensor]:
    """Returns a launch of a softmax or its gradient, its result, and what that should be."""
    operands, dim = tensors_of(launch.cell, where)
    result, first, *last = operands
    exact = first.normal_().double().softmax(dim)
    for y in last:
        y.copy_(torch.softmax(y.normal_().float(), dim))
        exact = y.double() * (first.double() - (first.double() * y.double()).sum(dim, True))
    sizes = sizes_of(launch.problem)
    bound = bind_tiling(launch.problem, launch.tiling, launch.num_programs, sizes, device, result.device)
    return functools.partial(launch_on, guard_of(device), bound, *operands), result, exact


def _kernel(launch: Any, device: Device, where: str) -> tuple[Callable[[], Any], torch.Tensor, torch.Tensor]:
    """Returns the same of a row kernel."""
    of = launch.launch
    x = torch.randn(of.n_rows, of.n_cols, device=where).to(getattr(torch, launch.dtype))
    y = torch.empty_like(x)
    meta = {"BLOCK": of.block, "STAGES": of.num_stages, "num_warps": of.num_warps}
    run = kernels.KERNELS[launch.kernel][(of.num_programs,)]
    return functools.partial(run, y, x, of.n_rows, of.n_cols, **meta), y, kernels.exact(launch.kernel, x)


def _median_us(call: Callable[[], Any], device: Device) -> float:
    """Times a call; on a CPU, where Triton's interpreter runs, once by the clock, which says nothing of a device.

    A host that stalls while do_bench estimates how often to call leaves it one call: so the lower of two medians counts.
    """
    if device.index is None:
        return timeit.timeit(call, number=1) * 1e6
    from triton.testing import do_bench

    return min(float(do_bench(call, warmup=WARMUP_MS, rep=REPEAT_MS, return_mode="median")) for _ in range(2)) * 1e3
