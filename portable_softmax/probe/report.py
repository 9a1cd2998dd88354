"""The probe's report as a dictionary: what --json prints, and what the text is made of."""

import dataclasses
import importlib.metadata
import platform
from typing import Any

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.probe.explain import against_textbook, explain
from portable_softmax.runtime.plans import plan

SCHEMA_VERSION = 1
PACKAGES = ("portable-softmax", "torch", "triton", "triton-ascend", "torch-npu", "numpy")


def describe(device: Device, n_rows: int, n_cols: int, dtype: str) -> dict[str, Any]:
    """Describes a device, and the plan of a softmax of [n_rows, n_cols] on it.

    Raises:
        DtypeError, PlanError, TypeError, ValueError: the cases of `plan`.
    """
    launch_plan = plan(n_rows, n_cols, dtype, device)
    return describe_device(device) | {
        "problem": {"n_rows": n_rows, "n_cols": n_cols, "dtype": dtype},
        "plan": {
            **dataclasses.asdict(launch_plan.tiling),
            "num_programs": launch_plan.num_programs,
            "resources": dataclasses.asdict(launch_plan.resources),
            "occupancy": _occupancy(launch_plan.occupancy),
            "reasons": list(launch_plan.reasons),
        },
    }


def describe_kernel(device: Device, name: str, resources: KernelResources, occupancy: Occupancy) -> dict[str, Any]:
    """Describes a device, and what any kernel uses of it."""
    return describe_device(device) | {
        "kernel": {"name": name, "resources": dataclasses.asdict(resources), "occupancy": _occupancy(occupancy)},
    }


def explanations(device: Device, resources: KernelResources, with_limits: bool, with_textbook: bool) -> dict[str, Any]:
    """Returns the lines that --explain and --textbook add."""
    limits = {"explain": list(explain(resources, device))} if with_limits else {}
    return limits | ({"textbook": against_textbook(resources, device)} if with_textbook else {})


def software() -> dict[str, str]:
    """Returns the versions of Python and of the packages that matter, if they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe_device(device: Device) -> dict[str, Any]:
    """Returns a device and its facts, with nothing about any kernel."""
    return {
        "schema_version": SCHEMA_VERSION,
        "software": software(),
        "device": {
            "name": device.name,
            "backend": device.backend,
            "arch": device.arch,
            "architecture": device.profile.architecture,
            "here": device.detected is not None,
            "index": device.index,
            "profile": device.profile.name,
            "multiprocessor": device.profile.multiprocessor,
        },
        "facts": {key: _fact(device, key) for key in device.origins},
    }


def _occupancy(occupancy: Occupancy) -> dict[str, Any]:
    return dataclasses.asdict(occupancy) | {"limited_by": list(occupancy.limited_by)}


def _fact(device: Device, key: str) -> dict[str, Any]:
    """Collects what each side says of one field of Hardware, and which is used."""
    runtime = dict(device.detected.torch) | dict(device.detected.driver) if device.detected else {}
    source = device.profile.origins.get(key)
    return {
        "runtime": runtime.get(key),
        "profile": getattr(device.profile.hardware, key),
        "used": getattr(device.hardware, key),
        "from": device.origins[key],
        "profile_source": source and {"title": source.title, "verified": source.verified},
    }
