"""Compiles kernels for a device, here or not, as a launch does: by `run(..., warmup=True)` of the outermost decorator."""

import contextlib
import copy
import importlib
import itertools
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.errors import CompileError, PlanError, PortableSoftmaxError
from portable_softmax.row_kernels.decorators import OF_CONFIG, arguments_of, configurations, detached, jit_function, layers
from portable_softmax.runtime.absent import absent
from portable_softmax.runtime.compile import check_target, triton_version, unwritable

RESERVED = {"self", "grid", "warmup", "device", "device_type", "stream"}  # keywords that Triton's launch does not pass on
RACE = "AST constructor recursion depth mismatch"  # of Python 3.11, which parses in one thread at a time


def compiled_for(
    kernel: Any,
    configs: Sequence[Any],
    values: Mapping[str, Any],
    device: Device,
    unknown: Collection[str] = (),
    positional: int = 0,
    computed: bool = False,
) -> list[Any]:
    """Returns kernels compiled for a device, here or not, or their errors in the compiler's own words.

    `configs` are Triton's Configs, None for a kernel without; `values` are arguments and options by name, which win over them.
    A decorator that reads one of `unknown`, of which only the type is known, is an error. So many arguments are `positional`: a
    parameter such as num_warps that is passed by name is an option too. Configurations that this package has `computed` win
    over decorators. CompileError if Triton has no such target, DeviceError if its cache cannot be written.
    """
    jit = jit_function(kernel)
    last = max((at for at, name in enumerate(jit.arg_names, 1) if name in RESERVED), default=0)

    def run(config: Any) -> Any:
        """Compiles a configuration, with the first arguments by position as far as possible; returns it, or the error."""
        if device.index:  # a thread begins with the first one
            getattr(importlib.import_module("torch"), device.vendor.torch_device_type).set_device(device.index)
        passed = {name: detached(value) for name, value in values.items()}
        if computed:
            passed = config.all_kwargs() | passed
        try:
            named = arguments_of(kernel, config, passed, unknown)
            if triton_version() < (3, 5) and (named.get("num_ctas") or 1) > 1:
                raise CompileError("num_ctas above 1 may end the process in this Triton; install Triton 3.5 or later")
            first = [*itertools.takewhile(named.__contains__, jit.arg_names[: max(positional, last)])]
            by_position = [named.pop(name) for name in first]
            return jit.run(*by_position, **named, grid=(1,), warmup=True)
        except Exception as error:
            return error

    threads = os.cpu_count() or 1
    if triton_version() < (3, 4) or any(config and config.pre_hook for config in configs):
        threads = 1  # hooks change the arguments, and 3.3 does not compile in threads
    with contextlib.ExitStack() as left:
        key = left.enter_context(absent(device))
        check_target(device)
        left.callback(setattr, jit, "pre_run_hooks", jit.pre_run_hooks)  # which may write to the arguments
        left.enter_context(contextlib.redirect_stdout(sys.stderr))  # where Triton prints a compiler's complaint
        jit.pre_run_hooks = []
        left.callback(getattr(jit, "device_caches", getattr(jit, "cache", {})).pop, key, None)  # an absent device's
        if hasattr(jit, "binder"):  # of 3.2, for all backends
            left.callback(setattr, jit, "binder", None)
        results = [*left.enter_context(ThreadPoolExecutor(threads)).map(run, configs)]
        for at, result in enumerate(results):
            if RACE in str(result):
                results[at] = run(configs[at])
    if errors := [result for result in results if isinstance(result, OSError)]:
        raise unwritable(errors[0]) from errors[0]
    return [_in_words(result, jit, device, values, unknown) for result in results]


def _in_words(result: Any, jit: Any, device: Device, passed: Collection[str], unknown: Collection[str]) -> Any:
    """Returns a compiled kernel, or its error with the names of the kernel and of what may be misspelt."""
    if not isinstance(result, Exception) or isinstance(result, PortableSoftmaxError):
        return result
    if isinstance(result, KeyError) and result.args[0] in unknown:
        return CompileError(f"a decorator of {jit.__name__} requires the value of {result}; pass it, or what it computes")
    known, hint = [*jit.arg_names, *OF_CONFIG], ""
    for name in (name for name in passed if name not in known):
        hint += "".join(f"; {name} is no parameter: did you mean {match}?" for match in get_close_matches(name, known, 1))
    if isinstance(result, TypeError):
        return TypeError(f"{jit.__name__}: {result}{hint}".replace("dynamic_func() ", ""))  # of generated code
    text = f"{jit.__name__} for {device.backend}/{device.arch}: {result}"
    if type(result).__name__ == "CompilationError" and str(result.__cause__ or "") not in str(result):
        text += f": {result.__cause__}"  # not in the text of Triton 3.4
    if "specified but unrecognised" in text:
        text += hint
    return CompileError(text)


def reason_in(printed: str) -> str:
    """Returns the first error that a compiler printed; "" if there is none."""
    return next(iter(re.findall(r"(?i:error: (?!Failures have been)|: (?=Assertion ))(.+)", printed)), "")


def pruned(kernel: Any, values: Mapping[str, Any], device: Device | None) -> list[Any]:
    """Returns the configurations that a kernel's own pruning lets a launch with such arguments try.

    Where the pruning reads another argument, these are all of them; PlanError if it fails, or leaves none.
    """
    layer = copy.copy(next((layer for layer in layers(kernel) if hasattr(layer, "prune_configs")), None))
    if layer is None:
        return configurations(kernel)
    layer.nargs = {name: detached(value) for name, value in values.items()}
    try:
        with absent(device) if device else contextlib.nullcontext():
            return list(layer.prune_configs({}))
    except (KeyError, AttributeError, TypeError):
        return list(layer.configs)
    except Exception as error:
        raise PlanError(f"{jit_function(kernel).__name__}: its own pruning of configurations fails: {error}") from error
