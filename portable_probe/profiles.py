"""Lists hardware profiles, shows one with its sources, and writes one of the device here, with what its driver tells."""

import argparse
import importlib.metadata
import json
import re
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from portable_probe.output import as_columns
from portable_probe.report_types import SCHEMA_VERSION, encoded
from portable_probe.text import shortened
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.limits import limits
from portable_softmax.devices.profiles import profiles
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import CompileError, DeviceError, NoDeviceError
from portable_softmax.runtime.compiler import target_to_compile_for

SOURCE = "this_device"
LISTED = ("profile", "target", "architecture", "multiprocessors", "warp", "shared memory", "facts", "measured", "compiles here")


def list_profiles(options: argparse.Namespace) -> int:
    """Prints the products that have a profile, with what they are, and how many facts are known and measured; returns 0."""
    known = profiles()
    if options.json:
        print(encoded({"schema_version": SCHEMA_VERSION, "profiles": list(known)}))
        return 0
    rows = []
    for name, profile in known.items():
        facts, measured = profile.hardware, sum(source.verified == "measured" for source in profile.origins.values())
        sizes = f"{facts.multiprocessor_count} {profile.multiprocessor}", facts.warp_size, facts.shared_memory_per_program_max
        sources = len(profile.origins), measured, _compiles(name)
        rows.append((name, f"{profile.backend}/{profile.arch}", profile.architecture, *sizes, *sources))
    print(as_columns(LISTED, rows))
    return 0


def _compiles(name: str) -> str:
    try:
        target_to_compile_for(Device.from_profile(name))
    except CompileError:
        return "no"
    return "yes"


def show_profile(options: argparse.Namespace) -> int:
    """Prints a profile's facts, each with its source, or the device's limits as JSON; returns 0."""
    if options.json:
        print(json.dumps(asdict(limits(options.name)), indent=1))
        return 0
    device = Device.from_profile(options.name)
    profile = device.profile
    target = f"{profile.backend}/{profile.arch}"
    print(f"{profile.name}: {target}, {profile.architecture}; a multiprocessor is a {profile.multiprocessor}")
    sources = list(dict.fromkeys(profile.origins.values()))
    rows = [
        (key, shortened(getattr(profile.hardware, key)), source.verified, f"[{sources.index(source) + 1}]")
        for key, source in profile.origins.items()
    ]
    print(as_columns(("", "value", "verified", "source"), rows))
    print()
    for number, source in enumerate(sources, 1):
        print(f"[{number}] {source.title}{f', {source.url}' if source.url else ''}")
    return 0


def new_profile(directory: Path) -> int:
    """Writes a profile of the device here; returns 0.

    Raises:
        DeviceError: no device is here.
        OSError: the files are there already, or cannot be written.
    """
    try:
        device = current_device()
    except NoDeviceError as error:
        raise DeviceError(f"a new profile describes a device that is here. No accelerator: {error}") from error
    profile, fixture = write_profile(device, directory)
    print(f"{profile}: PORTABLE_SOFTMAX_PROFILES={directory} takes the device for it\n{fixture}: for tests/support/recorded")
    return 0


def write_profile(device: Device, directory: Path) -> list[Path]:
    """Writes DIRECTORY/<vendor>/NAME.yaml, and driver_NAME.json for tests that play the device back; returns both.

    The first is a profile as soon as PORTABLE_SOFTMAX_PROFILES names the directory. It holds what driver and torch tell, and
    marks what is estimated or unknown.

    Raises:
        ValueError: the device is not here, or is Triton's interpreter.
        OSError: the files cannot be written, or are there already.
    """
    if device.detected is None or device.index is None:
        raise ValueError(f"`profiles new` describes an accelerator that is here; {device.name} is none")
    vendor = device.profile.name.partition("/")[0]
    name = re.sub(r"[^a-z0-9]+", "-", device.name.lower().removeprefix(f"{vendor} ")).strip("-")
    profile, fixture = directory / vendor / f"{name}.yaml", directory / f"driver_{name}.json"
    for path, text in ((profile, yaml_of(device)), (fixture, json.dumps(recording(device), indent=1) + "\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return [profile, fixture]


def yaml_of(device: Device) -> str:
    """Returns the profile's text. Every number that the device told is `measured`; the others stand in comments."""
    told = {key for key, origin in device.origins.items() if origin in ("driver", "torch")}
    lines = [
        "# Written by `profiles new`. What is marked below needs a source before this is a profile for others.",
        f"extends: {device.profile.name}",
        f"matches: [{json.dumps(re.escape(device.name))}]",
        "sources:",
        f"  {SOURCE}: {{verified: measured, title: {json.dumps(provenance(device))}}}",
        "hardware:",
    ]
    lines += [f"  {key}: {{value: {getattr(device.hardware, key)}, source: {SOURCE}}}" for key in device.origins if key in told]
    for key in Hardware.__struct_fields__:
        if key not in device.origins:
            lines.append(f"  # {key}: not known; leave it out if the device has no such thing")
        elif device.origins[key] == "estimated":
            lines.append(f"  # {key}: {getattr(device.hardware, key)} is the vendor's estimate; find it in its documents")
    return "\n".join(lines) + "\n"


def provenance(device: Device) -> str:
    """Tells versions, device and day of a recording."""
    versions = f"Triton {importlib.metadata.version('triton')} and torch {importlib.metadata.version('torch')}"
    return f"{versions} on {device.name}, {date.today()}"


def recording(device: Device) -> dict[str, Any]:
    """Returns answers of Triton's driver and of torch, and what this package makes of them, to be played back in tests."""
    import torch
    from triton.runtime import driver

    module = getattr(torch, device.vendor.torch_device_type)
    properties = module.get_device_properties(device.index)
    names = [name for name in dir(properties) if not name.startswith("_")]
    target = driver.active.get_current_target()
    return {
        "provenance": provenance(device),
        "target": [target.backend, target.arch, target.warp_size],
        "torch_device_type": device.vendor.torch_device_type,
        "properties": [driver.active.utils.get_device_properties(device.index)],
        "torch": [{name: value for name in names if isinstance(value := getattr(properties, name), int | str)}],
        "expected": {
            "profile": device.profile.name,
            "arch": device.arch,
            "facts": {key: [getattr(device.hardware, key), origin] for key, origin in device.origins.items()},
        },
    }
