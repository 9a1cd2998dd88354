"""Times of the parts of a sharded log_softmax: kernels and collectives by themselves."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from benchmark_sharded.providers import Given
from benchmark_sharded.timing import time_call
from portable_softmax.distributed import exchange, steps

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
