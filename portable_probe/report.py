"""The report: one device, one softmax or kernel on it, and the answer. It is what --json prints and --save writes."""

import importlib.metadata
import math
import platform
from typing import Any

import msgspec

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.device import Device
from portable_softmax.devices.schema import Source
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Scores
from portable_softmax.row_kernels.inspection import Chosen

SCHEMA_VERSION = 6
PACKAGES = ("portable-softmax", "torch", "triton", "triton-ascend", "triton-xpu", "torch-npu", "numpy")
WRONG = "WrongResult"
Scalar = bool | int | float | str | None
FactValue = int | tuple[int, ...]


class Fields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A JSON object. A key that has nothing to say is left out; unknown keys of newer versions are ignored."""


class DeviceInfo(Fields, frozen=True, kw_only=True):
    """A device, and the profile that describes it."""

    name: str
    backend: str
    arch: int | str
    architecture: str
    profile: str
    multiprocessor: str  # the vendor's word for it
    here: bool
    index: int | None = None


class Fact(Fields, frozen=True, kw_only=True):
    """One fact of the hardware by runtime and profile, and the value that is used."""

    runtime: FactValue | None
    profile: FactValue | None
    used: FactValue
    origin: str = msgspec.field(name="from")
    profile_source: Source | None


class SoftmaxProblem(Fields, frozen=True, kw_only=True):
    """A softmax of the rows of a contiguous matrix, or its gradient; a mask has the matrix's shape."""

    n_rows: int
    n_cols: int
    dtype: str
    scores: Scores | None = None
    backward: bool = False

    def __str__(self) -> str:
        steps = _steps(self.scores) if self.scores else ""
        return f"{self.n_rows} x {self.n_cols} {self.dtype}{' backward' * self.backward}{f' with {steps}' if steps else ''}"


class KernelCall(Fields, frozen=True, kw_only=True):
    """A launch of a user kernel, in the words of the command line."""

    name: str  # FILE:NAME
    arguments: dict[str, str] = {}
    options: dict[str, Scalar] = {}  # of Triton's backend
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

    schema_version: int
    software: dict[str, str]
    device: DeviceInfo
    facts: dict[str, Fact]
    problem: SoftmaxProblem | None = None
    kernel: KernelCall | None = None
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

    @property
    def case(self) -> Case:
        """The softmax or the kernel."""
        assert self.problem or self.kernel, "load() refuses such a report"
        return self.problem or self.kernel  # type: ignore[return-value]

    @property
    def key(self) -> tuple[str, str]:
        """The device's profile and the case."""
        return self.device.profile, str(self.case)


def describe(device: Device, case: Case) -> Report:
    """Returns the report of a device and a case, without an answer."""
    detected = device.detected
    runtime = {**detected.torch, **detected.driver} if detected else {}
    facts = {
        key: Fact(
            runtime=runtime.get(key),
            profile=getattr(device.profile.hardware, key),
            used=getattr(device.hardware, key),
            origin=origin,
            profile_source=device.profile.origins.get(key),
        )
        for key, origin in device.origins.items()
    }
    about = DeviceInfo(
        name=device.name, backend=device.backend, arch=device.arch, index=device.index, here=detected is not None,
        architecture=device.profile.architecture, profile=device.profile.name, multiprocessor=device.profile.multiprocessor,
    )  # fmt: skip
    subject: dict[str, Any] = {"problem" if isinstance(case, SoftmaxProblem) else "kernel": case}
    return Report(schema_version=SCHEMA_VERSION, software=software(), device=about, facts=facts, **subject)


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


def _steps(scores: Scores) -> str:
    """Returns the names of the steps before the softmax."""
    steps = {
        f"scale{' of each row' if scores.scale == 'rows' else ''}": scores.scale,
        f"softcap {scores.cap}": scores.cap,
        f"temperature{' of each row' if scores.temperature == 'rows' else ''}": scores.temperature,
        f"{'boolean' if scores.mask == 'bool' else f'added {scores.mask}'} mask": scores.mask,
        "causal" if scores.causal == "upper_left" else f"causal {scores.causal}": scores.causal,
        "sink": scores.sink,
    }
    return " and ".join(name for name, is_done in steps.items() if is_done)
