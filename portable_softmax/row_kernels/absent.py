"""Makes Triton, and the files of kernels, take a device that is not here for the current one."""

import contextlib
import importlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.devices.schema import Hardware
from portable_softmax.runtime.compiler import target_of

# Triton's words for facts, which kernels' files and heuristics ask its driver for.
PROPERTIES = {
    "max_shared_mem": "shared_memory_per_program_max",
    "multiprocessor_count": "multiprocessor_count",
    "warpSize": "warp_size",
    "max_num_regs": "registers_per_multiprocessor",
}
_one_at_a_time = threading.RLock()  # Triton has one active driver for all threads


def front_end(device: Device) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which Triton makes at least its own IR for a device that is not here."""
    return device.vendor.front_end() if device.detected is None else contextlib.nullcontext()


@contextlib.contextmanager
def absent(device: Device) -> Iterator[object]:
    """Makes Triton's driver name the device as the current one, and launch nothing; yields its key in Triton's caches.

    While it is entered, a thread that launches kernels gets an error: Triton has one driver for all threads.
    """
    from triton.runtime import driver

    with _one_at_a_time:
        key = object()
        before = dict(vars(driver))  # to ask for driver.active would make the real one, or fail
        driver.set_active(_AbsentDriver(target_of(device), device, key))
        try:
            yield key
        finally:
            vars(driver).update(before)


class _AbsentDriver:
    """Answers what Triton, and modules with kernels, ask a driver before a launch."""

    def __init__(self, target: Any, device: Device, key: object) -> None:
        self.get_current_target = lambda: target
        self.get_current_device = lambda: key
        self.get_current_stream = lambda device=None: 0
        self.get_device_interface = lambda: getattr(importlib.import_module("torch"), device.vendor.torch_device_type)
        self.get_active_torch_device = lambda: importlib.import_module("torch").device(device.vendor.torch_device_type, 0)
        self.get_benchmarker = lambda: self.launcher_cls  # @triton.autotune of 3.2 and 3.3 asks when it decorates
        self.utils = SimpleNamespace(get_device_properties=lambda index=None: _properties(device.hardware))

    def launcher_cls(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("nothing can be launched: the device is not here")


def _properties(hardware: Hardware) -> dict[str, int]:
    told = {name: getattr(hardware, fact) for name, fact in PROPERTIES.items()}
    return {name: value for name, value in told.items() if value is not None}
