"""The next step to more resident programs, and requirements that a launch does not meet."""

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from portable_probe.text import many
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device

UNKNOWN = "registers (estimated)"  # a limit where no compiler reports them
REDUCIBLE = {
    "registers": ("registers_per_thread", "registers per thread"),
    "scalar registers": ("scalar_registers", "scalar registers"),
    "shared memory": ("shared_memory_bytes", "bytes of shared memory"),
    "tensor memory": ("tensor_memory_columns", "columns of tensor memory"),
    "unified buffer": ("shared_memory_bytes", "bytes of Unified Buffer"),
}
AtLeast = int | Mapping[str, int]


def required_programs(at_least: AtLeast, device: Device) -> int:
    """Returns the programs per multiprocessor required of a device, by one number or one for each backend; else ValueError."""
    numbers = at_least if isinstance(at_least, Mapping) else {device.backend: at_least}
    if unknown := numbers.keys() - BACKENDS.keys():
        raise ValueError(f"at_least names {', '.join(unknown)}; backends are {', '.join(BACKENDS)}")
    if wrong := [number for number in numbers.values() if not isinstance(number, int) or number < 1]:
        raise ValueError(f"at_least should be an integer of at least 1, or one for each backend, not {wrong[0]!r}")
    if device.backend not in numbers:
        known = ", ".join(numbers) or "no backend"
        raise ValueError(f"at_least has a number for {known}, and none for {device.backend}, the backend of {device.name}")
    return numbers[device.backend]


def unmet(spilled: int, resident: int, limited_by: Iterable[str], multiprocessor: str, required: int) -> str | None:
    """Returns the requirement that a launch does not meet, of spilled bytes and resident programs; None if it meets all."""
    if spilled:
        return f"spills {spilled} bytes per thread"
    where = f"{many(resident, 'program')} per {multiprocessor}, at least {required} required"
    return f"{where}; limited by {' and '.join(limited_by)}" if resident < required else None


def next_step(used: KernelResources, device: Device) -> str:
    """Returns the smallest reduction of the limiting resources that allows one more program, or why there is none."""
    occupancy = device.vendor.occupancy(used, device.hardware)
    resident, limited_by = occupancy.programs_per_multiprocessor, occupancy.limited_by
    if used.spilled_bytes_per_thread:
        return "spills registers to memory: use smaller tiles, more warps, or a larger register limit (maxnreg)"
    if UNKNOWN in limited_by and resident:
        others = min(programs for name, programs in occupancy.limits.items() if name != UNKNOWN)
        return f"unknown: the compiler does not report registers (install `ocloc`); all else allows {others}"
    if fixed := " and ".join(name for name in limited_by if name not in REDUCIBLE):
        return f"already at the hardware limit ({fixed})" if resident else f"no program fits: {fixed}; use fewer warps"
    reduced, steps = used, []
    for name in limited_by:
        field, words = REDUCIBLE[name]
        now = getattr(used, field)

        def binds(value: int, name: str = name, field: str = field) -> bool:
            return (
                device.vendor.occupancy(_with(used, field, value), device.hardware).limits.get(name, resident + 1) <= resident
            )

        if binds(0):
            return f"no smaller number of {words} raises it"
        most = bisect.bisect_left(range(now + 1), True, key=binds) - 1
        steps.append(f"at most {most} {words} ({now} now)" if resident else f"{now} {words}, and {most} fit")
        reduced = _with(reduced, field, most)
    if not resident:
        return f"does not fit: a program needs {' and '.join(steps)}"
    more = device.vendor.occupancy(reduced, device.hardware).programs_per_multiprocessor
    return f"{many(more, 'program')} instead of {resident} with {' and '.join(steps)}"


def _with(used: KernelResources, field: str, value: int) -> KernelResources:
    changed: dict[str, Any] = {field: value}
    return replace(used, **changed)
