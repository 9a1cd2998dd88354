"""Times launches on the current device, with the L2 cache flushed, on copies of what they store to."""

import copy
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.bind import bind
from portable_softmax.runtime.compile import loaded
from portable_softmax.runtime.kernel import Kernel

ROUNDS, TIMES = 2, 5  # in every round every launch is timed so often, in turn
FLUSHED = 2  # times the bytes of the L2 cache that are written before a launch is timed
L2_BYTES = 2**26  # of a device that reports none
SIZES = {"n_ids": 1, "ignored": -100}  # of a launch of log-probabilities
DTYPES = {"*i64": torch.int64, "*fp32": torch.float32, "*fp16": torch.float16, "*bf16": torch.bfloat16}


def check_measure(count: object) -> None:
    """Raises TypeError unless `measure=` is None, or a number of launches that can be compared."""
    if count is not None and (type(count) is not int or count < 2):
        raise TypeError(f"measure should be the number of launches that are timed, at least 2, or None, not {count!r}")


def is_capturing(device: Device) -> bool:
    """True if launches on the current stream are captured into a graph."""
    return bool(getattr(getattr(torch, device.vendor.torch_device_type), "is_current_stream_capturing", bool)())


def timed(calls: Sequence[Callable[[], Any]], device: Device, restore: Callable[[], None] = lambda: None) -> list[list[float]]:
    """Returns the median microseconds of calls that launch a kernel, by round and call, with the L2 cache flushed.

    Every call follows `restore`, which restores the tensors that it changes: others may not be valid as its inputs.
    """
    module, size = getattr(torch, device.vendor.torch_device_type), device.hardware.l2_cache_bytes or L2_BYTES
    flushed = torch.empty(FLUSHED * size, dtype=torch.int8, device=device.vendor.torch_device_type)
    for call in calls:
        restore()
        call()
    turns = [*itertools.product(range(ROUNDS), range(TIMES), range(len(calls)))]
    events = {turn: (module.Event(enable_timing=True), module.Event(enable_timing=True)) for turn in turns}
    for turn, (start, end) in events.items():
        restore()
        flushed.zero_()
        start.record()
        calls[turn[-1]]()
        end.record()
    module.synchronize()
    us = {turn: 1e3 * start.elapsed_time(end) for turn, (start, end) in events.items()}
    return [[statistics.median(us[a, b, c] for b in range(TIMES)) for c in range(len(calls))] for a in range(ROUNDS)]


def on_copies(named: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[[], None]]:
    """Returns arguments with copies of all memory of tensors, and a function that copies it again.

    Raises:
        OutOfMemoryError: there is no room.
    """
    originals = {name: value.detach() for name, value in named.items() if isinstance(value, torch.Tensor)}
    copies = copy.deepcopy(originals)  # of one memory for all that share it

    def restore() -> None:
        for name, original in originals.items():
            copies[name].untyped_storage().copy_(original.untyped_storage(), non_blocking=True)

    return {**named, **copies}, restore


def time_softmaxes(launches: Sequence[LaunchPlan], problem: Problem, device: Device) -> list[list[float]] | str:
    """Returns the microseconds of launches of a contiguous problem by round; or why nothing is timed."""
    if is_capturing(device):
        return "a stream captures"
    where, launches = torch.device(device.torch_name), [launch.resized(problem) for launch in launches]
    try:
        kernels = [loaded(launch.problem, launch.tiling, device) for launch in launches]
        (kernel, _), *_ = kernels[0]
        operands = operands_of(kernel, problem, where)
        calls = [partial(bind(*launched, where, SIZES), *operands) for launched in zip(launches, kernels, strict=True)]
        return timed(calls, device)
    except torch.OutOfMemoryError:
        return "there is no memory for its operands"


def operands_of(kernel: Kernel, problem: Problem, where: torch.device) -> list[Any]:
    """Returns the tensors of a launch: contiguous, and of random numbers."""
    shapes = {**dict.fromkeys(("ids_ptr", "out_ptr", "d_out_ptr"), (problem.n_rows,)), "statistics_ptr": (3, problem.n_rows)}
    operands: dict[str, Any] = dict.fromkeys(kernel.operands)
    for name in operands.keys() & kernel.types.keys():
        dtype, shape = DTYPES[kernel.types[name].removesuffix(":16")], shapes.get(name, (problem.n_rows, problem.n_cols))
        operands[name] = torch.zeros(shape, dtype=dtype, device=where)
        if dtype.is_floating_point:
            operands[name].normal_()
    return [*operands.values()]
