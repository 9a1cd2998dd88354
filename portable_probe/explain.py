"""Explains why a multiprocessor holds no more programs, and what would raise the number."""

import bisect
from dataclasses import replace

from portable_probe.output import many
from portable_probe.report_types import NextStep
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device

UNKNOWN = "registers (estimated)"  # a limit where no compiler tells them
SPILLED = "it needs more registers than a thread has here; smaller tiles, or more warps of a program, need fewer"
REDUCIBLE = {
    "registers": ("registers_per_thread", "registers per thread"),
    "scalar registers": ("scalar_registers", "scalar registers"),
    "shared memory": ("shared_memory_bytes", "bytes of shared memory"),
    "tensor memory": ("tensor_memory_columns", "columns of tensor memory"),
    "unified buffer": ("shared_memory_bytes", "bytes of Unified Buffer"),
}


def next_step(resources: KernelResources, device: Device) -> NextStep:
    """Finds the least reduction of what binds that lets one more program in."""
    found = device.vendor.occupancy(resources, device.hardware)
    here = found.programs_per_multiprocessor
    if why := device.doubt(resources):
        return _none(here, why)
    if spilled := resources.spilled_bytes_per_thread:
        return _none(here, f"spills {spilled} bytes per thread: {SPILLED}")
    binding = [REDUCIBLE[name] for name in found.limited_by if name in REDUCIBLE]
    fixed = [name for name in found.limited_by if name not in REDUCIBLE]
    if fixed and not here:
        return _no_program(resources, device, fixed)
    if fixed:
        if UNKNOWN in fixed:
            others = min(programs for name, programs in found.limits.items() if name != UNKNOWN)
            return _none(here, f"unknown: nothing here tells the registers (`ocloc` on PATH does); all else allows {others}")
        return _none(here, f"already at the hardware limit ({' and '.join(fixed)})")
    reduced, fewer = resources, {}
    for field, words in binding:
        least = _first_that_helps(reduced, field, device, here)
        if least is None:
            return _none(here, f"no smaller number of {words} raises it")
        if spared := (getattr(reduced, field) or 0) - least:
            fewer[field] = spared
        reduced = replace(reduced, **{field: least})
    now = device.vendor.occupancy(reduced, device.hardware).programs_per_multiprocessor
    limits = [(getattr(resources, field), getattr(reduced, field), words) for field, words in binding if field in fewer]
    if here:
        steps = " and ".join(f"at most {most} {words} ({used} now)" for used, most, words in limits)
        text = f"{many(now, 'program')} instead of {here} with {steps}"
    else:
        steps = " and ".join(f"{used} {words}, and {most} fit" for used, most, words in limits)
        text = f"does not fit: a program needs {steps}"
    return NextStep(fewer=fewer, programs=now, instead_of=here, text=text)


def _none(here: int, text: str) -> NextStep:
    return NextStep(fewer={}, programs=here, instead_of=here, text=text)


def _no_program(resources: KernelResources, device: Device, fixed: list[str]) -> NextStep:
    """Finds the largest number of warps, by halves, of which a program would fit."""
    bind = f"no program fits: {' and '.join(fixed)} bind"
    given = resources.num_warps or 1
    warps = given // 2
    while warps:
        fit = device.vendor.occupancy(replace(resources, num_warps=warps), device.hardware).programs_per_multiprocessor
        if fit:
            text = f"{bind}; with {warps} warps instead of {given}, if a thread needs no more then, {fit} would"
            return NextStep(fewer={"num_warps": given - warps}, programs=fit, instead_of=0, text=text)
        warps //= 2
    return _none(0, f"{bind}, and fewer warps do not help: it needs smaller tiles")


def _first_that_helps(resources: KernelResources, field: str, device: Device, here: int) -> int | None:
    """Finds the largest value of one field with which its own limit is above `here`; None if there is none."""
    limit = {name for name, (each, _) in REDUCIBLE.items() if each == field}

    def helps(value: int) -> bool:
        limits = device.vendor.occupancy(replace(resources, **{field: value}), device.hardware).limits
        return all(programs > here for name, programs in limits.items() if name in limit)

    if not helps(0):
        return None
    values = range(getattr(resources, field) + 1)
    return bisect.bisect_left(values, True, key=lambda value: not helps(value)) - 1  # the fewer of it, the more programs
