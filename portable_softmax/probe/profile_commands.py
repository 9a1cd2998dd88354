"""Lists hardware profiles, shows one with its sources, and writes one of the device here."""

import argparse
import json
from pathlib import Path

from tabulate import tabulate

from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import DeviceError, NoDeviceError
from portable_softmax.probe.limits import FORMS
from portable_softmax.probe.schema import SCHEMA_VERSION, Known, encoded
from portable_softmax.probe.text import shortened

LISTED = ("profile", "target", "architecture", "measured facts", "facts")


def list_profiles(options: argparse.Namespace) -> int:
    """Prints the products that have a profile, and how many of each one's facts were measured; returns 0."""
    known = profiles()
    if options.json:
        print(encoded(Known(schema_version=SCHEMA_VERSION, profiles=list(known))))
        return 0
    rows = []
    for name, profile in known.items():
        measured = sum(source.verified == "measured" for source in profile.origins.values())
        rows.append((name, f"{profile.backend}/{profile.arch}", profile.architecture, measured, len(profile.origins)))
    print(tabulate(rows, LISTED, "plain", disable_numparse=True))
    return 0


def show_profile(options: argparse.Namespace) -> int:
    """Prints a profile's facts, each with its source, or in another project's form; returns 0."""
    if options.form:
        found = FORMS[options.form](options.name)
        print(found.rstrip() if isinstance(found, str) else json.dumps(found, indent=1))
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
    print(tabulate(rows, ("", "value", "verified", "source"), "plain", disable_numparse=True))
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
    from portable_softmax.probe.new_profile import write_profile

    try:
        device = current_device()
    except NoDeviceError as error:
        raise DeviceError(f"a new profile describes a device that is here. No accelerator: {error}") from error
    profile, fixture = write_profile(device, directory)
    print(f"{profile}: PORTABLE_SOFTMAX_PROFILES={directory} takes the device for it\n{fixture}: for tests/support/recorded")
    return 0
