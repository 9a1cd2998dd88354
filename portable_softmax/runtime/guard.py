"""The current device of a thread, of torch and of the vendor's runtime, which launches and allocations use."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

from portable_softmax.devices.device import Device

Result = TypeVar("Result")


class Guard(NamedTuple):
    """Functions that return the current device, and make a certain device the current one.

    Args:
        current: returns the number of the current device.
        number: the certain device's own.
        made_current: makes a context in which it is the current one.
    """

    current: Callable[[], int | None]
    number: int | None
    made_current: Callable[[], AbstractContextManager[Any]]


def guard_of(device: Device) -> Guard:
    """Returns the guard of a device; the one of a device that is not here, or of the interpreter, does nothing."""
    kind, index = device.vendor.torch_device_type, device.index
    if index is None:
        return Guard(lambda: None, None, nullcontext)
    import torch

    module = getattr(torch, kind)
    # The quicker of two functions: there are tensors, so torch has initialised the type.
    current: Callable[[], int] = getattr(torch._C, f"_{kind}_getDevice", module.current_device)
    return Guard(current, index, lambda: module.device(index))


def guarded(call: Callable[..., Result], device: Device) -> Callable[..., Result]:
    """Returns a call of launches and allocations while the device is the current one; a single device always is."""
    import torch

    current, number, made_current = guard_of(device)
    if number is None or getattr(torch, device.vendor.torch_device_type).device_count() == 1:
        return call

    def on_device(*arguments: Any, **named: Any) -> Result:
        if current() == number:
            return call(*arguments, **named)
        with made_current():
            return call(*arguments, **named)

    return on_device
