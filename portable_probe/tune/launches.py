"""Launches of the softmax and of a row kernel, and their times on the local device."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product, zip_longest
from typing import Any

import torch

from portable_probe.tune.fit import Timed
from portable_probe.tune.kernel import row_kernel
from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.planning.facts import RowLaunch, Traffic, row_facts, softmax_facts
from portable_softmax.planning.grid import Budget
from portable_softmax.planning.lines import lines_of
from portable_softmax.planning.plan import LaunchPlan, spilled_by
from portable_softmax.planning.planner import ranked, unfit
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.request import problem_of
from portable_softmax.runtime.compiled import resources_of
from portable_softmax.runtime.launch import bind_tiling, sizes_of
from portable_softmax.runtime.specialization import KernelSpec

# Sizes of softmax problems, along the second dimension: rows of all lengths, many and few, unaligned ones, and side by side.
SOFTMAXES: tuple[tuple[int, ...], ...] = (
    (2**18, 64), (2**15, 512), (2**13, 256), (2**14, 1024), (2**12, 4096), (256, 8192), (2**10, 16384),
    (512, 32768), (333, 50304), (64, 262144), (128, 1024), (8, 131072),
    (83468, 201), (10479, 1601), (2621, 6401), (10, 50257),
    (2**13, 16, 128), (128, 1024, 128), (2, 65536, 128), (1337, 256, 49), (18641, 300, 3),
)  # fmt: skip
KERNELS = (  # sizes of the row kernel, and whether it is a norm
    ((2**12, 4096), True), ((1170, 14336), True), ((2**8, 65536), True), ((73, 14336), True),
    ((2**14, 1001), False), ((2**12, 4096), False), ((2**8, 8192), False),
)  # fmt: skip
DTYPES = "float32", "bfloat16"
BEST, RANDOM = 4, 8  # launches of a problem: those of the least expected time, and others
TOGETHER = 3  # launches of a problem that are timed one after the other: fewer are not fitted
BLOCKS, WARPS, MAX_PER_THREAD = (1024, 2048, 4096, 8192), (1, 2, 4, 8, 16), 64
ROUNDING = 0.02  # error of a result, in parts of the largest element: that of bfloat16 is 0.004
Call = tuple[Callable[[], Any], torch.Tensor, torch.Tensor]  # a launch, its result, and the result in float64
Job = Callable[[], Timed]


def jobs_of(device: Device) -> list[Job]:
    """Returns functions that time a launch: three of every problem in random order, then the next three of every problem.

    Those of a softmax are alternately predicted best and random, those of the row kernel random.

    Raises:
        PlanError: when called: the launch does not fit, or its result is wrong.
        CompileError: when called.
    """
    jobs: list[list[Any]] = []
    for shape, dtype, backward in product(SOFTMAXES, DTYPES, (False, True)):
        problem = softmax_problem(shape, dtype, backward, device)
        every = [partial(time_softmax, shape, launch, device) for launch in (ranked(problem, device) if problem else [])]
        others = _shuffled(every[BEST:], f"{shape[1]} {dtype} {backward}")  # other numbers of rows share compiled kernels
        jobs.append([job for pair in zip_longest(every[:BEST], others[:RANDOM]) for job in pair])
    warp = device.hardware.warp_size or 1
    cuts = [(block, warps) for block, warps in product(BLOCKS, WARPS) if 1 <= block / (warps * warp) <= MAX_PER_THREAD]
    for (shape, norm), dtype in product(KERNELS, DTYPES):
        chosen = _shuffled(product(cuts, (False, True)), f"{shape[1]} {dtype}")[:RANDOM]
        jobs.append([partial(time_kernel, shape, norm, dtype, cut[0], cut[1], loops, device) for cut, loops in chosen])
    parts = [[some[at : at + TOGETHER] for at in range(0, len(some), TOGETHER)] for some in jobs]
    turns = (_shuffled(filter(None, turn), str(number)) for number, turn in enumerate(zip_longest(*parts)))
    return [job for turn in turns for some in turn for job in some if job]


def _shuffled(items: Iterable[Any], seed: str) -> Any:
    listed = [*items]
    return random.Random(seed).sample(listed, len(listed))


def softmax_problem(shape: tuple[int, ...], dtype: str, backward: bool, device: Device) -> Problem | None:
    """Returns the softmax along the second dimension, or its gradient; None if the device does not read it in place."""
    strides = [torch.empty(shape, device="meta").stride()] * (2 + backward)
    lines = lines_of(shape, 1, strides, device.vendor.scattered_rows)
    return problem_of(lines, dtype, dtype, backward=backward) if lines else None


def time_softmax(shape: tuple[int, ...], launch: LaunchPlan, device: Device) -> Timed:
    """Compiles and times a launch of a softmax or its gradient."""
    problem, tiling = launch.problem, launch.tiling
    used = resources_of(KernelSpec.of(problem, tiling), device)
    fit, programs = device.vendor.occupancy(used, device.hardware), problem.tiles(tiling.tile_rows) * tiling.splits
    if reason := unfit(replace(launch, occupancy=fit), device):
        raise PlanError(reason)
    budget, resident = Budget(problem, device), fit.programs_per_multiprocessor
    facts = softmax_facts(budget, tiling, programs, resident, spilled_by(used))

    def prepared() -> Call:
        result, x, *last = operands(shape, problem.x_dtype, 2 + problem.backward, device)
        exact = x.double().softmax(1)
        for y in last:
            y.copy_(torch.softmax(y.float(), 1))
            exact = y.double() * (x.double() - (x.double() * y.double()).sum(1, True))
        call = bind_tiling(problem, tiling, programs, sizes_of(problem), device, result.device)
        return partial(call, result, x, *last), result, exact

    return Timed(f"{shape} {problem.x_dtype} {problem.backward}", facts, median_us(prepared, device))


def time_kernel(
    shape: tuple[int, int], norm: bool, dtype: str, block: int, num_warps: int, loops: bool, device: Device
) -> Timed:
    """Compiles and times a launch of the row kernel, with a program for every row, or resident programs that loop over rows."""
    (n_rows, n_cols), size = shape, DTYPE_BYTES[dtype]
    options = {"BLOCK": block, "NORM": norm, "num_warps": num_warps}
    used = kernel_resources(shape, dtype, options, device)
    fit = device.vendor.occupancy(used, device.hardware)
    if not (resident := fit.programs_per_multiprocessor):
        raise PlanError(f"does not fit: {', '.join(fit.limited_by)}")
    programs = min(n_rows, device.resident(fit) or 1) if loops else n_rows
    exponents = 0 if norm else n_cols
    traffic = Traffic(2 * n_cols * size, 0, n_cols * size * norm, size, 2 + norm, 0, float(norm), 0, exponents)
    about = n_rows, n_cols, min(16, n_cols & -n_cols), programs, resident, num_warps, block, 1, True
    facts = row_facts(traffic, RowLaunch(*about, used.spilled_bytes_per_thread), device)

    def prepared() -> Call:
        y, x = operands(shape, dtype, 2, device)
        factor = (x.double().square().mean(1, keepdim=True) + 1e-6).rsqrt() if norm else x.double().sigmoid()
        return partial(row_kernel[(programs,)], y, x, *shape, **options), y, x.double() * factor

    return Timed(f"{norm} {shape} {dtype}", facts, median_us(prepared, device))


def kernel_resources(shape: tuple[int, ...], dtype: str, options: dict[str, Any], device: Device) -> KernelResources:
    """Compiles the row kernel."""
    y, x = operands(shape, dtype, 2, device)
    return device.vendor.resources(row_kernel.warmup(y, x, *shape, grid=(1,), **options))


def operands(shape: tuple[int, ...], dtype: str, number: int, device: Device) -> list[torch.Tensor]:
    """Returns random operands on the device."""
    where = device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}")
    return [torch.randn(shape, dtype=getattr(torch, dtype), device=where) for _ in range(number)]


def median_us(prepared: Callable[[], Call], device: Device) -> float:
    """Compares the result with float64, and returns the median time with the L2 cache flushed; 1 in the interpreter.

    A host that stalls while do_bench estimates the number of calls leaves it one: the lower of two medians counts.
    """
    call, result, exact = prepared()
    result.fill_(float("nan"))
    call()
    if not (error := float((result.double() - exact).abs().max() / exact.abs().max())) <= ROUNDING:
        raise PlanError(f"the result differs from float64 by {error:.3g} of its largest element")
    if device.index is None:
        return 1
    from triton.testing import do_bench

    return min(float(do_bench(call, warmup=1, rep=6, return_mode="median")) for _ in range(2)) * 1e3
