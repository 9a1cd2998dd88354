"""Configurations that a device can run, of an autotuner's: those that cannot run, or spill, are not tried."""

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.devices.grid import refusal
from portable_softmax.errors import CompileError
from portable_softmax.row_kernels.arguments import read_arguments
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.facts import warnings_of
from portable_softmax.row_kernels.inspection import resident_programs
from portable_softmax.row_kernels.row_settings import axes_of

logger = logging.getLogger("portable_softmax.fits")


class NoConfigurationFitsError(CompileError):
    """None of an autotuner's configurations can run on the device."""


def fits(
    configs: Sequence[Any],
    named_args: Mapping[str, Any],
    *,
    kernel: Any = None,
    device: Device | str | None = None,
    max_spilled: int | None = None,
    **others: Any,
) -> list[Any]:
    """Compiles an autotuner's configurations, and returns those that can run: Triton's `early_config_prune`.

    ```python
    @triton.autotune(configs, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fits})
    @triton.jit
    def matmul(...): ...
    ```

    What was compiled is in Triton's cache. The logger `portable_softmax.fits` gets the reason for those that are dropped.

    Args:
        configs: Triton's Configs.
        named_args: arguments of the kernel by name; text is read as in `inspect_kernel`.
        kernel: the @triton.jit function with its decorators; None for that of the calling autotuner.
        device: what they run on; the current one if None; `Device.from_profile`, or just the name, gives one that is not here.
        max_spilled: bytes that a thread may spill; None drops what spills only where others do not.
        others: further arguments and options; `grid` is checked, if it is there.

    Raises:
        NoConfigurationFitsError: none can run, with the reasons.
        CompileError: this Triton does not compile for the device.
        TypeError: there is no kernel, and the caller is no autotuner.
    """
    device, kernel = chosen(device), kernel or _of_the_autotuner()
    if interpreting() or not configs:
        return list(configs)
    others.pop("warmup", None)
    grid, jit = others.pop("grid", None), jit_function(kernel)
    values, unknown = read_arguments(jit, named_args)
    values |= others
    reasons: list[str] = []
    fitting: list[tuple[Any, int, str | None]] = []  # with the bytes that a thread spills, and why it may not fit
    for config, compiled in zip(configs, compiled_for(kernel, configs, values, device, unknown), strict=True):
        axes = axes_of(grid, {**values, **config.all_kwargs()}) if grid is not None else None
        if why := _refused(compiled, axes, device):
            reasons.append(f"{config}: {why}")
            continue
        for text in () if fitting else warnings_of(compiled, jit, values, axes and axes[0]):
            logger.warning("%s: %s", jit.__name__, text)
        used = device.vendor.resources(compiled)
        fitting.append((config, used.spilled_bytes_per_thread, device.doubt(used)))
    certain = [tried for tried in fitting if not tried[2]] or fitting
    least = min((spilled for _, spilled, _ in certain), default=0)
    allowed = (math.inf if least else 0) if max_spilled is None else max_spilled
    kept = [config for config, spilled, _ in certain if spilled <= allowed]
    unlike = [tried for tried in fitting if tried[0] not in kept]
    reasons += [f"{config}: {doubt or f'spills {spilled} bytes a thread'}" for config, spilled, doubt in unlike]
    for reason in reasons:
        logger.info("%s", reason)
    if not kept:
        heading = f"none of {len(configs)} configurations of {jit.__name__} can run on {device.name}"
        raise NoConfigurationFitsError("\n  ".join((heading, *reasons)))
    return kept


def _of_the_autotuner() -> Any:
    """Returns the autotuner that calls `fits`, as Triton gives it no kernel; TypeError if the caller is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:  # a pruning function of the user may be between
        asking = frame.f_locals.get("self")
        if hasattr(asking, "configs") and hasattr(asking, "fn"):
            return asking
        frame = frame.f_back
    raise TypeError("fits was called by no autotuner of Triton; name the kernel: fits(configs, arguments, kernel=...)")


def _refused(compiled: Any, grid: tuple[int, int, int] | None, device: Device) -> str | None:
    """Returns why a configuration cannot run; None if it can."""
    if isinstance(compiled, BaseException):
        return f"does not compile: {compiled}"
    used = device.vendor.resources(compiled)
    occupancy = device.vendor.occupancy(used, device.hardware)
    if not occupancy.programs_per_multiprocessor:
        there = f"a program has at most {device.hardware.shared_memory_per_program_max} bytes of shared memory"
        return f"does not fit: it uses {used}, limited by {' and '.join(occupancy.limited_by)}; {there}"
    return refused_grid(compiled, grid, device) if grid is not None else None


def refused_grid(compiled: Any, grid: tuple[int, int, int], device: Device) -> str | None:
    """Returns why the device does not take a grid of a compiled kernel, or cannot hold a cooperative one; None if it can."""
    metadata, programs = compiled.metadata, math.prod(grid)
    refused = refusal(device, grid, metadata.num_warps, getattr(metadata, "num_ctas", None) or 1)
    if refused or not getattr(metadata, "launch_cooperative_grid", False):
        return refused
    resident = resident_programs(compiled, device)
    too_many = f"has a cooperative grid of {programs} programs, and {device.name} holds {resident} at once"
    return too_many if programs > resident else None
