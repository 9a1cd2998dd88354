"""Time of a call that all ranks make together: the time of the slowest rank."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist


def time_call(call: Callable[[], Any], where: torch.device, turns: int, calls: int) -> float:
    """Returns the seconds of a call: the median over turns of the mean over `calls`, on the slowest rank."""
    return slowest(statistics.median(_turn(call, where, calls) for _ in range(turns)), where)


def slowest(seconds: float, where: torch.device) -> float:
    """Returns the largest number of any rank."""
    most = torch.tensor([seconds], device=where, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most.item())


def _turn(call: Callable[[], Any], where: torch.device, calls: int) -> float:
    call()
    dist.barrier()
    if where.type == "cpu":
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - began) / calls
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    for _ in range(calls):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / calls
