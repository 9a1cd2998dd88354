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
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, PortableSoftmaxError
from portable_softmax.row_kernels.decorators import OF_CONFIG, apart, configurations, decorated, jit_function, layers
from portable_softmax.runtime.absent import absent
from portable_softmax.runtime.compile import check_target, triton_version, unwritable

RESERVED = {"self", "grid", "warmup", "device", "device_type", "stream"}  # keywords that Triton's launch does not pass on
UNEXPLAINED = "PassManager::run failed", "error encountered during parsing"  # errors of MLIR, which writes why to stderr


def compiled_for(
    kernel: Any,
    configs: Sequence[Any],
    values: Mapping[str, Any],
    device: Device,
    unknown: Collection[str] = (),
    positional: int = 0,
) -> list[Any]:
    """Returns compiled kernels for a device, here or not, or Triton's errors; CompileError if it has no such target.

    Values are arguments and options by name, which win over a configuration's. A configuration is None for a kernel without.
    A decorator that reads an argument of an unknown value raises KeyError. The first `positional` arguments are passed by
    position: a parameter named as an option of Triton's, such as num_warps, sets that option too if it is passed by name.
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
        check_target(device)
        left.callback(setattr, jit, "pre_run_hooks", jit.pre_run_hooks)  # which may write to the arguments
        left.enter_context(contextlib.redirect_stdout(sys.stderr))  # where Triton prints a compiler's complaint
        jit.pre_run_hooks = []
        left.callback((jit.device_caches if hasattr(jit, "device_caches") else jit.cache).pop, key, None)  # an absent device's
        left.callback(vars(jit).update, {"binder": None} if hasattr(jit, "binder") else {})  # of 3.2, for all backends
        pool = left.enter_context(ThreadPoolExecutor(threads))
        kernels = [decorated(kernel, config, named, unknown) for config, named in zip(configs, passed, strict=True)]
        last = max((at for at, name in enumerate(jit.arg_names, 1) if name in RESERVED), default=0)
        first = jit.arg_names[: max(positional, last)]
        runs = [functools.partial(_run, *call, first, device) for call in zip(kernels, passed, strict=True)]
        results = [future.result() for future in [pool.submit(run) for run in runs]]
        return [_explained(result, run) for result, run in zip(results, runs, strict=True)]


def failure(
    error: BaseException, jit: Any, device: Device, unknown: Collection[str] = (), passed: Collection[str] = ()
) -> Exception:
    """Returns the error of a kernel that does not compile, in the compiler's own words.

    Args:
        error: what Triton raised for a kernel and a device, with arguments of unknown values as of `compiled_for`.
        passed: names of arguments and options, of which those that may be misspelt are named.
    """
    known = [*jit.arg_names, *OF_CONFIG]
    near = {name: get_close_matches(name, known, 1) for name in passed if name not in known}
    hint = "".join(f"; {name} is no parameter: did you mean {match}?" for name, matches in near.items() for match in matches)
    if isinstance(error, OSError):
        return unwritable(error)
    if isinstance(error, PortableSoftmaxError):
        return error
    if isinstance(error, KeyError) and error.args[0] in unknown:
        return CompileError(f"a decorator of {jit.__name__} requires the value of {error}; pass it, or what it computes")
    if isinstance(error, TypeError):
        return TypeError(f"{jit.__name__}: {error}{hint}".replace("dynamic_func() ", ""))  # of generated code
    text = f"{jit.__name__} for {device.backend}/{device.arch}: {error}"
    if type(error).__name__ == "CompilationError" and str(error.__cause__ or "") not in str(error):
        text += f": {error.__cause__}"  # not in the text of Triton 3.4
    return CompileError(text + hint * ("specified but unrecognised" in text))


def _run(kernel: Any, values: Mapping[str, Any], first: Sequence[str], device: Device) -> Any:
    """Compiles a kernel, with its first arguments by position as far as possible; returns it, or the error."""
    if device.index:  # a thread begins with the first one
        getattr(importlib.import_module("torch"), device.vendor.torch_device_type).set_device(device.index)
    first = list(itertools.takewhile(values.__contains__, first))
    named = {name: value for name, value in values.items() if name not in first}
    try:
        return kernel.run(*(values[name] for name in first), **named, grid=(1,), warmup=True)
    except Exception as error:
        return error


def _explained(error: Any, again: Callable[[], Any]) -> Any:
    """Returns a result; an error without a reason gets the first that a second run writes to standard error."""
    if not isinstance(error, Exception) or not any(text in str(error) for text in UNEXPLAINED):
        return error
    with tempfile.TemporaryFile() as stderr:
        before = os.dup(2)
        os.dup2(stderr.fileno(), 2)
        try:
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


def dropped(kernel: Any, values: Mapping[str, Any], device: Device | None) -> set[int]:
    """Returns the numbers of the configurations that a kernel's own pruning never lets a launch with such arguments try.

    Where the pruning reads another argument, no configuration is known to be dropped; PlanError if it fails, or leaves none.
    """
    layer = copy.copy(next((layer for layer in layers(kernel) if hasattr(layer, "prune_configs")), None))
    if layer is None:
        return set()
    layer.nargs = {name: apart(value) for name, value in values.items()}
    try:
        with absent(device) if device else contextlib.nullcontext():
            left = {id(config) for config in layer.prune_configs({})}
    except (KeyError, AttributeError, TypeError):
        return set()
    except Exception as error:
        raise PlanError(f"{jit_function(kernel).__name__}: its own pruning of configurations fails: {error}") from error
    return {number for number, config in enumerate(layer.configs) if id(config) not in left}
