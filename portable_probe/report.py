"""The report: one device, one softmax or kernel on it, and the answer. It is what --json prints and --save writes."""

import importlib.metadata
import math
import platform
from typing import Any, Literal

import msgspec

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import NONE, Scores
from portable_softmax.row_kernels.inspection import Chosen

PACKAGES = ("portable-softmax", "torch", "triton", "triton-ascend", "triton-xpu", "torch-npu", "numpy")
Scalar = bool | int | float | str | None


class Fields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON object. A key that has nothing to say is left out; unknown keys of newer versions are ignored."""


class DeviceInfo(Fields, frozen=True, kw_only=True):
    """A device, and the profile that describes it."""

    name: str
    backend: str
    arch: int | str
    profile: str
    multiprocessor: str  # the vendor's word for it
    max_warps: int | None  # of a multiprocessor
    here: bool
    index: int | None = None


class SoftmaxProblem(Fields, frozen=True, kw_only=True, tag="softmax"):
    """A softmax of the rows of a contiguous matrix, or its gradient; a mask has the matrix's shape."""

    n_rows: int
    n_cols: int
    dtype: str
    scores: Scores = NONE
    backward: bool = False

    def __str__(self) -> str:
        scores = self.scores
        steps = {
            f"scale{' of each row' * (scores.scale == 'rows')}": scores.scale,
            f"softcap {scores.cap}": scores.cap,
            f"temperature{' of each row' * (scores.temperature == 'rows')}": scores.temperature,
            f"{'boolean' if scores.mask == 'bool' else f'added {scores.mask}'} mask": scores.mask,
            "causal" if scores.causal == "upper_left" else f"causal {scores.causal}": scores.causal,
            "sink": scores.sink,
        }
        names = " and ".join(name for name, is_done in steps.items() if is_done)
        return f"{self.n_rows} x {self.n_cols} {self.dtype}{' backward' * self.backward}{f' with {names}' if names else ''}"


class KernelCall(Fields, frozen=True, kw_only=True, tag="kernel"):
    """A launch of a user kernel, in the words of the command line."""

    name: str  # FILE:NAME
    arguments: dict[str, str] = {}  # and options of Triton's backend
    config: int | None = None
    case: str | None = None  # the function in its file that makes arguments
    suggested: dict[str, Scalar] = {}  # computed constexprs and options

    def __str__(self) -> str:
        return f"{self.name} {self.variant}".rstrip()

    @property
    def variant(self) -> str:
        """What distinguishes this launch from others of the kernel."""
        values = {} if self.config is None else {"configuration": self.config}
        return " ".join(f"{name} {value}" for name, value in {**values, **self.suggested}.items())


Case = SoftmaxProblem | KernelCall


class Launch(Fields, frozen=True, kw_only=True):
    """A planned softmax (tiling, num_programs), or what Triton makes of a kernel; values that JSON lacks are text."""

    tiling: Tiling | None = None
    num_programs: int | None = None
    grid: tuple[int, ...] | None = None
    arguments: dict[str, str] = {}  # types of the run-time arguments, and what Triton knows about their values
    constants: dict[str, Chosen] = {}
    options: dict[str, Chosen] = {}


class Time(Fields, frozen=True, kw_only=True):
    """Estimated microseconds."""

    expected_us: float | None = None  # absent where the profile has no cost
    terms: dict[str, float] = {}  # of the sum; planning/cost.py explains them
    error: float | None = None  # relative error of nine in ten launches; absent where numbers are assumed
    bytes: int | None = None  # read and written once
    floor_us: float | None = None  # for these bytes at the data sheet's bandwidth


class Verified(Fields, frozen=True, kw_only=True):
    """Distance of a result from float64; null is not finite."""

    max_error: float | None
    worst: float | None  # the largest error in units of the tolerance: above 1 is wrong
    overwritten: int  # elements outside the result that the kernel changed
    right: bool
    worst_at: str | None = None  # argument and index, if it is wrong
    executed: str | None = None  # what ran, if it was an emulator


class Report(Fields, frozen=True, kw_only=True):
    """One device and one softmax or kernel on it."""

    schema_version: Literal[7]
    software: dict[str, str]
    device: DeviceInfo
    case: Case
    launch: Launch | None = None  # absent, with the next two, if nothing was compiled
    resources: KernelResources | None = None
    occupancy: Occupancy | None = None
    resident_programs: int | None = None  # on the whole device
    time: Time | None = None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    next_step: str | None = None  # what would raise occupancy
    verify: Verified | None = None
    error: str | None = None
    message: str | None = None


def describe(device: Device, case: Case) -> Report:
    """Returns the report of a device and a case, without an answer."""
    about = DeviceInfo(
        name=device.name, backend=device.backend, arch=device.arch, index=device.index, here=device.detected is not None,
        profile=device.profile.name, multiprocessor=device.profile.multiprocessor,
        max_warps=device.hardware.max_warps_per_multiprocessor,
    )  # fmt: skip
    return Report(schema_version=7, software=software(), device=about, case=case)


def software() -> dict[str, str]:
    """Returns the versions of Python and of the packages that matter, if they are installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def json_value(value: Any) -> Scalar:
    """Returns a value as it is, or as text if JSON has no such value."""
    plain = value is None or isinstance(value, bool | int | str) or (type(value) is float and math.isfinite(value))
    return value if plain else str(value)


def encoded(answer: Any) -> str:
    """Returns an answer as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
