"""The next step to more resident programs, and requirements that a launch does not meet."""

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from portable_probe.text import many
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
    number = at_least.get(device.backend) if isinstance(at_least, Mapping) else at_least
    if not isinstance(number, int) or number < 1:
        wanted = f"an integer of at least 1, or a dict that has one for {device.backend}, the backend of {device.name}"
        raise ValueError(f"at_least should be {wanted}, not {at_least!r}")
    return number


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
    reduced, steps = dict[str, Any](), list[str]()
    for name in limited_by:
        field, words = REDUCIBLE[name]
        now, most = getattr(used, field), _most(used, name, resident, device)
        if most < 0:
            return f"no smaller number of {words} raises it"
        steps.append(f"at most {most} {words} ({now} now)" if resident else f"{now} {words}, and {most} fit")
        reduced[field] = most
    if not resident:
        return f"does not fit: a program needs {' and '.join(steps)}"
    more = device.vendor.occupancy(replace(used, **reduced), device.hardware).programs_per_multiprocessor
    return f"{many(more, 'program')} instead of {resident} with {' and '.join(steps)}"


def _most(used: KernelResources, name: str, resident: int, device: Device) -> int:
    """Returns the most of a limiting resource that allows more than the resident programs; -1 if no amount does."""
    field, _ = REDUCIBLE[name]

    def binds(value: int) -> bool:
        changed: dict[str, Any] = {field: value}
        limits = device.vendor.occupancy(replace(used, **changed), device.hardware).limits
        return limits.get(name, resident + 1) <= resident

    return bisect.bisect_left(range(getattr(used, field) + 1), True, key=binds) - 1
