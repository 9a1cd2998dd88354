"""Explains why a multiprocessor holds no more programs, and what would raise the number."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.probe.textbook import textbook, why_it_differs

REDUCIBLE = {
    "registers": ("registers_per_thread", "registers per thread"),
    "scalar registers": ("scalar_registers", "scalar registers"),
    "shared memory": ("shared_memory_bytes", "bytes of shared memory"),
    "unified buffer": ("shared_memory_bytes", "bytes of Unified Buffer"),
}


def explain(resources: KernelResources, device: Device) -> Iterator[str]:
    """Yields lines: each limit's own count, with those that bind marked, and the next step."""
    found = device.vendor.occupancy(resources, device.hardware)
    for name, programs in found.limits.items():
        yield f"{name:20}{programs:>6}{'   binds' if name in found.limited_by else ''}"
    yield next_step(resources, device, found)


def next_step(resources: KernelResources, device: Device, found: Occupancy) -> str:
    """Tells in words the least reduction of what binds that lets one more program in."""
    here = found.programs_per_multiprocessor
    binding = [REDUCIBLE[name] for name in found.limited_by if name in REDUCIBLE]
    fixed = [name for name in found.limited_by if name not in REDUCIBLE]
    if fixed and not here:
        return _no_program(resources, device, fixed)
    if fixed:
        return f"nothing that the kernel could save raises it: {' and '.join(fixed)} bind"
    reduced = resources
    steps = []
    for field, words in binding:
        fewer = _first_that_helps(reduced, field, device, here)
        if fewer is None:
            return f"no smaller number of {words} raises it"
        if spared := (getattr(reduced, field) or 0) - fewer:
            steps.append(f"{spared} {words} fewer")
        reduced = replace(reduced, **{field: fewer})
    now = device.vendor.occupancy(reduced, device.hardware).programs_per_multiprocessor
    return f"{' and '.join(steps)}: {now} programs instead of {here}"


def _no_program(resources: KernelResources, device: Device, fixed: list[str]) -> str:
    """Tells the largest number of warps, by halves, of which a program would fit."""
    bind = f"no program fits: {' and '.join(fixed)} bind"
    warps = (resources.num_warps or 1) // 2
    while warps:
        fit = device.vendor.occupancy(replace(resources, num_warps=warps), device.hardware).programs_per_multiprocessor
        if fit:
            return f"{bind}; with {warps} warps instead of {resources.num_warps}, if a thread needs no more then, {fit} would"
        warps //= 2
    return f"{bind}, and fewer warps do not help: it needs smaller tiles"


def _first_that_helps(resources: KernelResources, field: str, device: Device, here: int) -> int | None:
    """Finds the largest value of one field with which its own limit is above `here`; None if there is none."""
    limit = {name for name, (each, _) in REDUCIBLE.items() if each == field}
    for value in range(getattr(resources, field), -1, -1):
        limits = device.vendor.occupancy(replace(resources, **{field: value}), device.hardware).limits
        if all(programs > here for name, programs in limits.items() if name in limit):
            return value
    return None


def against_textbook(resources: KernelResources, device: Device) -> str:
    """Tells the tutorial's number beside ours, and why it differs."""
    theirs = textbook(device.backend, device.arch, resources, device.hardware)
    ours = device.vendor.occupancy(resources, device.hardware)
    return f"{'none' if theirs is None else theirs}, not {ours.programs_per_multiprocessor}: " + why_it_differs(
        theirs, ours, device.arch, device.hardware
    )
