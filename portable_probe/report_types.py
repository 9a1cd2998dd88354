"""Types of the reports that --json prints and --save writes."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.policy import Strategy
from portable_softmax.devices.schema import Source
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.scores import Scores
from portable_softmax.row_kernels.launched import Chosen

SCHEMA_VERSION = 5


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON object; keys that a newer version adds are passed over."""


class Versioned(Fields, frozen=True, kw_only=True):
    """An answer of this probe, or of an older or newer one."""

    schema_version: int


class DeviceInfo(Fields, frozen=True, kw_only=True):
    """A device that was asked about, and which profile it was taken for."""

    name: str
    backend: str
    arch: int | str
    architecture: str
    here: bool
    index: int | None
    profile: str
    multiprocessor: str  # the vendor's word for it


Scalar = bool | int | float | str | None
FactValue = int | tuple[int, ...]


class Fact(Fields, frozen=True, kw_only=True):
    """One fact of the hardware, a number or all sizes that there are: by runtime and profile, and which is used."""

    runtime: FactValue | None
    profile: FactValue | None
    used: FactValue
    origin: str = msgspec.field(name="from")
    profile_source: Source | None


class SoftmaxProblem(Fields, frozen=True, kw_only=True):
    """A softmax of the rows of a contiguous matrix, or of their scores, whose mask is as large; or its gradient."""

    n_rows: int
    n_cols: int
    dtype: str
    scores: Scores | UnsetType = UNSET
    backward: bool | UnsetType = UNSET  # the gradient of x, from that of the result


class Launch(Fields, frozen=True, kw_only=True):
    """The plan of a softmax: what LaunchPlan holds of these names."""

    strategy: Strategy
    tiling: Tiling
    num_programs: int
    resources: KernelResources
    occupancy: Occupancy
    reasons: tuple[str, ...]


class KernelLaunch(Fields, frozen=True, kw_only=True):
    """The launch that Triton makes of a kernel; values that JSON lacks are text."""

    arguments: dict[str, str]  # types of the run-time arguments, and what Triton knows of each
    constants: dict[str, Chosen]
    options: dict[str, Chosen]


class Time(Fields, frozen=True, kw_only=True):
    """Microseconds that the launch of a softmax should take, and what they depend on."""

    bytes: int  # read and written once
    floor_us: float  # at the data sheet's bandwidth
    waves: float  # programs of the launch for each that is resident at once
    tail: float  # part of the last wave's places that stay empty
    covered_us: float  # of the memory's latency, by the loads that resident programs have in flight (Little's law)
    expected_us: float | None  # null where the profile has no numbers for it
    terms: dict[str, float] = {}  # what it is the sum of; docs/cost.md explains each
    source: str | None  # of the numbers that the expected time follows from; null without one
    error: float | None  # of nine in ten launches of problems that were left out of the fit; null where numbers are assumed


class KernelUse(Fields, frozen=True, kw_only=True):
    """A kernel of the user's: how to launch it again, the launch that Triton makes, what a program uses, and how many fit."""

    name: str  # FILE:NAME
    arguments: dict[str, str]  # in the words of --args
    options: dict[str, Scalar]  # of Triton's backend, that were given
    config: int | None
    case: str | None  # the function of its file that makes arguments
    grid: list[int] | UnsetType = UNSET  # numbers of programs, of a case
    chosen: dict[str, Scalar] | UnsetType = UNSET  # by that configuration, where configurations differ; or by --suggest
    reasons: list[str] | UnsetType = UNSET  # of --suggest
    warnings: list[str] | UnsetType = UNSET
    launch: KernelLaunch | UnsetType = UNSET  # left out, with the next two, where it does not compile
    resources: KernelResources | UnsetType = UNSET
    occupancy: Occupancy | UnsetType = UNSET
    resident_programs: int | UnsetType = UNSET  # of the whole device


class NextStep(Fields, frozen=True, kw_only=True):
    """The least reduction that lets one more program in; `fewer` is empty where none does."""

    fewer: dict[str, int]
    programs: int
    instead_of: int
    text: str


class Verified(Fields, frozen=True, kw_only=True):
    """Distance of a result from float64; null is not finite."""

    max_error: float | None  # the largest
    worst: float | None  # the largest in units of what is allowed: above 1, or an element never written, is wrong
    overwritten: int  # elements next to the result that the kernel changed
    right: bool
    executed: str | UnsetType = UNSET  # what ran, in words, on a virtual device
    worst_at: str | UnsetType = UNSET  # of a kernel: the argument and the index, if it is wrong
    rows: int | UnsetType = UNSET  # of the softmax, that ran there
    instructions: int | UnsetType = UNSET  # of waves, there


class Report(Fields, frozen=True, kw_only=True):
    """One device and one softmax or kernel on it; a key is left out where it was not asked for, or could not be had."""

    schema_version: int
    software: dict[str, str]
    device: DeviceInfo
    facts: dict[str, Fact]
    problem: SoftmaxProblem | UnsetType = UNSET
    plan: Launch | UnsetType = UNSET
    time: Time | UnsetType = UNSET
    kernel: KernelUse | UnsetType = UNSET
    next_step: NextStep | UnsetType = UNSET
    verify: Verified | UnsetType = UNSET
    dump: list[str] | UnsetType = UNSET
    error: str | UnsetType = UNSET
    message: str | UnsetType = UNSET


class Change(Fields, frozen=True, kw_only=True):
    """One number of a case that is not what it was."""

    device: str
    case: str
    what: str  # the number's name, or error
    before: Scalar
    after: Scalar
    worse: bool  # another plan, fewer resident programs, more spilled bytes, or a new error


class Comparison(Fields, frozen=True, kw_only=True):
    """Difference of a run from a saved one."""

    schema_version: int
    before: dict[str, str]  # versions, as `software`
    after: dict[str, str]
    cases: int
    changes: list[Change]
    regressed: bool  # some change is for the worse
    error: str | UnsetType = UNSET  # with a message, if it is so
    message: str | UnsetType = UNSET


def encoded(answer: Any) -> str:
    """Returns an answer as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
