"""Lists hardware profiles, shows one with its sources, and writes one of the local device."""

import argparse
import re
from datetime import date
from typing import Any

import msgspec
import yaml

from portable_probe.output import as_columns
from portable_probe.report import encoded, software
from portable_probe.text import shortened
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import CompileError, DeviceError
from portable_softmax.runtime.compiler import target_to_compile_for

HEADER = ("profile", "target", "architecture", "multiprocessors", "warp", "shared memory", "facts", "compiles here")


def list_profiles(options: argparse.Namespace) -> int:
    """Prints the products that have a profile, or with --json the facts of each; returns 0."""
    known = profiles()
    if options.json:
        print(encoded([_facts(name) for name in known]))
        return 0
    rows = []
    for name, profile in known.items():
        facts = profile.hardware
        sizes = f"{facts.multiprocessor_count} {profile.multiprocessor}", facts.warp_size, facts.shared_memory_per_program_max
        target = f"{profile.backend}/{profile.arch}"
        rows.append((name, target, profile.architecture, *sizes, len(profile.origins), _compiles(name)))
    print(as_columns(HEADER, rows))
    return 0


def _facts(name: str) -> dict[str, Any]:
    """Returns the target of a product and its facts."""
    device = Device.from_profile(name)
    return {"name": device.name, "backend": device.backend, "arch": device.arch} | msgspec.structs.asdict(device.hardware)


def _compiles(name: str) -> str:
    try:
        target_to_compile_for(Device.from_profile(name))
    except CompileError:
        return "no"
    return "yes"


def show_profile(options: argparse.Namespace) -> int:
    """Prints a profile's facts, each with its source, or its facts as JSON; returns 0."""
    if options.json:
        print(encoded(_facts(options.name)))
        return 0
    device = Device.from_profile(options.name)
    profile = device.profile
    print(f"{profile.name}: {profile.backend}/{profile.arch}, {profile.architecture}; multiprocessor: {profile.multiprocessor}")
    sources = list(dict.fromkeys(profile.origins.values()))
    rows = [
        (key, shortened(getattr(profile.hardware, key)), source.verified, f"[{sources.index(source) + 1}]")
        for key, source in profile.origins.items()
    ]
    print(as_columns(("", "value", "verified", "source"), rows), end="\n\n")
    for number, source in enumerate(sources, 1):
        print(f"[{number}] {source.title}{f', {source.url}' if source.url else ''}")
    return 0


def new_profile(options: argparse.Namespace) -> int:
    """Writes DIR/<vendor>/NAME.yaml, a profile of the local device; returns 0.

    Raises:
        DeviceError: there is no local accelerator.
        OSError: the file exists, or cannot be written.
    """
    device = current_device()
    if device.index is None:
        raise DeviceError(f"a new profile describes a local accelerator; {device.name} is none")
    path = options.directory / f"{product_of(device)}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(profile_of(device, "driver", f"the driver of one {device.name}, {versions()}"))
    print(f"{path}: used with PORTABLE_SOFTMAX_PROFILES={options.directory}; `plan --facts` shows what is still estimated")
    return 0


def versions() -> str:
    """Returns the versions of the installed packages, and today's date."""
    return f"{', '.join(f'{name} {version}' for name, version in software().items())}, {date.today()}"


def product_of(device: Device) -> str:
    """Returns the vendor and product of a device's own file: the matched one, else one by the device's own name."""
    vendor, _, product = device.profile.name.partition("/")
    if device.profile.product is None:
        product = re.sub(r"[^a-z0-9]+", "-", device.name.lower().removeprefix(f"{vendor} ")).strip("-")
    return f"{vendor}/{product}"


def profile_of(device: Device, source: str, title: str, cost: dict[str, Any] | None = None) -> str:
    """Returns a profile that extends the device's: the facts that its driver and torch report, and a measured cost.

    Args:
        device: the device.
        source: key of the source of these numbers.
        title: how they were measured.
        cost: numbers of the cost, if they were measured.
    """
    known = device.profile
    source += "_again" * (source in known.sources)
    facts = {key: getattr(device.hardware, key) for key, origin in device.origins.items() if origin in ("driver", "torch")}
    content = {
        "extends": known.name,
        "matches": [re.escape(device.name)] if device.detected or not known.product else known.product.matches,
        "sources": {source: {"verified": "measured", "title": title}},
        "hardware": {key: {"value": value, "source": source} for key, value in facts.items()},
        **({"cost": {**cost, "source": source}} if cost else {}),
    }
    return "# Written by portable-softmax.\n" + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=128)
