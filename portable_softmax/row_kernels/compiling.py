"""Compiles kernels for a device, here or not, as a launch does: by `run(..., warmup=True)` of the outermost decorator."""

import contextlib
import copy
import functools
import importlib
import itertools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest import mock

from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PortableSoftmaxError
from portable_softmax.row_kernels.decorators import apart, configurations, decorated, jit_function, layers
from portable_softmax.runtime.compiler import target_of, target_to_compile_for, triton_version

UNEXPLAINED = "PassManager::run failed", "error encountered during parsing"  # errors of MLIR, which writes why to stderr
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


def compiled_for(
    kernel: Any, configs: Sequence[Any], values: Mapping[str, Any], device: Device, unknown: Collection[str] = ()
) -> list[Any]:
    """Returns the compiled kernels of configurations for a device, here or not, or the errors that Triton raises.

    Values are arguments and options by name, which win over a configuration's. A configuration is None for a kernel without.
    A decorator that reads an argument of an unknown value raises KeyError.

    Raises:
        CompileError: this Triton does not compile for the device.
    """
    jit, is_tuned = jit_function(kernel), bool(configurations(kernel))
    kept = [{} if is_tuned or config is None else config.all_kwargs() for config in configs]
    passed = [{name: apart(value) for name, value in {**own, **values}.items()} for own in kept]
    if triton_version() < (3, 5) and any((named.get("num_ctas") or 1) > 1 for named in passed):
        raise CompileError("num_ctas above 1 may end the process in this Triton; install Triton 3.5 or later")
    hooks = any(config and config.pre_hook for config in configs)  # which change the arguments
    threads = 1 if hooks or triton_version() < (3, 4) else os.cpu_count() or 1  # 3.3 does not compile in threads
    with contextlib.ExitStack() as left:
        key = left.enter_context(absent(device))
        target_to_compile_for(device)
        left.callback(setattr, jit, "pre_run_hooks", jit.pre_run_hooks)  # which may write to the arguments
        left.enter_context(contextlib.redirect_stdout(sys.stderr))  # where Triton prints a compiler's complaint
        jit.pre_run_hooks = []
        left.callback((jit.device_caches if hasattr(jit, "device_caches") else jit.cache).pop, key, None)  # an absent device's
        left.callback(
            vars(jit).update, {"binder": None} if hasattr(jit, "binder") else {}
        )  # Triton 3.2 has one for all backends
        pool = left.enter_context(ThreadPoolExecutor(threads))
        kernels = [decorated(kernel, config, named, unknown) for config, named in zip(configs, passed, strict=True)]
        runs = [functools.partial(_run, *call, jit, device) for call in zip(kernels, passed, strict=True)]
        return [_explained(future, run) for future, run in zip([*map(pool.submit, runs)], runs, strict=True)]


def failure(error: BaseException, jit: Any, device: Device, unknown: Collection[str] = ()) -> Exception:
    """Returns the error of a kernel that does not compile, in the compiler's own words; `unknown` as of `compiled_for`."""
    if isinstance(error, PortableSoftmaxError | OSError):  # an OSError is of Triton's cache
        return error
    if isinstance(error, KeyError) and error.args[0] in unknown:
        return CompileError(f"a decorator of {jit.__name__} needs {error}; give its value, or what is computed of it")
    if isinstance(error, TypeError):
        return TypeError(f"{jit.__name__}: {error}")
    cause = error.__cause__ if type(error).__name__ == "CompilationError" else None  # not in the text of Triton 3.4
    left = f": {cause}" if cause and str(cause) not in str(error) else ""
    return CompileError(f"{jit.__name__} for {device.backend}/{device.arch}: {error}{left}")


def _run(kernel: Any, values: Mapping[str, Any], jit: Any, device: Device) -> Any:
    """Compiles a kernel, with its arguments by position as far as possible: a keyword may be an option of Triton's too."""
    if device.index:  # a thread begins with the first one
        getattr(importlib.import_module("torch"), device.vendor.torch_device_type).set_device(device.index)
    first = list(itertools.takewhile(values.__contains__, jit.arg_names))
    named = {name: value for name, value in values.items() if name not in first}
    return kernel.run(*(values[name] for name in first), **named, grid=(1,), warmup=True)


def _explained(future: "Future[Any]", again: Callable[[], Any]) -> Any:
    """Returns what Triton compiled, or its error; one without a reason gets the first that a second run writes."""
    error = future.exception()
    if not isinstance(error, Exception) or not any(text in str(error) for text in UNEXPLAINED):
        return error or future.result()
    with tempfile.TemporaryFile() as stderr:
        before = os.dup(2)
        os.dup2(stderr.fileno(), 2)
        try:
            with contextlib.suppress(Exception):
                again()
        finally:
            os.dup2(before, 2)
            os.close(before)
        stderr.seek(0)
        why = reason_in(stderr.read().decode(errors="replace"))
    return RuntimeError(f"{error}: {why}") if why else error


def reason_in(printed: str) -> str:
    """Returns the first error that a compiler printed; "" if there is none."""
    return next(iter(re.findall(r"(?i:error: (?!Failures have been)|: (?=Assertion ))(.+)", printed)), "")


def dropped(kernel: Any, values: Mapping[str, Any], device: Device) -> set[int]:
    """Returns the numbers of the configurations that a kernel's own pruning never lets a launch with such arguments try.

    Where the pruning reads another argument, no configuration is known to be dropped.
    """
    layer = copy.copy(next((layer for layer in layers(kernel) if hasattr(layer, "prune_configs")), None))
    if layer is None:
        return set()
    layer.nargs = {name: apart(value) for name, value in values.items()}
    with absent(device), contextlib.suppress(KeyError, AttributeError, TypeError):
        left = {id(config) for config in layer.prune_configs({})}
        return {number for number, config in enumerate(layer.configs) if id(config) not in left}
    return set()


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
        replaced.enter_context(device.vendor.front_end())
        before = dict(vars(driver))  # driver.active would create the real one, or fail
        base: Any = object
        for backend in backends.values():
            is_its = bool(backend.compiler.supports_target(target_of(device)))
            replaced.enter_context(mock.patch.object(backend.driver, "is_active", lambda is_its=is_its: is_its))
            base = backend.driver if is_its else base
        facts = {name: getattr(device.hardware, fact) for name, fact in PROPERTIES.items()}
        properties = {name: value for name, value in facts.items() if value is not None}
        arch = re.sub(r"^[a-z]+", "", str(device.arch))  # digits, the last one or two of which are the minor release
        minor = 2 if isinstance(device.arch, str) else 1
        capability = (int(arch[:-minor]), int(arch[-minor], 16)) if arch[:-minor].isdigit() else (0, 0)
        key = object()
        driver.set_active(_driver(device, base, key, properties, capability))
        if (torch := sys.modules.get("torch")) and hasattr(torch, device.vendor.torch_device_type):
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
        "get_benchmarker": lambda *_: refuse,  # @triton.autotune of 3.2 and 3.3 asks when it decorates
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
    known = {"name": name, "gcnArchName": str(device.arch), "major": capability[0], "minor": capability[1]}
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "current_accelerator": torch.device(kind),
        "get_device_capability": capability,
        "get_device_name": name,
        "get_device_properties": SimpleNamespace(**properties, **known),
    }
    for where in filter(None, (getattr(torch, kind), getattr(torch, "accelerator", None))):
        for question in answers.keys() & vars(where).keys():
            patched = mock.patch.object(where, question, lambda *_, value=answers[question], **__: value)
            replaced.enter_context(patched)
    if device.backend in vars(torch.version):
        toolkit = getattr(torch.version, device.backend) or TOOLKIT
        replaced.enter_context(mock.patch.object(torch.version, device.backend, toolkit))
