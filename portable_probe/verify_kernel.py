"""Runs somebody's kernel by its case, on a device that is here or in the interpreter, and compares what comes out."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import torch

from portable_probe.closeness import Distance, allowed_of_any, distance, same
from portable_probe.kernel_case import KernelCase
from portable_probe.report_types import Verified
from portable_probe.trial import outcome
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError
from portable_softmax.row_kernels.decorators import decorated

LONGEST = 60.0  # seconds that a launch may take


def verify_case(case: KernelCase, run: Callable[[], dict[str, Any]]) -> Verified:
    """Runs a case, and compares its tensors with what is expected of them.

    Args:
        case: the arguments, and what is expected.
        run: runs the kernel on the case's own tensors, and returns what more is to be told of it.

    Returns:
        The distance. An error is allowed that torch.testing.assert_close allows; `overwritten` counts elements of the tensors
        that should stay as they are.

    Raises:
        ValueError: a tensor that is expected is none of the arguments, or nothing is expected.
    """
    if not case.expected:
        raise ValueError("the case expects nothing, so there is nothing to verify: (grid, arguments, {NAME: tensor})")
    tensors = {name: value for name, value in case.arguments.items() if isinstance(value, torch.Tensor)}
    if unknown := case.expected.keys() - tensors.keys():
        raise ValueError(f"the case expects {', '.join(sorted(unknown))}, which are no tensors among its arguments")
    for name, expected in case.expected.items():
        if expected.shape != tensors[name].shape:
            raise ValueError(f"{name} is {list(tensors[name].shape)}, and {list(expected.shape)} is expected of it")
    before = {name: tensor.clone() for name, tensor in tensors.items() if name not in case.expected}
    told = run()
    found = {name: _distance(tensors[name], expected) for name, expected in case.expected.items()}
    changed = sum(int((~same(tensors[name], kept)).sum()) for name, kept in before.items())
    name, worst = max(found.items(), key=lambda each: each[1].worst)
    whole = worst._replace(error=max(each.error for each in found.values()))
    worst_at = f"{name}{list(worst.at)}" if worst.worst > 1 else msgspec.UNSET
    return msgspec.structs.replace(outcome(whole, changed), worst_at=worst_at, **told)


def run_here(kernel: Any, config: int | None, options: Mapping[str, Any], case: KernelCase, device: Device) -> dict[str, Any]:
    """Launches a kernel on copies of a case's tensors, and copies what they hold back; there is no more to tell.

    Args:
        kernel: the @triton.jit function, with its decorators.
        config: number of one of the configurations of @triton.autotune.
        options: of Triton's backend, that win over those of the case.
        case: the launch.
        device: where it runs: one that is here, or the interpreter.

    Raises:
        ValueError: there are several configurations and none was chosen, or no such one.
        DeviceError: the launch has not ended after LONGEST seconds, or fails.
    """
    given = {**case.arguments, **options}
    outermost, _ = decorated(kernel, config, given.keys(), {})
    kind = device.vendor.torch_device_type
    where = torch.device(kind, device.index) if device.index is not None else torch.device(kind)
    module = getattr(torch, kind)
    on_device = placed(given, where)
    with contextlib.nullcontext() if device.index is None else module.device(device.index):
        try:
            outermost[case.grid](**on_device)
            if device.index is not None:
                _wait(module)
        except DeviceError:
            raise
        except Exception as error:  # Triton, and kernels that Python interprets, have exceptions of all kinds
            raise DeviceError(f"the launch fails: {type(error).__name__}: {error}") from error
    for name, value in given.items():
        if isinstance(value, torch.Tensor) and on_device[name] is not value:
            value.copy_(on_device[name])
    return {}


def placed(arguments: Mapping[str, Any], where: torch.device) -> dict[str, Any]:
    """Returns arguments whose tensors lie on a device as they lie in this machine's memory, shared memory shared."""
    memories: dict[int, torch.Tensor] = {}

    def on_device(value: Any) -> Any:
        if isinstance(getattr(value, "base", None), torch.Tensor) and not isinstance(value, torch.Tensor):  # a descriptor
            return dataclasses.replace(value, base=on_device(value.base))
        if not isinstance(value, torch.Tensor) or value.device.type == where.type:
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in memories:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            memories[storage.data_ptr()] = whole.to(where)
        memory = memories[storage.data_ptr()].untyped_storage()
        place = value.storage_offset(), value.size(), value.stride()
        return torch.empty(0, dtype=value.dtype, device=where).set_(memory, *place)

    return {name: on_device(value) for name, value in arguments.items()}


def _wait(module: Any) -> None:
    """Waits until the launch has ended."""
    event, begun = module.Event(), time.monotonic()
    event.record()
    while not event.query():
        if time.monotonic() - begun > LONGEST:
            raise DeviceError(f"the kernel has not ended after {LONGEST:g} seconds; end this process")
        time.sleep(0.001)


def _distance(result: torch.Tensor, expected: torch.Tensor) -> Distance:
    exact = expected.double()
    return distance(result, exact, allowed_of_any(exact, result.dtype))
