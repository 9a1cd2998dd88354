"""Lists hardware profiles, shows the facts of a device with their sources, and writes a profile of the local device."""

import argparse
import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import yaml

from portable_probe.report import encoded, software
from portable_probe.text import as_columns
from portable_softmax.devices.detect import current_device, devices_of
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles as every_product
from portable_softmax.errors import DeviceError

HEADER = ("profile", "target", "architecture", "multiprocessors", "warp", "shared memory", "facts")


def profiles(options: argparse.Namespace) -> int:
    """Lists the products that have a profile, shows one, or writes one of the local device; returns 0."""
    if options.action != "show" and bool(options.what) != (options.action == "new"):
        options.error("commands are profiles list, profiles show [NAME], and profiles new DIR")
    if options.action == "new":
        print(_new(Path(options.what)))
        return 0
    if options.action == "show":
        devices = devices_of([options.what] if options.what else [])
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
    return "\n".join((f"device    {device.name}  {about}", f"software  {_versions()}\n", table + "\n", *listed))


def _new(directory: Path) -> str:
    device = current_device()
    if device.index is None:
        raise DeviceError(f"profiles new requires a local accelerator; {device.name} is not one")
    path = directory / f"{product_of(device)}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(profile_of(device, "driver", f"the driver of one {device.name}"))
    return f"wrote {path}; PORTABLE_SOFTMAX_PROFILES={directory} uses it; `plan --facts` shows which facts are estimates"


def _versions() -> str:
    return ", ".join(f"{name} {version}" for name, version in software().items())


def product_of(device: Device) -> str:
    """Returns the vendor and product of a device's own file: the matched one, else one by the device's own name."""
    vendor, _, product = device.profile.name.partition("/")
    if device.profile.product is None:
        product = re.sub(r"[^a-z0-9]+", "-", device.name.lower().removeprefix(f"{vendor} ")).strip("-")
    return f"{vendor}/{product}"


def profile_of(device: Device, source: str, title: str, cost: dict[str, Any] | None = None) -> str:
    """Returns a profile that extends the device's: what its driver and torch report, and a measured cost, with their source."""
    known = device.profile
    source += "_again" * (source in known.sources)
    facts = {key: getattr(device.hardware, key) for key, origin in device.origins.items() if origin in ("driver", "torch")}
    content = {
        "extends": known.name,
        "matches": [re.escape(device.name)] if device.detected or not known.product else known.product.matches,
        "sources": {source: {"verified": "measured", "title": f"{title}; {_versions()}, {date.today()}"}},
        "hardware": {key: {"value": value, "source": source} for key, value in facts.items()},
        **({"cost": {**cost, "source": source}} if cost else {}),
    }
    return "# Written by portable-softmax.\n" + yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=128)
