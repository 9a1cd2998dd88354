"""Makes an absent device the current one of Triton, torch, and files with kernels."""

import contextlib
import importlib
import re
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from portable_softmax.devices.device import Device
from portable_softmax.devices.schema import Hardware
from portable_softmax.runtime.compiler import target_of

# Names of facts that files and heuristics of kernels read from Triton's driver, and from torch.
PROPERTIES = {
    "max_shared_mem": "shared_memory_per_program_max",
    "multiprocessor_count": "multiprocessor_count",
    "warpSize": "warp_size",
    "max_num_regs": "registers_per_multiprocessor",
}
TORCH_PROPERTIES = {
    "multi_processor_count": "multiprocessor_count",
    "warp_size": "warp_size",
    "shared_memory_per_block": "shared_memory_per_program_max",
    "shared_memory_per_block_optin": "shared_memory_per_program_max",
    "shared_memory_per_multiprocessor": "shared_memory_per_multiprocessor",
    "regs_per_multiprocessor": "registers_per_multiprocessor",
    "total_memory": "memory_bytes",
    "L2_cache_size": "l2_cache_bytes",
}
TOOLKIT = "12.8"  # release that torch.version reports, where this torch is built for no accelerator
_one_at_a_time = threading.RLock()  # Triton has one active driver for all threads


def front_end(device: Device) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which Triton makes at least its own IR for a device that is not here."""
    return device.vendor.front_end() if device.detected is None else contextlib.nullcontext()


@contextlib.contextmanager
def absent(device: Device) -> Iterator[object]:
    """Makes Triton's driver name the device as the current one, and launch nothing; yields its key in Triton's caches.

    torch's queries of the current accelerator return its facts too, and only its backend of Triton is active.
    While it is entered, a thread that launches kernels gets an error: Triton has one driver for all threads.
    """
    from triton.runtime import driver

    with _one_at_a_time, contextlib.ExitStack() as replaced:
        key = object()
        before = dict(vars(driver))  # driver.active would create the real one, or fail
        kind = _backend_driver(device, replaced)
        active: Any = object.__new__(type("AbsentDriver", (_AbsentDriver, kind) if kind else (_AbsentDriver,), {}))
        active.tell_of(target_of(device), device, key)
        driver.set_active(active)
        if torch := sys.modules.get("torch"):
            _answer(torch, device, replaced)
        try:
            yield key
        finally:
            vars(driver).update(before)


def _backend_driver(device: Device, replaced: contextlib.ExitStack) -> Any:
    """Makes the drivers of Triton's backends active or not, and returns that of the device's backend; None without one."""
    from triton.backends import backends

    active = None
    for backend in backends.values():
        is_its = bool(backend.compiler.supports_target(target_of(device)))
        replaced.enter_context(mock.patch.object(backend.driver, "is_active", lambda is_its=is_its: is_its))
        active = backend.driver if is_its else active
    return active


def _answer(torch: Any, device: Device, replaced: contextlib.ExitStack) -> None:
    """Makes torch's queries of the current accelerator return the device's facts."""
    kind = device.vendor.torch_device_type
    if (module := getattr(torch, kind, None)) is None:
        return
    properties: dict[str, Any] = _properties(device.hardware, TORCH_PROPERTIES)
    arch = re.sub(r"^[a-z]+", "", str(device.arch))  # digits, the last one or two of which are the minor release
    minor = 2 if isinstance(device.arch, str) else 1
    capability = (int(arch[:-minor]), int(arch[-minor], 16)) if arch[:-minor].isdigit() else (0, 0)
    properties |= {"name": _reported(device), "gcnArchName": str(device.arch), "major": capability[0], "minor": capability[1]}
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "current_accelerator": torch.device(kind),
        "get_device_capability": capability,
        "get_device_name": properties["name"],
        "get_device_properties": SimpleNamespace(**properties),
    }
    for where in filter(None, (module, getattr(torch, "accelerator", None))):
        for name in answers.keys() & vars(where).keys():
            patched = mock.patch.object(where, name, lambda *_, value=answers[name], **__: value)
            replaced.enter_context(patched)
    if device.backend in vars(torch.version):
        toolkit = getattr(torch.version, device.backend) or TOOLKIT
        replaced.enter_context(mock.patch.object(torch.version, device.backend, toolkit))


def _reported(device: Device) -> str:
    """Returns the name that the runtime reports, by its profile's patterns: first alternatives, and what is optional."""
    patterns = device.profile.product.matches if device.profile.product else ()
    names = [(re.sub(r"(?<!\\)\(([^()|]*)[^()]*\)\??|\.\*?$|\\", r"\1", pattern), pattern) for pattern in patterns]
    return next((name for name, pattern in names if re.fullmatch(pattern, name)), device.name.replace("/", " "))


class _AbsentDriver:
    """Has the methods of a driver that Triton and modules with kernels call before a launch."""

    def tell_of(self, target: Any, device: Device, key: object) -> None:
        """Sets what they return."""
        self.get_current_target = lambda: target
        self.get_current_device = lambda: key
        self.get_current_stream = lambda device=None: 0
        self.get_device_capability = lambda *_: (target.arch // 10, target.arch % 10) if type(target.arch) is int else (0, 0)
        self.get_device_interface = lambda: getattr(importlib.import_module("torch"), device.vendor.torch_device_type)
        self.get_active_torch_device = lambda: importlib.import_module("torch").device(device.vendor.torch_device_type, 0)
        self.get_benchmarker = lambda: self.launcher_cls  # @triton.autotune of 3.2 and 3.3 asks when it decorates
        properties = _properties(device.hardware, PROPERTIES)
        self.utils = SimpleNamespace(get_device_properties=lambda index=None: properties)

    def launcher_cls(self, *_: Any, **__: Any) -> Any:
        """Refuses a launch."""
        raise RuntimeError("nothing can be launched: the device is not here")


def _properties(hardware: Hardware, names: dict[str, str]) -> dict[str, Any]:
    properties = {name: getattr(hardware, fact) for name, fact in names.items()}
    return {name: value for name, value in properties.items() if value is not None}
