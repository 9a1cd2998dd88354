"""Lists hardware profiles, shows one with its sources, and writes one of the device here."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from portable_probe.columns import as_columns
from portable_probe.schema import SCHEMA_VERSION, Known, encoded
from portable_probe.text import shortened
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.limits import limits
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import CompileError, DeviceError, NoDeviceError
from portable_softmax.runtime.compiler import target_to_compile_for

LISTED = ("profile", "target", "architecture", "multiprocessors", "warp", "shared memory", "facts", "measured", "compiles here")


def list_profiles(options: argparse.Namespace) -> int:
    """Prints the products that have a profile, with what they are, and how many facts are known and measured; returns 0."""
    known = profiles()
    if options.json:
        print(encoded(Known(schema_version=SCHEMA_VERSION, profiles=list(known))))
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
    from portable_probe.new_profile import write_profile

    try:
        device = current_device()
    except NoDeviceError as error:
        raise DeviceError(f"a new profile describes a device that is here. No accelerator: {error}") from error
    profile, fixture = write_profile(device, directory)
    print(f"{profile}: PORTABLE_SOFTMAX_PROFILES={directory} takes the device for it\n{fixture}: for tests/support/recorded")
    return 0
