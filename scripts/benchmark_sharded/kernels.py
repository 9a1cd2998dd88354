"""Times of the parts of a sharded log_softmax: kernels and collectives by themselves, and kernels with other tiles."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import torch
import torch.distributed as dist
from triton.testing import do_bench

from benchmark_sharded.providers import Given
from benchmark_sharded.timing import time_call
from portable_softmax import current_device
from portable_softmax.devices.policy import Step
from portable_softmax.distributed import exchange, steps
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime.compiled import resources_of
from portable_softmax.runtime.prepared import prepare
from portable_softmax.runtime.specialization import KernelSpec

WIDTHS = 2048, 4096, 8192, 16384, 32768  # columns of a tile
ELEMENTS = 16, 32  # elements of a tile for each thread
MATRICES = {("reduce", False): 1, ("reduce", True): 1, ("map", False): 2, ("map", True): 3}  # read or written; True: backward


def time_steps(given: Given, calls: int) -> list[dict[str, Any]]:
    """Times each step of a log_softmax of this rank's columns, forward and backward."""
    return list(_steps(given, calls))


def _steps(given: Given, calls: int) -> Iterator[dict[str, Any]]:
    world = dist.get_world_size()
    groups = (exchange.Group(dist.group.WORLD.group_name, world),) if dist.group.WORLD and world > 1 else ()
    x, dy = (each[:, given.part].contiguous() for each in (given.x, given.dy))
    out = torch.empty_like(x)
    for backward, a in ((False, x), (True, dy)):
        numbers = steps.reduce_shard(a, x, 1, x.dtype, "log_softmax", backward)

        def swap(numbers: torch.Tensor = numbers) -> torch.Tensor:
            return exchange.exchanged(numbers, groups)

        whole = swap()
        timed: dict[str, tuple[Callable[[], Any], int]] = {
            "reduce": (partial(steps.reduce_shard, a, x, 1, x.dtype, "log_softmax", backward), x.nbytes),
            "exchange": (swap, whole.nbytes),
            "map": (
                partial(steps.map_shard, a, x, whole, out, 1, "log_softmax", backward),
                MATRICES["map", backward] * x.nbytes,
            ),
        }
        for step, (call, moved) in timed.items():
            seconds = time_call(call, x.device, 3, 4 * calls)
            shape = {"n_rows": x.shape[0], "n_cols": x.shape[1]}
            yield {"step": step, "backward": backward, **shape, "us": 1e6 * seconds, "GB_per_s": moved / seconds / 1e9}


def time_tiles(shape: str, where: torch.device, end: float) -> list[dict[str, Any]]:
    """Times each kernel in tiles of WIDTHS, for one rank's columns; each rank takes some of them.

    Args:
        shape: ROWSxCOLS of all ranks together.
        where: this rank's device.
        end: time.monotonic() after which no more are started.
    """
    n_rows, n_cols = map(int, shape.split("x"))
    operands = [torch.randn(n_rows, n_cols // dist.get_world_size(), device=where, dtype=torch.bfloat16) for _ in range(3)]
    cases = list(itertools.product(get_args(Step), (False, True), WIDTHS, ELEMENTS))
    found = []
    for step, backward, width, elements in cases[dist.get_rank() :: dist.get_world_size()]:
        if width <= 1024 * elements and time.monotonic() < end:
            found.append(_time_tile(step, backward, width, elements, operands))
    everyones: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, found)
    return sorted(itertools.chain(*everyones), key=lambda case: (case["step"], case["backward"], case["us"]))


def _time_tile(step: Step, backward: bool, width: int, elements: int, operands: list[torch.Tensor]) -> dict[str, Any]:
    a, b, out = operands
    n_rows, n_cols = a.shape
    device = current_device(a.device.index)
    num_warps = width // elements // (device.hardware.warp_size or 1)
    problem = contiguous_problem(n_rows, n_cols, "bfloat16", "log_softmax", backward)
    spec = KernelSpec.of(dataclasses.replace(problem, step=step), Tiling(1, width, num_warps, 1, held=False, walk=False))
    second, vectors = b if backward else a, n_cols // problem.vector
    numbers = torch.full((1, 1 if backward else 2, n_rows), 10.0, device=a.device)
    given = (a, second, numbers) if step == "reduce" else (out, a, second, numbers)
    strides = 2 if step == "reduce" else 3
    nowhere = (1, *[0] * strides)
    sizes = n_rows, vectors, *[vectors] * strides, *nowhere, *nowhere, *([1] if step == "map" else [])
    launch = partial(prepare(spec, device, (n_rows, 1, 1), sizes), *given)
    us = 1e3 * do_bench(launch, warmup=5, rep=20, return_mode="median")
    case = {"step": step, "backward": backward, "tile_cols": width, "num_warps": num_warps, "us": us}
    case["GB_per_s"] = MATRICES[step, backward] * a.nbytes / us / 1e3
    return {**case, "registers": resources_of(spec, device).registers_per_thread}
