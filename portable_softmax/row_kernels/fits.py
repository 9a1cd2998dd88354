"""Configurations that a device can run, of an autotuner's: those that cannot run, or spill, are not tried."""

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
        excess: need of the resource that it lacks most, as a multiple of what the device has; inf where that is unknown.
        spilled: bytes per thread.
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
        kernel: the @triton.jit function with its decorators; None for that of the calling autotuner.
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
        """Compiles the configurations, in parallel, and returns those that can run: Triton's `early_config_prune`.

        ```python
        @triton.autotune(configs, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fits})
        @triton.jit
        def matmul(...): ...
        ```

        What was compiled is in Triton's cache. The logger `portable_softmax.fits` gets the reason for those that are dropped.

        Args:
            configs: Triton's Configs.
            named_args: arguments of the kernel by name; text is read as in `inspect_kernel`.
            others: further arguments and options; `grid` is checked, if it is there.

        Raises:
            NoConfigurationFitsError: none can run; it names the nearest and what that one lacks.
            CompileError: this Triton does not compile for the device.
            TypeError: there is no kernel, and the caller is no autotuner.
        """
        device, kernel = chosen(self.device), self.kernel or _of_the_autotuner()
        if interpreting() or not configs:
            return list(configs)
        others.pop("warmup", None)
        tried = _tried(kernel, list(configs), dict(named_args), others, device)
        if not (fitting := [candidate for candidate in tried if not candidate.why]):
            raise NoConfigurationFitsError(_none_fits(jit_function(kernel).__name__, tried, device))
        certain = [candidate for candidate in fitting if not candidate.doubt] or fitting
        least = min(candidate.spilled for candidate in certain)
        allowed = (math.inf if least else 0) if self.max_spilled is None else self.max_spilled
        kept = [candidate for candidate in certain if candidate.spilled <= allowed]
        for candidate in tried:
            if candidate not in kept:
                logger.info(
                    "%s: %s", candidate.config, candidate.why or candidate.doubt or f"spills {candidate.spilled} bytes a thread"
                )
        if not kept:
            raise NoConfigurationFitsError(
                f"all of {len(certain)} configurations spill, at least {least} bytes a thread; {self.max_spilled} are allowed"
            )
        return [candidate.config for candidate in kept]


fits = Fits()


def _of_the_autotuner() -> Any:
    """Returns the autotuner that calls `fits`, as Triton gives it no kernel.

    Raises:
        TypeError: the caller is none.
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
    values = {name: argument.value for name, argument in read_arguments(jit, named).items()} | others
    results: list[_Tried] = []
    for config, compiled in zip(configs, compiled_for(kernel, configs, values, device), strict=True):
        if isinstance(compiled, BaseException):
            results.append(_Tried(config, f"does not compile: {compiled}"))
        else:
            if all(tried.why for tried in results):
                for text in warnings_of(
                    compiled, jit, values, _grid(grid, {**values, **config.all_kwargs()})[0] if grid else None
                ):
                    logger.warning("%s: %s", jit.__name__, text)
            results.append(_judged(config, compiled, grid, {**values, **config.all_kwargs()}, device))
    return results


def _grid(grid: Any, values: Mapping[str, Any]) -> tuple[int, int, int]:
    width, height, depth = (*(grid(values) if callable(grid) else grid), 1, 1)[:3]
    return width, height, depth


def _judged(config: Any, compiled: Any, grid: Any, values: Mapping[str, Any], device: Device) -> _Tried:
    """Returns a compiled configuration with the reason if it cannot run."""
    used = device.vendor.resources(compiled)
    occupancy = device.vendor.occupancy(used, device.hardware)
    if not occupancy.programs_per_multiprocessor:
        name, needed, most = max(_lacking(used, device), key=lambda lack: lack[1] / (lack[2] or 1), default=("", 0, 0))
        reason = f"needs {needed} {name}, and there are {most}" if name else f"limited by {' and '.join(occupancy.limited_by)}"
        return _Tried(config, f"does not fit: {reason}", needed / most if most else float("inf"))
    if grid is not None:
        x, y, z = _grid(grid, values)
        if why := refusal(device, (x, y, z), used.num_warps, getattr(compiled.metadata, "num_ctas", None) or 1):
            return _Tried(config, why)
        if why := too_many_together(compiled, (x, y, z), device):
            return _Tried(config, why)
    return _Tried(config, spilled=used.spilled_bytes_per_thread, doubt=device.doubt(used))


def too_many_together(compiled: Any, grid: tuple[int, int, int], device: Device) -> str | None:
    """Returns the reason why the programs of a cooperative launch cannot all be resident; None if they can, or it is none."""
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
    nearest = min(tried, key=lambda candidate: candidate.excess)
    return (
        f"none of {len(tried)} configurations of {name} can run on {device.name}; the nearest is {nearest.config}, which "
        f"{nearest.why}; give smaller blocks, fewer stages or fewer warps"
    )
