"""Writes down a device that is here: a profile that extends its architecture's, and what driver and torch tell."""

import importlib.metadata
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

from portable_softmax.devices.device import Device
from portable_softmax.devices.schema import Hardware

SOURCE = "this_device"


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
