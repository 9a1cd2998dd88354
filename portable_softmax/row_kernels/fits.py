"""Configurations that a device can run, out of those of an autotuner: what cannot run, or spills, is not tried."""

import logging
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.detect import chosen, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.devices.grid import refusal
from portable_softmax.errors import CompileError
from portable_softmax.row_kernels.compiling import compiled_for
from portable_softmax.row_kernels.decorators import jit_function
from portable_softmax.row_kernels.launched import read_arguments
from portable_softmax.row_kernels.offsets import warnings_of

logger = logging.getLogger("portable_softmax.fits")


class NoConfigurationFitsError(CompileError):
    """None of an autotuner's configurations can run on the device."""


@dataclass(frozen=True)
class _Tried:
    """A configuration as it was compiled.

    Args:
        config: Triton's Config.
        why: what keeps it from running; None if it can.
        excess: how many times as much as there is it needs of the resource that it lacks most; inf where that is unknown.
        spilled: bytes of each thread.
        doubt: why it may not fit, where only bounds are known.
    """

    config: Any
    why: str | None = None
    excess: float = float("inf")
    spilled: int = 0
    doubt: str | None = None


@dataclass(frozen=True)
class Fits:
    """Keeps the configurations of an autotuner that can run; `fits` is one of these, `fits.with_(...)` another.

    Args:
        kernel: the @triton.jit function with its decorators; None for that of the autotuner that asks.
        device: what they run on; the current one if None; `Device.from_profile`, or just the name, gives one that is not here.
        max_spilled: bytes that a thread may spill; None drops what spills only where others do not.
    """

    kernel: Any = None
    device: Device | str | None = None
    max_spilled: int | None = None

    def with_(self, **changed: Any) -> "Fits":
        """Returns one with other choices; TypeError if there is no such choice."""
        return replace(self, **changed)

    def __call__(self, configs: Sequence[Any], named_args: Mapping[str, Any], **others: Any) -> list[Any]:
        """Compiles each configuration, in parallel, and returns those that can run: Triton's `early_config_prune`.

        ```python
        @triton.autotune(configs, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fits})
        @triton.jit
        def matmul(...): ...
        ```

        What was compiled is in Triton's cache. The logger `portable_softmax.fits` gets the reason for each one that goes.

        Args:
            configs: Triton's Configs.
            named_args: arguments of the kernel by name; text is read as in `inspect_kernel`.
            others: further arguments and options; `grid` is checked, if it is there.

        Raises:
            NoConfigurationFitsError: none can run; it names the nearest and what that one lacks.
            CompileError: this Triton does not compile for the device.
            TypeError: no kernel was given, and no autotuner asks.
        """
        device, kernel = chosen(self.device), self.kernel or _of_the_autotuner()
        if interpreting() or not configs:
            return list(configs)
        others.pop("warmup", None)
        tried = _tried(kernel, list(configs), dict(named_args), others, device)
        if not (fitting := [each for each in tried if not each.why]):
            raise NoConfigurationFitsError(_none_fits(jit_function(kernel).__name__, tried, device))
        certain = [each for each in fitting if not each.doubt] or fitting
        least = min(each.spilled for each in certain)
        allowed = (math.inf if least else 0) if self.max_spilled is None else self.max_spilled
        kept = [each for each in certain if each.spilled <= allowed]
        for each in tried:
            if each not in kept:
                logger.info("%s: %s", each.config, each.why or each.doubt or f"spills {each.spilled} bytes a thread")
        if not kept:
            raise NoConfigurationFitsError(
                f"each of {len(certain)} configurations spills, at least {least} bytes a thread; {self.max_spilled} are allowed"
            )
        return [each.config for each in kept]


fits = Fits()


def _of_the_autotuner() -> Any:
    """Returns the autotuner that calls `fits`, as Triton gives it no kernel.

    Raises:
        TypeError: who calls is none.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:  # a pruning function of the user may be between
        asking = frame.f_locals.get("self")
        if hasattr(asking, "configs") and hasattr(asking, "fn"):
            return asking
        frame = frame.f_back
    raise TypeError("fits was called by no autotuner of Triton; name the kernel: fits.with_(kernel=...)(configs, arguments)")


def _tried(kernel: Any, configs: list[Any], named: dict[str, Any], others: dict[str, Any], device: Device) -> list[_Tried]:
    """Returns all configurations as they were compiled, in their order."""
    grid, jit = others.pop("grid", None), jit_function(kernel)
    given = {name: each.value for name, each in read_arguments(jit, named).items()} | others
    found: list[_Tried] = []
    for config, each in zip(configs, compiled_for(kernel, configs, given, device), strict=True):
        if isinstance(each, BaseException):
            found.append(_Tried(config, f"does not compile: {each}"))
        else:
            if all(tried.why for tried in found):
                for text in warnings_of(each, jit, given, _grid(grid, {**given, **config.all_kwargs()})[0] if grid else None):
                    logger.warning("%s: %s", jit.__name__, text)
            found.append(_judged(config, each, grid, {**given, **config.all_kwargs()}, device))
    return found


def _grid(grid: Any, given: Mapping[str, Any]) -> tuple[int, int, int]:
    width, height, depth = (*(grid(given) if callable(grid) else grid), 1, 1)[:3]
    return width, height, depth


def _judged(config: Any, compiled: Any, grid: Any, given: Mapping[str, Any], device: Device) -> _Tried:
    """Says whether a compiled configuration can run."""
    used = device.vendor.resources(compiled)
    occupancy = device.vendor.occupancy(used, device.hardware)
    if not occupancy.programs_per_multiprocessor:
        name, needed, most = max(_lacking(used, device), key=lambda each: each[1] / (each[2] or 1), default=("", 0, 0))
        told = f"needs {needed} {name}, and there are {most}" if name else f"limited by {' and '.join(occupancy.limited_by)}"
        return _Tried(config, f"does not fit: {told}", needed / most if most else float("inf"))
    if grid is not None:
        x, y, z = _grid(grid, given)
        if why := refusal(device, (x, y, z), used.num_warps, getattr(compiled.metadata, "num_ctas", None) or 1):
            return _Tried(config, why)
        if why := too_many_together(compiled, (x, y, z), device):
            return _Tried(config, why)
    return _Tried(config, spilled=used.spilled_bytes_per_thread, doubt=device.doubt(used))


def too_many_together(compiled: Any, grid: tuple[int, int, int], device: Device) -> str | None:
    """Says why the programs of a cooperative launch cannot all be resident; None if they can, or it is none."""
    if not getattr(compiled.metadata, "launch_cooperative_grid", False):
        return None
    resident = device.resident(device.vendor.occupancy(device.vendor.resources(compiled), device.hardware))
    resident //= getattr(compiled.metadata, "num_ctas", None) or 1
    if math.prod(grid) <= resident:
        return None
    return f"has a cooperative grid of {math.prod(grid)} programs, and {device.name} holds {resident} at once"


def _lacking(used: KernelResources, device: Device) -> Iterator[tuple[str, int, int]]:
    """Yields (what a program needs more of than there is, how much it needs, how much there is)."""
    facts = device.hardware
    threads = (used.num_warps or 0) * (facts.warp_size or 0)
    for name, needed, most in (
        ("bytes of shared memory", used.shared_memory_bytes, facts.shared_memory_per_program_max),
        ("threads", threads, facts.max_threads_per_program),
        ("registers", threads * (used.registers_per_thread or 0), facts.registers_per_multiprocessor),
        ("columns of tensor memory", used.tensor_memory_columns or 0, facts.tensor_memory_columns),
    ):
        if most is not None and needed > most:
            yield name, needed, most


def _none_fits(name: str, tried: list[_Tried], device: Device) -> str:
    nearest = min(tried, key=lambda each: each.excess)
    return (
        f"none of {len(tried)} configurations of {name} can run on {device.name}; the nearest is {nearest.config}, which "
        f"{nearest.why}; give smaller blocks, fewer stages or fewer warps"
    )
