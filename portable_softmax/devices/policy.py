"""Preferences for launches, as data: a profile's `launch`.

Hardware facts and the compiled kernel say what is possible. What a launch costs depends on a few times that no data
sheet tells, and that are measured.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec

from portable_softmax.devices.schema import Fact, PowerOfTwo, Sizes

MOST_POLLS = 2**16  # a choice of this project: some hundredths of a second

Strategy = Literal["tile", "online", "shared"]
Unset = msgspec.UnsetType
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Exponent = Annotated[float, msgspec.Meta(ge=1, le=20)]  # of a power that stays a float


class Polls(Fact, frozen=True, forbid_unknown_fields=True):
    """Number of looks at a neighbour's words. It is limited, because each look takes time."""

    value: Annotated[int, msgspec.Meta(ge=1, le=MOST_POLLS)]


class CostNumbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Numbers of a device that no data sheet tells: times of what a launch does; `portable-softmax tune` fits them.

    Args:
        start_us: a launch that moves nothing.
        bandwidth: that long launches get, in parts of the data sheet's.
        overlap: exponent with which moving, waves and starting add: 1 is one after the other, more is at the same time.
        in_step: waves in which programs still wait at the same time, at most.
        exchange_us: until programs that share rows know each other's statistics.
        lookup_ns: of a multiprocessor, for each of the statistics that a program reads.
        program_ns: of a multiprocessor, for each program that it starts.
        thread_ns: of a thread, for each element of an operand.
        alone_ps: of a multiprocessor, for each element with an address or a mask of its own.
        request_ps: of a multiprocessor, for each cache line that a warp asks for.
        exponent_ps: of a multiprocessor, for each element that a softmax raises e to.
        sum_ps: of a multiprocessor, for each number that a thread gives another one, to add up rows.
        step_us: until the next block of a row that is read twice is there.
        line: time of a cache line's piece that is moved alone, in parts of what the line leaves out.
        again: bandwidth of bytes that are read again, in parts of the data sheet's.
        spilled: the same of bytes that are spilled.
    """

    start_us: Amount
    bandwidth: Amount
    overlap: Exponent
    in_step: Amount
    exchange_us: Amount
    lookup_ns: Amount
    program_ns: Amount
    thread_ns: Amount
    alone_ps: Amount
    request_ps: Amount
    exponent_ps: Amount
    sum_ps: Amount
    step_us: Amount
    line: Amount
    again: Amount
    spilled: Amount


COST_NUMBERS = CostNumbers.__struct_fields__


class RowNumbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same for kernels of anybody's that go over rows.

    Args:
        start_us: a launch that moves nothing.
        bandwidth: that programs of one row get, in parts of the data sheet's.
        walking: time of moving that is added where programs walk over rows, whose number the fastest cannot share.
        overlap: exponent with which moving and turns add: 1 is one after the other, more is at the same time.
        latency_us: of the memory.
        ahead: how much each row that is loaded ahead hides of it.
        thread_ns: of a thread, for each element of an operand.
        exponent_ns: of a thread, for each element that e is raised to.
        reduction_us: of a warp; log2(threads) / 5 times as much of a program.
        begin_ns: until a program that follows another one begins, for each of its warps.
        warp_ns: of a multiprocessor, for each warp and block.
        stage_ns: the same, where blocks are loaded through shared memory.
        access_ns: of a multiprocessor, for each access of a warp.
    """

    start_us: Amount
    bandwidth: Amount
    walking: Amount
    overlap: Exponent
    latency_us: Amount
    ahead: Amount
    thread_ns: Amount
    exponent_ns: Amount
    reduction_us: Amount
    begin_ns: Amount
    warp_ns: Amount
    stage_ns: Amount
    access_ns: Amount


ROW_NUMBERS = RowNumbers.__struct_fields__


class Cost(CostNumbers, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All numbers of a device's cost, and how well they are known.

    Args:
        errors: relative standard error of each number, if they were fitted.
        error_90: relative error of the expected time that nine of ten launches keep, of problems that were left out of the fit.
        source: the key of their source.

    Raises:
        ValueError: an error is of no number.
    """

    errors: dict[str, Amount] | Unset = msgspec.UNSET
    error_90: Amount | Unset = msgspec.UNSET
    source: str

    def __post_init__(self) -> None:
        _check_errors(self.errors or {}, COST_NUMBERS)


class RowCost(RowNumbers, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All numbers of a row kernel's cost, and how well they are known; the last fields are those of Cost."""

    errors: dict[str, Amount] | Unset = msgspec.UNSET
    error_90: Amount | Unset = msgspec.UNSET
    source: str

    def __post_init__(self) -> None:
        _check_errors(self.errors or {}, ROW_NUMBERS)


def _check_errors(errors: Iterable[str], numbers: Sequence[str]) -> None:
    if unknown := sorted(set(errors) - set(numbers)):
        raise ValueError(f"errors of {', '.join(unknown)}; the numbers are {', '.join(numbers)}")


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of programs. `tile`: one per tile. `resident`: as many as the device holds at once, and each walks over tiles."""

    value: Literal["tile", "resident"]
    source: str


class LaunchPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Preferences for launches that were measured or reasoned, never limits.

    What a file leaves out is that of the architecture which it extends.
    """

    grid: Grid | Unset = msgspec.UNSET
    polls: Polls | Unset = msgspec.UNSET  # looks for a neighbour's numbers; then a program computes them itself
    line_elements: PowerOfTwo | Unset = msgspec.UNSET  # elements that a tile takes of each line, for rows side by side
    min_line_elements: PowerOfTwo | Unset = msgspec.UNSET  # the fewest that it takes, if it holds whole rows
    tile_elements: PowerOfTwo | Unset = msgspec.UNSET  # of devices without warps: the most of a tile of whole rows
    stream_elements: PowerOfTwo | Unset = msgspec.UNSET  # the same: of a tile of a row that is read twice
    registers: Sizes | Unset = msgspec.UNSET  # of a thread, where the compiler has a few numbers to choose from
    cost: Cost | Unset = msgspec.UNSET  # left out, no time is expected
    rows: RowCost | Unset = msgspec.UNSET  # the same of kernels of anybody's

    def over(self, other: "LaunchPolicy") -> "LaunchPolicy":
        """Returns these preferences, with the other's where they say nothing."""
        mine = {key: value for key in FACTS if (value := getattr(self, key)) is not msgspec.UNSET}
        return msgspec.structs.replace(other, **mine)


FACTS = LaunchPolicy.__struct_fields__
