"""The current device, as torch and the vendor's runtime have one in each thread: launches and allocations are on it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar

from portable_softmax.devices.device import Device

Result = TypeVar("Result")


class Guard(NamedTuple):
    """Two functions: one tells whether a device is the current one, the other makes a context in which it is."""

    is_current: Callable[[], bool]
    made_current: Callable[[], AbstractContextManager[Any]]


def guard_of(device: Device) -> Guard:
    """Returns the guard of a device; the one of a device that is not here, or of the interpreter, does nothing."""
    kind, index = device.vendor.torch_device_type, device.index
    if index is None:
        return Guard(lambda: True, nullcontext)
    import torch

    module = getattr(torch, kind)
    # The quicker of two ways to ask: there are tensors, so torch has initialised the type.
    current_index: Callable[[], int] = getattr(torch._C, f"_{kind}_getDevice", module.current_device)
    return Guard(lambda: current_index() == index, lambda: module.device(index))


def on_device(call: Callable[..., Result], device: Device) -> Callable[..., Result]:
    """Returns a call that makes the device the current one, where another is."""
    is_current, made_current = guard_of(device)

    def there(*given: Any) -> Result:
        if is_current():
            return call(*given)
        with made_current():
            return call(*given)

    return there
