"""Makes an absent device the current one, for Triton and for torch, while files are imported or kernels compiled."""

import contextlib
import importlib
import re
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

from portable_softmax.devices import detect
from portable_softmax.devices.device import Device
from portable_softmax.runtime.compile import target_of
from portable_softmax.runtime.stand_ins import Handle, stand_in_module

# Names of facts that files and heuristics of kernels read from Triton's driver, and from torch.
PROPERTIES = {
    "max_shared_mem": "shared_memory_per_program_max",
    "multiprocessor_count": "multiprocessor_count",
    "warpSize": "warp_size",
    "max_num_regs": "registers_per_multiprocessor",
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


@contextlib.contextmanager
def absent(device: Device) -> Iterator[object]:
    """Makes Triton's driver name the device as the current one, and launch nothing; yields its key in Triton's caches.

    torch's queries of the current accelerator return its facts too, and only its backend of Triton is active.
    While it is entered, a thread that launches kernels gets an error: Triton has one driver for all threads.
    A device that is here is left to its own driver, and yields None.
    """
    from triton.backends import backends
    from triton.runtime import driver

    if device.detected is not None:
        yield None
        return
    with _one_at_a_time, contextlib.ExitStack() as replaced:
        replaced.enter_context(device.vendor.offline())
        before = dict(vars(driver))  # driver.active would create the real one, or fail
        base: Any = object
        for backend in backends.values():
            is_its = bool(backend.compiler.supports_target(target_of(device)))
            replaced.enter_context(mock.patch.object(backend.driver, "is_active", lambda is_its=is_its: is_its))
            base = backend.driver if is_its else base
        facts = {name: getattr(device.hardware, fact) for name, fact in PROPERTIES.items()}
        properties = {name: value for name, value in facts.items() if value is not None}
        properties |= device.vendor.driver_facts(device.hardware)
        arch = re.sub(r"^[a-z]+", "", str(device.arch))  # digits, the last one or two of which are the minor release
        minor = 2 if isinstance(device.arch, str) else 1
        capability = (int(arch[:-minor]), int(arch[-minor], 16)) if arch[:-minor].isdigit() else (0, 0)
        key = object()
        driver.set_active(_driver(device, base, key, properties, capability))
        replaced.enter_context(mock.patch.object(detect, "current_device", return_value=device))  # which `fits` asks
        if torch := sys.modules.get("torch"):
            _answer(torch, device, properties, capability, replaced)
        try:
            yield key
        finally:
            vars(driver).update(before)


def _driver(device: Device, base: type, key: object, properties: dict[str, Any], capability: tuple[int, int]) -> Any:
    """Returns a driver with the methods that Triton and modules with kernels call before a launch."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("nothing can be launched: the device is not here")

    target, kind = target_of(device), device.vendor.torch_device_type
    methods = {
        "get_current_target": lambda *_: target,
        "get_current_device": lambda *_: key,
        "get_current_stream": lambda *_, **__: 0,
        "get_device_capability": lambda *_: capability,
        "get_device_interface": lambda *_: getattr(importlib.import_module("torch"), kind),
        "get_active_torch_device": lambda *_: importlib.import_module("torch").device(kind, 0),
        "get_benchmarker": lambda *_: refuse,  # @triton.autotune of 3.2 and 3.3 reads it when it decorates
        "launcher_cls": refuse,
        "utils": SimpleNamespace(get_device_properties=lambda *_: properties),
    }
    return object.__new__(type("AbsentDriver", (base,), methods))


def _answer(
    torch: Any, device: Device, properties: dict[str, Any], capability: tuple[int, int], replaced: contextlib.ExitStack
) -> None:
    """Makes torch's queries of the current accelerator return the device's facts."""
    patterns = getattr(device.profile.product, "matches", ())
    name = re.sub(r"\|[^)]*|(?<!\\)[()?]|\\|\.\*", "", next(iter(patterns), device.name))  # as the runtime reports it
    kind = device.vendor.torch_device_type
    if lacks_kind := not hasattr(torch, kind):  # which a vendor's extension of torch adds
        replaced.enter_context(mock.patch.object(torch, kind, stand_in_module(f"torch.{kind}"), create=True))
    known = {"name": name, "gcnArchName": str(device.arch), "major": capability[0], "minor": capability[1]}
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "current_accelerator": SimpleNamespace(type=kind, index=None),
        "get_device_capability": capability,
        "get_device_name": name,
        "get_device_properties": SimpleNamespace(**properties, **known),
        "current_stream": Handle(),
        **dict.fromkeys(("set_device", "synchronize")),
    }
    if lacks_kind:
        vars(getattr(torch, kind)).update(answers)  # all of them are patched
    for where in filter(None, (getattr(torch, kind), getattr(torch, "accelerator", None))):
        for question in answers.keys() & vars(where).keys():
            patched = mock.patch.object(where, question, lambda *_, value=answers[question], **__: value)
            replaced.enter_context(patched)
    for name in ("Stream", "Event"):
        replaced.enter_context(mock.patch.object(getattr(torch, kind), name, Handle, create=True))
    if device.backend in vars(torch.version):
        toolkit = getattr(torch.version, device.backend) or TOOLKIT
        replaced.enter_context(mock.patch.object(torch.version, device.backend, toolkit))
