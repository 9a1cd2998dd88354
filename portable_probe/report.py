"""Describes a device, and a softmax or a kernel on it: what --json prints, and what the text is made of."""

import importlib.metadata
import math
import platform
from collections.abc import Mapping
from typing import Any

import msgspec

from portable_probe import scores
from portable_probe.output import many
from portable_probe.report_types import (
    SCHEMA_VERSION,
    DeviceInfo,
    Fact,
    KernelLaunch,
    KernelUse,
    Launch,
    Report,
    Scalar,
    SoftmaxProblem,
)
from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.row_kernels.launched import Chosen, Launched

PACKAGES = ("portable-softmax", "torch", "triton", "triton-ascend", "triton-xpu", "torch-npu", "numpy")
Case = SoftmaxProblem | KernelUse


def describe(device: Device, case: Case) -> Report:
    """Describes a device and what is asked about it, with no answer yet."""
    about = Report(
        schema_version=SCHEMA_VERSION,
        software=software(),
        device=_device(device),
        facts={key: _fact(device, key) for key in device.origins},
    )
    asked = {"problem": case} if isinstance(case, SoftmaxProblem) else {"kernel": case}
    return msgspec.structs.replace(about, **asked)


def without_answer(case: KernelUse) -> KernelUse:
    """Returns what was asked about a kernel."""
    return msgspec.structs.replace(
        case, **dict.fromkeys(("grid", "launch", "resources", "occupancy", "resident_programs"), msgspec.UNSET)
    )


def launch_words(report: Report) -> str | None:
    """Returns the launch in short: a softmax's tiling, or a kernel's warps and stages; None if there is none."""
    if report.plan:
        return str(report.plan.tiling)
    if report.kernel and report.kernel.launch:
        options = report.kernel.launch.options
        told = {"warp": "num_warps", "stage": "num_stages"}
        return ", ".join(many(options[name].value, word) for word, name in told.items() if name in options)
    return None


def words_of(case: Case) -> str:
    """Names a case in a table."""
    if isinstance(case, KernelUse):
        return case.name if case.config is None else f"{case.name} configuration {case.config}"
    backward = " backward" if case.backward else ""
    of_scores = f" with {scores.words_of(case.scores)}" if case.scores else ""
    return f"{case.n_rows} x {case.n_cols} {case.dtype}{backward}{of_scores}"


def launch_of(plan: LaunchPlan) -> Launch:
    """Returns a plan as the report has it."""
    return msgspec.convert(plan, Launch, from_attributes=True)


def launch_of_kernel(launch: Launched) -> KernelLaunch:
    """Returns a kernel's launch as the report has it; options that are lists, such as paths of libraries, are left out."""
    arguments = {name: ", ".join((each.kind, *map(_known, each.known))) for name, each in launch.arguments.items()}
    options = {name: each for name, each in launch.options.items() if not isinstance(each.value, list | tuple | dict)}
    return KernelLaunch(arguments=arguments, constants=_plain(launch.constants), options=_plain(options))


def _plain(chosen: Mapping[str, Chosen]) -> dict[str, Chosen]:
    return {name: Chosen(json_value(each.value), each.by) for name, each in chosen.items()}


def json_value(value: Any) -> Scalar:
    """Returns a value as JSON keeps it, which has no inf and no nan: as it is, or as text."""
    plain = value is None or isinstance(value, bool | int | str) or (type(value) is float and math.isfinite(value))
    return value if plain else str(value)


def _known(pair: tuple[str, int]) -> str:
    """Returns what Triton knows of an argument: that it is a multiple of 16, or points into less than 2 GiB."""
    name, value = pair
    words = {"tt.divisibility": f"multiple of {value}", "tt.pointer_range": f"below 2^{value - 1} bytes"}
    return words.get(name, f"{name} {value}")


def use_of(report: Report) -> tuple[KernelResources, Occupancy] | None:
    """Returns what a program of the reported plan or kernel uses, and how many fit; None if there was none."""
    if report.plan:
        return report.plan.resources, report.plan.occupancy
    if report.kernel and report.kernel.resources and report.kernel.occupancy:
        return report.kernel.resources, report.kernel.occupancy
    return None


def warps_of(report: Report, short: bool = False) -> str:
    """Tells the warps that a multiprocessor holds and their part of the most that it could; "" where there are none."""
    use = use_of(report)
    warps = use[1].warps_per_multiprocessor if use else None
    fact = report.facts.get("max_warps_per_multiprocessor")
    if warps is None:
        return ""
    if not fact or not isinstance(fact.used, int):
        return str(warps) if short else f"{warps} warps"
    part = f"{warps / fact.used:.0%}"
    return part if short else f"{warps} of {fact.used} warps ({part})"


def triton_of(report: Report) -> str:
    """Tells the Triton that answered."""
    names = ("triton", "triton-ascend", "triton-xpu")
    return ", ".join(f"{name} {report.software[name]}".capitalize() for name in names if name in report.software) or "no Triton"


def software() -> dict[str, str]:
    """Returns the versions of Python and of the packages that matter, if they are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _device(device: Device) -> DeviceInfo:
    return DeviceInfo(
        name=device.name,
        backend=device.backend,
        arch=device.arch,
        architecture=device.profile.architecture,
        here=device.detected is not None,
        index=device.index,
        profile=device.profile.name,
        multiprocessor=device.profile.multiprocessor,
    )


def _fact(device: Device, key: str) -> Fact:
    """Collects what each side says of one field of Hardware, and which is used."""
    runtime = dict(device.detected.torch) | dict(device.detected.driver) if device.detected else {}
    return Fact(
        runtime=runtime.get(key),
        profile=getattr(device.profile.hardware, key),
        used=getattr(device.hardware, key),
        origin=device.origins[key],
        profile_source=device.profile.origins.get(key),
    )
