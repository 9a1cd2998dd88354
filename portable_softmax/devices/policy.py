"""Preferences for launches, as data: a profile's `launch`.

Hardware facts and the compiled kernel determine which launches are possible, and a few measured times what a launch costs.
"""

from typing import Annotated, Literal

import msgspec

from portable_softmax.devices.schema import Fact, PowerOfTwo, Sizes

MOST_POLLS = 2**16  # a choice of this project: some hundredths of a second

Unset = msgspec.UnsetType
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class Polls(Fact, frozen=True, forbid_unknown_fields=True):
    """Number of polls of a neighbour's words. It is limited, because a poll takes time."""

    value: Annotated[int, msgspec.Meta(ge=1, le=MOST_POLLS)]


class CostNumbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Numbers of a device that no data sheet has: times of the parts of a launch; `portable-softmax tune` fits them."""

    start_us: Amount  # a launch that moves nothing
    bandwidth: Amount  # that long launches get, in parts of the data sheet's
    l2_bandwidth: Amount  # the same, of sectors that only the L2 cache moves, and of spilled registers
    line: Amount  # time of a cache line's piece that is moved alone, in parts of what the line leaves out
    walking: Amount  # time of moving that is added where programs walk over rows, in parts of moving
    waiting: Amount  # of moving, that is added for each warp of a program, as all wait for the sums of rows
    latency_us: Amount  # of memory
    element_ns: Amount  # of a thread, for each element, and again for each exponential
    issue_ns: Amount  # of a multiprocessor, for each access or shuffle of a warp
    exchange_us: Amount  # until programs that share rows know each other's statistics
    turnover_us: Amount  # until a program that follows another one begins
    launch_ns: Amount  # of the device, for each program


COST_NUMBERS = CostNumbers.__struct_fields__


class Cost(CostNumbers, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All numbers of a device's cost, and the error of its times."""

    error_90: Amount | Unset = msgspec.UNSET  # relative, of nine of ten times of problems that were left out of the fit
    source: str  # the key of their source


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of programs. `tile`: one per tile. `resident`: as many as are resident at once, in a loop over tiles."""

    value: Literal["tile", "resident"]
    source: str


class BufferBytes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bytes of the Unified Buffer that a tile requires."""

    value: dict[str, Amount]  # per element, by operations and shapes: the most counts; "" of every tile
    row: Amount  # per row of log-probabilities, in addition
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
    row_elements: PowerOfTwo | Unset = msgspec.UNSET  # the same: of a tile of a single row, which is read once up to here
    stream_elements: PowerOfTwo | Unset = msgspec.UNSET  # the same: of a tile of a row that is read twice
    buffer_bytes: BufferBytes | Unset = msgspec.UNSET  # the same: where the compiler is not asked; left out, every tile may fit
    registers: Sizes | Unset = msgspec.UNSET  # of a thread, where the compiler has a few numbers to choose from
    cost: Cost | Unset = msgspec.UNSET  # left out, no time is expected
