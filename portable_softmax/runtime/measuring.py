"""Times launches on the current device, with the L2 cache flushed, on copies of what they store to."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.bind import bind, loaded
from portable_softmax.runtime.kernel import Kernel, kernels_of

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
    module = getattr(torch, device.vendor.torch_device_type)
    return hasattr(module, "is_current_stream_capturing") and bool(module.is_current_stream_capturing())


def timed(calls: Sequence[Callable[[], Any]], device: Device, restore: Callable[[], None] = lambda: None) -> list[list[float]]:
    """Returns the median microseconds of calls that launch a kernel, by round and call, with the L2 cache flushed.

    Every call follows `restore`, which restores the tensors that it changes: others may not be valid as its inputs.
    """
    module = getattr(torch, device.vendor.torch_device_type)
    where = torch.device(device.vendor.torch_device_type, module.current_device())
    flushed = torch.empty(FLUSHED * (device.hardware.l2_cache_bytes or L2_BYTES), dtype=torch.int8, device=where)
    for call in calls:
        restore()
        call()
    events = [[[[module.Event(enable_timing=True) for _ in "01"] for _ in calls] for _ in range(TIMES)] for _ in range(ROUNDS)]
    for pairs in (pair for turns in events for pair in turns):
        for call, (start, end) in zip(calls, pairs, strict=True):
            restore()
            flushed.zero_()
            start.record()
            call()
            end.record()
    module.synchronize()
    of_calls = (zip(*turns, strict=True) for turns in events)
    return [[1e3 * statistics.median(start.elapsed_time(end) for start, end in pairs) for pairs in calls] for calls in of_calls]


def on_copies(named: Mapping[str, Any], names: Iterable[str]) -> tuple[dict[str, Any], Callable[[], None]]:
    """Returns arguments with copies of all memory of those with such names, and a function that copies it again.

    Raises:
        OutOfMemoryError: there is no room.
    """
    owned = {named[name].untyped_storage().data_ptr(): named[name].untyped_storage() for name in names}
    copies = {start: storage.clone() for start, storage in owned.items()}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.untyped_storage().data_ptr() not in copies:
            return value
        storage = copies[value.untyped_storage().data_ptr()]
        empty = torch.empty(0, dtype=value.dtype, device=value.device)
        return empty.set_(storage, value.storage_offset(), value.shape, value.stride())

    def restore() -> None:
        for start, storage in owned.items():
            copies[start].copy_(storage, non_blocking=True)

    return {name: copied(value) for name, value in named.items()}, restore


def time_softmaxes(launches: Sequence[LaunchPlan], problem: Problem, device: Device) -> list[list[float]] | str:
    """Returns the microseconds of launches of a contiguous problem by round; or why nothing is timed."""
    if problem.batch_invariant:
        return "bits may not depend on the number of rows"
    if is_capturing(device):
        return "a stream captures"
    where, calls = torch.device(device.vendor.torch_device_type, device.index or 0), []
    try:
        operands = operands_of(kernels_of(launches[0].problem, launches[0].tiling, device)[0], problem, where)
        for launch in launches:
            sized = launch.resized(problem)
            calls.append(partial(bind(sized, loaded(sized.problem, sized.tiling, device), where, SIZES), *operands))
        return timed(calls, device)
    except torch.OutOfMemoryError:
        return "there is no memory for its operands"


def operands_of(kernel: Kernel, problem: Problem, where: torch.device) -> list[Any]:
    """Returns the tensors of a launch: contiguous, and of random numbers where they are read."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("ids_ptr", "out_ptr", "d_out_ptr"), (problem.n_rows,))
    if problem.log_probs:
        shapes["statistics_ptr"] = (problem.log_probs.n_statistics, problem.n_rows)
    operands = list[Any]()
    for name in kernel.operands:
        if (kind := kernel.types.get(name)) is None:
            operands.append(None)
            continue
        shape = shapes.get(name, (problem.n_rows, problem.n_cols))
        operands.append(torch.zeros(shape, dtype=DTYPES[kind.removesuffix(":16")], device=where))
        if name not in ("ids_ptr", "statistics_ptr"):
            operands[-1].normal_()
    return operands
