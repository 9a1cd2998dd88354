"""Makes an absent device the current one, for Triton and for torch, while files are imported or kernels compiled."""

import contextlib
import importlib
import importlib.machinery
import inspect
import pkgutil
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from portable_softmax.devices import detect
from portable_softmax.devices.device import Device
from portable_softmax.runtime.compile import target_of

# Names of facts that files and heuristics of kernels read from Triton's driver, and from torch.
PROPERTIES = {
    "shared_memory_per_program_max": ("max_shared_mem", "shared_memory_per_block_optin"),
    "registers_per_multiprocessor": ("max_num_regs",),
    "multiprocessor_count": ("multiprocessor_count", "multi_processor_count"),
    "warp_size": ("warpSize", "warp_size"),
    "memory_bytes": ("total_memory",),
    "l2_cache_bytes": ("L2_cache_size",),
}
TOOLKIT = "12.8"  # release that torch.version reports, where this torch is built for no accelerator
_one_at_a_time = threading.RLock()  # Triton has one active driver for all threads


@contextlib.contextmanager
def absent(device: Device) -> Iterator[object]:
    """Makes Triton's driver name the device as the current one, and launch nothing; yields its key in Triton's caches.

    torch's queries of the current accelerator return its facts too, and only its backend of Triton is active. While it is
    entered, a thread that launches kernels gets an error. A device that is here is left to its own driver, and yields None.
    """
    from triton.backends import backends
    from triton.runtime import driver

    if device.detected is not None:
        yield None
        return
    key, target, facts, base = object(), target_of(device), _facts(device), None
    refuse = mock.Mock(side_effect=RuntimeError("nothing can be launched: the device is not here"))
    results: dict[str, Any] = {"get_current_target": target, "get_current_device": key, "get_current_stream": 0}
    results |= {"get_device_capability": (facts["major"], facts["minor"]), "get_benchmarker": refuse}
    utils = mock.Mock(get_device_properties=mock.Mock(return_value=facts))
    with _one_at_a_time, contextlib.ExitStack() as replaced:
        replaced.enter_context(device.vendor.offline())
        for backend in backends.values():
            is_its = bool(backend.compiler.supports_target(target))
            replaced.enter_context(mock.patch.object(backend.driver, "is_active", return_value=is_its))
            if is_its:
                base = backend.driver
        replaced.callback(vars(driver).update, dict(vars(driver)))  # driver.active would create the real one, or fail
        queries = {name: mock.Mock(return_value=result) for name, result in results.items()}
        driver.set_active(mock.Mock(spec=base, launcher_cls=refuse, utils=utils, **queries))
        replaced.enter_context(mock.patch.object(detect, "current_device", return_value=device))  # which `fits` asks
        if torch := sys.modules.get("torch"):
            _replace_queries(torch, device, facts, replaced)
        yield key


def _facts(device: Device) -> dict[str, Any]:
    """Returns what Triton's driver, and torch, report of the device by their names."""
    # The last digit of an architecture's number, or the last two of its name, is the minor one.
    digits, minor = re.sub(r"^[a-z]+", "", str(device.arch)), 2 if isinstance(device.arch, str) else 1
    major, minor = (int(digits[:-minor]), int(digits[-minor], 16)) if digits[:-minor].isdigit() else (0, 0)
    name = re.sub(r"\|[^)]*|(?<!\\)[()?]|\\|\.\*", "", next(iter(device.profile.matches), device.name))  # as the runtime does
    known = [(names, getattr(device.hardware, fact)) for fact, names in PROPERTIES.items()]
    facts = {name: value for names, value in known if value is not None for name in names}
    facts |= {name: (device.hardware.multiprocessor_count or 0) // number for name, number in device.vendor.core_names.items()}
    return facts | {"name": name, "gcnArchName": str(device.arch), "major": major, "minor": minor}


def _replace_queries(torch: Any, device: Device, facts: Mapping[str, Any], replaced: contextlib.ExitStack) -> None:
    """Makes torch's queries of the current accelerator return the device's facts."""
    kind, properties = device.vendor.torch_device_type, SimpleNamespace(**facts)
    results: dict[str, Any] = {"is_available": True, "device_count": 1, "current_device": 0, "current_stream": StandIn()}
    results |= {"current_accelerator": SimpleNamespace(type=kind, index=None), "set_device": None, "synchronize": None}
    results |= {"get_device_capability": (facts["major"], facts["minor"]), "get_device_name": facts["name"]}
    results |= {"get_device_properties": properties}
    queries: dict[str, Any] = {name: mock.Mock(return_value=result) for name, result in results.items()}
    queries |= {"Stream": StandIn, "Event": StandIn}
    if not hasattr(torch, kind):  # which a vendor's extension of torch adds
        replaced.enter_context(mock.patch.object(torch, kind, StandIn(f"torch.{kind}", **queries), create=True))
    for module in (getattr(torch, kind), torch.accelerator):
        known = {name: queries[name] for name in queries.keys() & vars(module).keys()}
        replaced.enter_context(mock.patch.multiple(module, **known))
    if device.backend in vars(torch.version):
        toolkit = getattr(torch.version, device.backend) or TOOLKIT
        replaced.enter_context(mock.patch.object(torch.version, device.backend, toolkit))


class StandIn(ModuleType):
    """A module, class, function, stream or driver that is not here: other attributes than known ones are stand-ins too."""

    __triton_builtin__ = True  # what kernels of Triton may name; it reads the signature of what they call
    signature = inspect.Signature()

    def __init__(self, name: Any = "a stream or event", /, *_: Any, **known: Any) -> None:
        super().__init__(str(name))
        vars(self).update(known, __path__=[])  # of a package

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(f"{self.__name__} has no attribute {name!r}")
        return StandIn(f"{self.__name__}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Returns the function that it decorates, or itself; raises NotImplementedError if a kernel calls it."""
        if any(type(value).__module__.startswith("triton.language") for value in arguments):
            raise NotImplementedError(f"{self.__name__} is not installed, and this Triton does not compile it")
        if len(arguments) == 1 and (inspect.isfunction(arguments[0]) or hasattr(arguments[0], "arg_names")):
            return arguments[0]  # a function, or one of Triton
        return self


@contextlib.contextmanager
def importable(modules: Mapping[str, str]) -> Iterator[None]:
    """Lets modules be imported that are not installed, and all below them: by name, with the module that answers, or ""."""

    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        if any(f"{name}.".startswith(f"{root}.") for root in modules):
            return importlib.machinery.ModuleSpec(name, finder, is_package=True)
        return None

    def create_module(spec: Any) -> StandIn:
        answers: Any = SimpleNamespace(__name__=spec.name)
        if modules.get(spec.name):
            answers = pkgutil.resolve_name(modules[spec.name])
        known = {name: value for name, value in vars(answers).items() if not name.startswith("__")}
        return StandIn(answers.__name__, **known)  # Triton replaces libdevice by its name

    def exec_module(module: Any) -> None:
        for child in modules:
            if child.rpartition(".")[0] == module.__spec__.name:
                importlib.import_module(child)

    finder: Any = SimpleNamespace(find_spec=find_spec, create_module=create_module, exec_module=exec_module)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if getattr(module, "__loader__", None) is finder]:
            parent, _, child = name.rpartition(".")
            vars(sys.modules.get(parent, ModuleType(""))).pop(child, None)
            del sys.modules[name]
