"""Lists hardware profiles, and shows the facts of a device with their sources."""

import argparse
from typing import Any

import msgspec

from portable_probe.report import encoded, versions
from portable_probe.text import as_columns
from portable_softmax.devices.detect import devices_of
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles as every_product

HEADER = ("profile", "target", "architecture", "multiprocessors", "warp", "shared memory", "facts")


def profiles(options: argparse.Namespace) -> int:
    """Lists the products that have a profile, or shows the facts of devices, by default the local one; returns 0."""
    if options.names and options.action != "show":
        options.error("names of devices follow `profiles show`")
    if options.action == "show":
        devices = devices_of(options.names)
        text = "\n\n".join(map(facts_of, devices))
    else:
        devices = [Device.from_profile(name) for name in every_product()]
        text = as_columns(HEADER, map(_row, devices))
    print(encoded([_values(device) for device in devices]) if options.json else text)
    return 0


def _values(device: Device) -> dict[str, Any]:
    return {"name": device.name, "backend": device.backend, "arch": device.arch} | msgspec.structs.asdict(device.hardware)


def _row(device: Device) -> tuple[Any, ...]:
    profile, facts = device.profile, device.hardware
    sizes = f"{facts.multiprocessor_count} {profile.multiprocessor}", facts.warp_size, facts.shared_memory_per_program_max
    return device.name, f"{profile.backend}/{profile.arch}", profile.architecture, *sizes, len(profile.origins)


def facts_of(device: Device) -> str:
    """Returns the device, the software, and its facts with their origins and sources, as text."""
    profile, rows = device.profile, []
    sources = list(dict.fromkeys(profile.origins.values()))
    for fact, origin in device.origins.items():
        used, known, source = getattr(device.hardware, fact), getattr(profile.hardware, fact), profile.origins.get(fact)
        if origin in ("profile", "estimated") and source:
            rows.append((fact, used, f"{origin} ({source.verified}) [{sources.index(source) + 1}]"))
        else:
            rows.append((fact, used, origin if known in (used, None) else f"{origin} (profile: {known})"))
    where = "absent" if device.detected is None else f"local {device.torch_name}"
    about = f"({device.backend}/{device.arch}, {profile.architecture}, {where}), profile {profile.name}"
    titles = [f"{source.title}, {source.url}" if source.url else source.title for source in sources]
    listed = [f"[{at}] {title}" for at, title in enumerate(titles, 1)]
    table = as_columns(("", "value", "from"), rows)
    return "\n".join((f"device    {device.name}  {about}", f"software  {versions()}\n", table + "\n", *listed))
