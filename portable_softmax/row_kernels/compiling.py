"""Compiles kernels for a device, here or not, as a launch does: by `run(..., warmup=True)` of the outermost decorator."""

import contextlib
import copy
import functools
import importlib
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PortableSoftmaxError
from portable_softmax.row_kernels.absent import absent
from portable_softmax.row_kernels.decorators import apart, configurations, decorated, jit_function, layers
from portable_softmax.runtime.compiler import target_to_compile_for, triton_version

UNEXPLAINED = "PassManager::run failed", "error encountered during parsing"  # errors of MLIR, which writes why to stderr


def compiled_for(
    kernel: Any, configs: Sequence[Any], values: Mapping[str, Any], device: Device, unknown: Collection[str] = ()
) -> list[Any]:
    """Returns the compiled kernels of configurations for a device, here or not, or the errors that Triton raises.

    Args:
        kernel: the @triton.jit function with its decorators.
        configs: Triton's Configs; None for a kernel without.
        values: arguments and options by name, which win over a configuration's.
        device: the target.
        unknown: names of arguments of which only the type is known; a decorator that reads one raises KeyError.

    Raises:
        CompileError: this Triton does not compile for the device.
    """
    jit, is_tuned, runs = jit_function(kernel), bool(configurations(kernel)), []
    for config in configs:
        passed = {} if is_tuned or config is None else config.all_kwargs()
        passed = {name: apart(value) for name, value in {**passed, **values}.items()}
        runs.append(functools.partial(_run, decorated(kernel, config, passed, unknown), jit, passed))
        if triton_version() < (3, 5) and (passed.get("num_ctas") or 1) > 1:
            raise CompileError("num_ctas above 1 may end the process in this Triton; install Triton 3.5 or later")
    hooks = any(config and config.pre_hook for config in configs)  # which change the arguments
    threads = 1 if hooks or triton_version() < (3, 4) else os.cpu_count() or 1  # 3.3 does not compile in threads
    with contextlib.ExitStack() as left:
        key = left.enter_context(absent(device))
        target_to_compile_for(device)
        left.callback(setattr, jit, "pre_run_hooks", jit.pre_run_hooks)  # which may write to the arguments
        left.enter_context(contextlib.redirect_stdout(sys.stderr))  # where Triton prints a compiler's complaint
        jit.pre_run_hooks = []
        if key is not None:
            left.callback(_forget, jit, key)
        pool = left.enter_context(ThreadPoolExecutor(threads, initializer=_on, initargs=(device,)))
        submitted = [(run, pool.submit(run)) for run in runs]
        return [_explained(future, functools.partial(pool.submit, run)) for run, future in submitted]


def failure(error: BaseException, jit: Any, device: Device, unknown: Collection[str] = ()) -> Exception:
    """Returns the error of a kernel that does not compile, in the compiler's own words; `unknown` as of `compiled_for`."""
    if isinstance(error, PortableSoftmaxError | OSError):  # an OSError is of Triton's cache
        return error
    if isinstance(error, KeyError) and error.args[0] in unknown:
        return CompileError(f"a decorator of {jit.__name__} needs {error}; give its value, or what is computed of it")
    if isinstance(error, TypeError):
        return TypeError(f"{jit.__name__}: {error}")
    return CompileError(f"{jit.__name__} for {device.backend}/{device.arch}: {error}")


def _run(kernel: Any, jit: Any, values: Mapping[str, Any]) -> Any:
    """Compiles a kernel, with its arguments by position as far as possible: a keyword may be an option of Triton's too."""
    first = list(itertools.takewhile(values.__contains__, jit.arg_names))
    named = {name: value for name, value in values.items() if name not in first}
    return kernel.run(*(values[name] for name in first), **named, grid=(1,), warmup=True)


def _explained(future: "Future[Any]", again: "Callable[[], Future[Any]]") -> Any:
    """Returns what Triton compiled, or its error; one without a reason gets the first that a second run writes."""
    error = future.exception()
    if not isinstance(error, Exception) or not any(text in str(error) for text in UNEXPLAINED):
        return error or future.result()
    with tempfile.TemporaryFile() as written:
        before = os.dup(2)
        os.dup2(written.fileno(), 2)
        try:
            again().exception()
        finally:
            os.dup2(before, 2)
            os.close(before)
        written.seek(0)
        lines = written.read().decode(errors="replace").splitlines()
    reasons = [line.partition("error: ")[2] for line in lines if "error: " in line and "Failures have been" not in line]
    return RuntimeError(f"{error}: {reasons[0]}") if reasons else error


def _on(device: Device) -> None:
    """Makes the device the current one of a thread, which begins with the first one."""
    if device.index:
        getattr(importlib.import_module("torch"), device.vendor.torch_device_type).set_device(device.index)


def _forget(jit: Any, key: object) -> None:
    """Removes what was compiled for an absent device from a kernel's own cache; `key` is that of `absent`."""
    (jit.device_caches if hasattr(jit, "device_caches") else jit.cache).pop(key, None)
    vars(jit).update({"binder": None} if hasattr(jit, "binder") else {})  # Triton 3.2 has one for all backends


def dropped(kernel: Any, values: Mapping[str, Any], device: Device) -> set[int]:
    """Returns the numbers of the configurations that a kernel's own pruning never lets a launch try on the device.

    Args:
        kernel: the @triton.jit function with its decorators.
        values: arguments by name; where the pruning reads another one, no configuration is known to be dropped.
        device: the target.
    """
    layer = copy.copy(next((layer for layer in layers(kernel) if hasattr(layer, "prune_configs")), None))
    if layer is None:
        return set()
    layer.nargs = {name: apart(value) for name, value in values.items()}
    with absent(device), contextlib.suppress(KeyError, AttributeError, TypeError):
        left = {id(config) for config in layer.prune_configs({})}
        return {number for number, config in enumerate(layer.configs) if id(config) not in left}
    return set()
