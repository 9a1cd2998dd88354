"""The report of one softmax or kernel on one device, which --json prints and --save writes."""

import contextlib
import importlib.metadata
import platform
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from portable_softmax.devices.device import Device

PACKAGES = ("portable-softmax", "torch", "triton", "triton-ascend", "triton-xpu", "torch-npu", "numpy")
Scalar = bool | int | float | str | None


class Fields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON object. Keys with default values are left out; unknown keys of newer versions are ignored."""


class DeviceInfo(Fields, frozen=True, kw_only=True):
    """A device, and the profile that describes it."""

    name: str
    backend: str
    arch: int | str
    profile: str
    multiprocessor: str  # the vendor's word for it
    max_warps: int | None  # of a multiprocessor
    calibrated: bool  # its cost was fitted to it
    here: bool
    index: int | None = None


class SoftmaxProblem(Fields, frozen=True, kw_only=True, tag="softmax"):
    """A softmax of the rows of a contiguous matrix, or its gradient."""

    n_rows: int
    n_cols: int
    dtype: str
    backward: bool = False
    title: ClassVar[str] = "softmax"

    def __str__(self) -> str:
        return f"{self.n_rows} x {self.n_cols} {self.dtype}{' backward' if self.backward else ''}"

    @property
    def variant(self) -> str:
        """What distinguishes this softmax from others."""
        return str(self)


class KernelCall(Fields, frozen=True, kw_only=True, tag="kernel"):
    """A launch of a user kernel, as of the command line."""

    name: str  # FILE:NAME
    arguments: dict[str, str] = {}  # and options of Triton's backend
    config: int | None = None
    case: str | None = None  # the function in its file that makes arguments
    suggested: dict[str, Scalar] = {}  # computed constexprs and options
    title: ClassVar[str] = "kernel"

    def __str__(self) -> str:
        return f"{self.name} {self.variant}".rstrip()

    @property
    def variant(self) -> str:
        """What distinguishes this launch from others of the kernel."""
        values = {} if self.config is None else {"configuration": self.config}
        return " ".join(f"{name} {value}" for name, value in {**values, **self.suggested}.items())


Case = SoftmaxProblem | KernelCall


class Verified(Fields, frozen=True, kw_only=True):
    """Distance of a result from float64; null if it is not finite."""

    max_error: float | None
    worst: float | None  # the largest error in units of the tolerance: above 1 is wrong
    overwritten: int  # elements outside the result that the kernel changed
    right: bool
    worst_at: str | None = None  # argument and index, if it is wrong
    executed: str | None = None  # what ran, if it was an emulator


class Report(Fields, frozen=True, kw_only=True):
    """One device and one softmax or kernel on it."""

    schema_version: Literal[8]
    software: dict[str, str]
    device: DeviceInfo
    case: Case
    launch: dict[str, Scalar] = {}  # the tiling, num_programs, num_warps, num_stages; absent if nothing was compiled
    numbers: dict[str, Any] = {}  # resources of a program, resident programs, and expected microseconds
    limited_by: tuple[str, ...] = ()
    text: dict[str, tuple[str, ...]] = {}  # all of it in words: lines by title
    verify: Verified | None = None
    error: str | None = None
    message: str | None = None

    @property
    def failure(self) -> list[str]:
        """The error in words, if there is one."""
        return [f"{self.error}: {self.message}"] if self.error else []


def describe(device: Device, case: Case) -> Report:
    """Returns the report of a device and a case, without results."""
    profile, cost = device.profile, device.profile.launch.cost
    about = DeviceInfo(
        name=device.name, backend=device.backend, arch=device.arch, index=device.index, here=device.detected is not None,
        profile=profile.name, multiprocessor=profile.multiprocessor, calibrated=bool(cost and cost.error_90),
        max_warps=device.hardware.max_warps_per_multiprocessor,
    )  # fmt: skip
    return Report(schema_version=8, software=software(), device=about, case=case)


def software() -> dict[str, str]:
    """Returns the versions of Python and of the packages that matter, if they are installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def versions() -> str:
    """Returns the versions of `software` in words."""
    return ", ".join(f"{name} {version}" for name, version in software().items())


def encoded(answer: Any) -> str:
    """Returns a value as indented JSON; values that JSON lacks are text, or null."""
    return msgspec.json.format(msgspec.json.encode(answer, enc_hook=str), indent=2).decode()


def load(path: Path) -> list[Report]:
    """Returns the reports that --save wrote, or --json printed; ValueError for another schema version, or none."""
    try:
        reports: list[Report] = msgspec.json.decode(path.read_bytes(), type=Annotated[list[Report], msgspec.Meta(min_length=1)])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} holds no reports of this version: {error}; `plan --save FILE` writes such") from error
    return reports
