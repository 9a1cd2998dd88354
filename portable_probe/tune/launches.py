"""Launches of the softmax and of a row kernel, and their times on the local device."""

import random
from collections.abc import Callable
from functools import partial
from itertools import product, zip_longest
from typing import Any

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

from portable_probe.tune.fit import Timed
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.planning.cost import Work, cost, limits_of, row_work
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.plan import LaunchPlan, launch_of
from portable_softmax.planning.planner import ranked
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.runtime.bind import bind
from portable_softmax.runtime.compile import loaded, resources_of
from portable_softmax.runtime.kernel import kernels_of

# Sizes of softmax problems, along the second dimension: rows of all lengths, many and few, unaligned ones, and side by side.
SOFTMAXES: tuple[tuple[int, ...], ...] = (
    (2**18, 64), (2**15, 512), (2**13, 256), (2**14, 1024), (2**12, 4096), (256, 8192), (2**10, 16384),
    (512, 32768), (333, 50304), (64, 262144), (128, 1024), (8, 131072),
    (83468, 201), (10479, 1601), (2621, 6401), (10, 50257),
    (2**13, 16, 128), (128, 1024, 128), (2, 65536, 128), (1337, 256, 49), (18641, 300, 3),
)  # fmt: skip
KERNELS = (2**12, 4096), (1170, 14336), (2**8, 65536), (73, 14336), (2**14, 1001), (2**8, 8192)  # sizes of the row kernel
DTYPES = "float32", "bfloat16"
BEST, RANDOM = 4, 8  # launches of a problem: those of the least expected time, and others
TOGETHER = 3  # launches of a problem that are timed one after the other: fewer are not fitted
BLOCKS, WARPS = (1024, 2048, 4096), (2, 4, 8, 16)
ROUNDING = 0.02  # error of a result, in parts of the largest element: that of bfloat16 is 0.004


def jobs_of(device: Device) -> list[Callable[[], Timed]]:
    """Returns functions that time a launch: three of every problem in random order, then the next three of every problem.

    Those of a softmax are alternately predicted best and random, those of the row kernel random. They raise PlanError if the
    launch does not fit or its result is wrong, and CompileError.
    """
    jobs: list[list[Any]] = []
    chance = random.Random(0)
    for shape, dtype, backward in product(SOFTMAXES, DTYPES, (False, True)):
        problem = softmax_problem(shape, dtype, backward, device)
        every = [partial(time_softmax, shape, launch, device) for launch in (ranked(problem, device) if problem else [])]
        others = chance.sample(every[BEST:], min(RANDOM, len(every[BEST:])))
        jobs.append([job for pair in zip_longest(every[:BEST], others) for job in pair])
    for shape, dtype in product(KERNELS, DTYPES):
        chosen = chance.sample([*product(BLOCKS, WARPS, (False, True))], RANDOM)
        jobs.append([partial(time_kernel, shape, dtype, *choice, device) for choice in chosen])
    turns = [(at, some) for at in range(0, BEST + RANDOM, TOGETHER) for some in chance.sample(jobs, len(jobs))]
    return [job for at, some in turns for job in some[at : at + TOGETHER] if job]


def softmax_problem(shape: tuple[int, ...], dtype: str, backward: bool, device: Device) -> Problem | None:
    """Returns the softmax along the second dimension, or its gradient; None if the device does not read it in place."""
    strides = [torch.empty(shape, device="meta").stride()] * (3 if backward else 2)
    return problem_of(shape, 1, strides, (dtype, dtype), may_scatter=device.vendor.scattered_rows, backward=backward)


def time_softmax(shape: tuple[int, ...], launch: LaunchPlan, device: Device) -> Timed:
    """Compiles and times a launch of a softmax or its gradient."""
    problem, tiling = launch.problem, launch.tiling
    launch = launch_of(problem, tiling, device, resources_of(kernels_of(problem, tiling, device)[0], device))
    if launch.unfit:
        raise PlanError(launch.unfit)

    def prepared() -> Any:
        names = ("result_ptr", "dy_ptr", "y_ptr") if problem.backward else ("result_ptr", "x_ptr")
        result, x, *last = passed = operands(shape, problem.x_dtype, len(names), device)
        exact = x.double().softmax(1)
        for y in last:
            y.copy_(torch.softmax(y.float(), 1))
            exact = y.double() * (x.double() - (x.double() * y.double()).sum(1, True))
        kernels, named = loaded(problem, tiling, device), dict(zip(names, passed, strict=True))
        call = bind(launch, kernels, result.device)
        return partial(call, *map(named.get, kernels[0][0].operands)), result, exact

    name = f"{shape} {problem.x_dtype} {problem.backward}"
    return Timed(name, partial(cost, launch.work, limits_of(device)), median_us(prepared, device))


@triton.jit  # type: ignore[untyped-decorator]
def row_kernel(y, x, n_rows, n_cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """y = x / sqrt(mean(x * x)), in two passes over each row."""
    for row in tl.range(tl.program_id(0), n_rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * n_cols
        squares = tl.zeros((BLOCK,), tl.float32)
        for start in tl.range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            value = tl.load(x + at + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            squares += value * value
        scale = tl.rsqrt(tl.sum(squares, 0) / n_cols + 1e-6)
        for start in tl.range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            value = tl.load(x + at + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(y + at + cols, (value * scale).to(y.dtype.element_ty), mask=cols < n_cols)


def time_kernel(shape: tuple[int, int], dtype: str, block: int, num_warps: int, loops: bool, device: Device) -> Timed:
    """Compiles and times a launch of the row kernel, with a program for every row, or resident programs that loop over rows."""
    (n_rows, n_cols), size = shape, DTYPE_BYTES[dtype]
    options = {"BLOCK": block, "num_warps": num_warps}
    used, code = kernel_resources(shape, dtype, options, device)
    fit = device.vendor.occupancy(used, device.hardware)
    if not (resident := fit.programs_per_multiprocessor):
        raise PlanError(f"does not fit: {', '.join(fit.limited_by)}")
    programs = min(n_rows, device.resident(fit) or 1) if loops else n_rows
    at_once, blocks = min(VECTOR_BYTES / size, n_cols & -n_cols), -(-n_cols // block)
    loads = 2 * blocks * max(1, block / (num_warps * (device.hardware.warp_size or 1)) / at_once)
    clocks, chained = row_work(code, True, loads)
    work = Work(row=2 * n_cols * size, again=n_cols * size, element=size, row_operands=3, reductions=1, clocks=clocks)
    work = work._replace(elements=blocks * block, vector=at_once, blocks=blocks, steps=blocks, chained=chained, turns=n_rows)
    work = work._replace(programs=programs, resident=resident, warps=num_warps, spilled_bytes=used.spilled_bytes_per_thread)

    def prepared() -> Any:
        y, x = operands(shape, dtype, 2, device)
        scale = (x.double().square().mean(1, keepdim=True) + 1e-6).rsqrt()
        return partial(row_kernel[(programs,)], y, x, *shape, **options), y, x.double() * scale

    return Timed(f"kernel {shape} {dtype}", partial(cost, work, limits_of(device)), median_us(prepared, device))


def kernel_resources(shape: tuple[int, ...], dtype: str, options: dict[str, Any], device: Device) -> tuple[Any, list[Loop]]:
    """Compiles the row kernel, and returns what a program uses, KernelResources, and its machine code."""
    compiled = row_kernel.warmup(*operands(shape, dtype, 2, device), *shape, grid=(1,), **options)
    return device.vendor.resources(compiled), device.vendor.loops(compiled)


def operands(shape: tuple[int, ...], dtype: str, number: int, device: Device) -> list[torch.Tensor]:
    """Returns random operands on the device."""
    return [torch.randn(shape, dtype=getattr(torch, dtype), device=device.torch_name) for _ in range(number)]


def median_us(prepared: Callable[[], Any], device: Device) -> float:
    """Compares the result of a launch with that in float64, and returns its median time, with the L2 cache flushed."""
    call, result, exact = prepared()
    result.fill_(float("nan"))
    call()
    if not (error := float((result.double() - exact).abs().max() / exact.abs().max())) <= ROUNDING:
        raise PlanError(f"the result differs from float64 by {error:.3g} of its largest element")
    if device.index is None:
        return 1
    # Twice, as do_bench makes one call if the host stalls while it estimates their number.
    return min(float(do_bench(call, warmup=1, rep=6, return_mode="median")) for _ in range(2)) * 1e3
