"""Inspects any Triton kernel: what `kernel[grid](...)` launches, what it uses, how many programs fit, and which configurations.

Triton's own launch decides everything: `run(..., warmup=True)` of the @triton.jit function. Only its driver is another.
"""

import logging
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, PlanError
from portable_softmax.row_kernels.addresses import warnings_of
from portable_softmax.row_kernels.arguments import axes_of, check_constexprs, read_arguments
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.decorators import OF_CONFIG, configuration, constants_of, heuristics_of, jit_function, name_of
from portable_softmax.runtime.compile import target_of

SPILLS, REFUSED = 1, 2  # ranks of drawbacks
Attributes = tuple[tuple[str, int], ...]  # of Triton, such as (("tt.divisibility", 16),)
logger = logging.getLogger("portable_softmax.fits")


class Launched(NamedTuple):
    """A kernel as Triton launches it."""

    compiled: Any  # Triton's CompiledKernel: its `run` and `[grid]` need the device, its `asm`, `metadata` and `src` do not
    arguments: dict[str, tuple[str, Attributes]]  # types of run-time arguments, and what is known of them
    constants: dict[str, Any]  # arguments that are compiled into the kernel
    options: dict[str, Any]  # num_warps, num_stages, num_ctas, maxnreg and those that the launch sets
    origins: dict[str, str]  # of constexprs and options that do not have their default: passed, configuration or heuristic


class Inspected(NamedTuple):
    """Resources of one program, programs per multiprocessor with their limits, and Triton's launch."""

    resources: KernelResources
    occupancy: Occupancy
    launch: Launched

    def __str__(self) -> str:
        """Returns the resources of a program, and the programs that fit, as text."""
        return f"uses {self.resources}\n{self.occupancy}"


def inspect_kernel(
    kernel: Any,
    arguments: Mapping[str, Any] | Sequence[Any],
    constexprs: Mapping[str, Any] | None = None,
    *,
    config: int | None = None,
    device: Device | str | None = None,
    **options: Any,
) -> Inspected:
    """Compiles what `kernel[grid](...)` launches, and counts how many of its programs fit a multiprocessor.

    Args:
        kernel: the @triton.jit function, with its decorators.
        arguments: by position or by name, as a launch passes them: tensors, which may be on torch's device "meta", numbers, or
            text such as "f16[4096,4096]", "*fp16:16", "i32" and "4096" (docs/row_kernels.md).
        constexprs: values of constexprs by name; they can also be among the arguments.
        config: index of a configuration of @triton.autotune.
        device: a Device, or the name of one, which may be absent; None is the current device.
        options: options of Triton's backend, such as num_warps, num_stages, maxnreg or waves_per_eu; None is Triton's default.

    Raises:
        CompileError: the kernel does not compile, in the compiler's words, or a decorator reads an argument of which only the
            type is known.
        TypeError: a parameter is missing or unknown, num_warps, num_stages or num_ctas is no integer, or `device` is invalid.
        ProfileError: no profile has that name.
        ValueError: an argument's text is invalid; there is no such configuration, or there are several and `config` is None.
    """
    device, jit, selected = chosen(device), jit_function(kernel), configuration(kernel, config)
    passed, unknown = read_arguments(kernel, arguments)
    passed |= {**(constexprs or {}), **{name: value for name, value in options.items() if value is not None}}
    check_constexprs(jit, passed)
    if wrong := [name for name in OF_CONFIG[:3] if not isinstance(passed.get(name) or 1, int)]:
        raise TypeError(f"{wrong[0]} of {jit.__name__} should be an integer of at least 1, not {passed[wrong[0]]!r}")
    positional = 0 if isinstance(arguments, Mapping) else len(arguments)
    (compiled,) = compiled_for(kernel, [selected], passed, device, unknown, positional)
    if isinstance(compiled, Exception):
        raise compiled
    origins = dict.fromkeys(getattr(selected, "all_kwargs", dict)(), "configuration")
    origins |= dict.fromkeys(heuristics_of(kernel), "heuristic") | dict.fromkeys(passed, "passed")
    source, used, constants = compiled.src, compiled.metadata._asdict(), constants_of(compiled, jit)
    facts = getattr(source.attrs, "get_fn_attrs", lambda: source.attrs)()  # a dictionary from 3.3 on
    known = {name_of(jit, key): tuple((str(name), int(value)) for name, value in pairs) for key, pairs in facts.items()}
    kinds = {name: str(kind).replace("'", "") for name, kind in source.signature.items() if name not in constants}
    typed = {name: (kind, known.get(name, ())) for name, kind in kinds.items()}
    shown = [*(OF_CONFIG if device.hardware.warp_size else ()), *origins]  # those that count, and those that are set
    launch = Launched(compiled, typed, constants, {name: used[name] for name in shown if name in used}, origins)
    resources = device.vendor.resources(compiled)
    return Inspected(resources, device.vendor.occupancy(resources, device.hardware), launch)


def resident_programs(kernel: Any, device: Device | str | None = None) -> int:
    """Counts the programs of a compiled kernel that a device holds at once, by the exact rule of its vendor.

    Returns 0 if none fits, and 1 in the interpreter; `inspect_kernel(...).occupancy` has the reasons.

    Args:
        kernel: Triton's CompiledKernel: the result of `kernel.warmup(...)`, None in the interpreter, or of a launch, or
            `launch.compiled` of `inspect_kernel`.
        device: as in `inspect_kernel`.

    Raises:
        TypeError: the kernel is not compiled.
        DeviceError: it is compiled for another architecture, or there is no device. ProfileError: no profile has that name.
    """
    if kernel is None and interpreting():
        return 1
    if not hasattr(kernel, "asm") or not hasattr(kernel, "metadata"):
        raise TypeError(f"resident_programs requires a compiled kernel, as of kernel.warmup(..., grid=(1,)), not {kernel!r}")
    device = chosen(device)
    made_for, target = kernel.metadata.target, target_of(device)
    if (made_for.backend, made_for.arch) != (target.backend, target.arch):
        raise DeviceError(
            f"a kernel compiled for {made_for.backend}/{made_for.arch} was passed for {device!r}, which is "
            f"{target.backend}/{target.arch}; inspect_kernel(..., device=...) compiles it for that one"
        )
    occupancy = device.vendor.occupancy(device.vendor.resources(kernel), device.hardware)
    return device.resident(occupancy) // (getattr(kernel.metadata, "num_ctas", None) or 1)


def fits(
    configs: Sequence[Any],
    named_args: Mapping[str, Any],
    *,
    kernel: Any = None,
    device: Device | str | None = None,
    **others: Any,
) -> list[Any]:
    """Returns the configurations of an autotuner that can run on a device; a function for Triton's `early_config_prune`.

    ```python
    @triton.autotune(configs, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fits})
    ```

    All are compiled, into Triton's cache, without a time limit: tiles of 2**20 elements may take hours. Configurations that
    spill are dropped if others do not. The logger `portable_softmax.fits` reports the reason for every dropped one.

    Args:
        configs: list of triton.Config.
        named_args: arguments of the kernel by name, or their text as in `inspect_kernel`.
        kernel: the @triton.jit function, with its decorators; None for the kernel of the calling autotuner.
        device: as in `inspect_kernel`.
        others: further arguments and options; a `grid` is checked too.

    Raises:
        PlanError: none can run, with the reasons.
        GridError: the grid is not one to three integers of at least 0.
        CompileError: this Triton does not compile for the device.
        TypeError: `kernel` is None, and the caller is not an autotuner.
    """
    device, callers = chosen(device), (frame.f_locals.get("self") for frame, _ in traceback.walk_stack(sys._getframe()))
    kernel = kernel or next((one for one in callers if hasattr(one, "configs") and hasattr(one, "fn")), None)
    if kernel is None:  # which Triton does not pass
        raise TypeError("fits was not called by Triton's autotuner; pass the kernel: fits(configs, arguments, kernel=...)")
    if interpreting() or not configs:
        return list(configs)
    grid, _, jit = others.pop("grid", None), others.pop("warmup", None), jit_function(kernel)
    values, unknown = read_arguments(kernel, named_args)
    values |= others
    if grid is None:
        grid = (1,)
    results = compiled_for(kernel, configs, values, device, unknown)
    grids = [axes_of(grid, {**values, **config.all_kwargs()}) for config in configs]
    drawbacks = [_drawback(*launch, device) for launch in zip(results, grids, strict=True)]
    least = min(rank for rank, _ in drawbacks)
    kept = [at for at, (rank, _) in enumerate(drawbacks) if rank == least < REFUSED]
    for text in [text for at in kept[:1] for text in warnings_of(results[at], jit, values, grids[at])]:
        logger.warning("%s: %s", jit.__name__, text)
    reasons = [f"{config}: {drawbacks[at][1]}" for at, config in enumerate(configs) if at not in kept]
    for reason in reasons:
        logger.info("%s", reason)
    if not kept:
        heading = f"none of {len(configs)} configurations of {jit.__name__} can run on {device.name}"
        raise PlanError("\n  ".join((heading, *reasons)))
    return [configs[at] for at in kept]


def _drawback(compiled: Any, grid: tuple[int, int, int], device: Device) -> tuple[int, str]:
    """Returns the rank of a configuration, REFUSED if it cannot run, and its drawback in words."""
    if isinstance(compiled, Exception):
        return REFUSED, f"does not compile: {compiled}"
    used = device.vendor.resources(compiled)
    occupancy = device.vendor.occupancy(used, device.hardware)
    if not occupancy.programs_per_multiprocessor:
        limits, most = " and ".join(occupancy.limited_by), device.hardware.shared_memory_per_program_max
        why = f"does not fit: it uses {used}, limited by {limits}; a program has at most {most} bytes of shared memory"
        return REFUSED, why
    if refused := device.refused_grid(grid, compiled.metadata.num_warps, getattr(compiled.metadata, "num_ctas", None) or 1):
        return REFUSED, refused
    return min(SPILLS, used.spilled_bytes_per_thread), f"spills {used.spilled_bytes_per_thread} bytes a thread"
