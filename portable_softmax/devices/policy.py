"""Preferences for launches, as data: a profile's `launch`.

Hardware facts and the compiled kernel say what is possible, and most of a launch is computed from them. What no fact tells are
a few numbers, which are measured. A row of numbers may be for some problems only; the first row that takes a problem and gives
a number decides it.
"""

from typing import Annotated, Any, Literal

import msgspec

from portable_softmax.devices.schema import LARGEST_TILE, Fact, Positive, PowerOfTwo, Sizes

MOST_POLLS = 2**16  # a choice of this project: some hundredths of a second
MOST_PAIRED = 4096  # columns: two rows are held at once
LEAST_GAIN = 1.03  # of a row for some problems: less is not worth its reader

Strategy = Literal["tile", "online", "shared"]
Direction = Literal["forward", "backward"]
Access = Literal["vector", "narrow", "scalar", "unaligned", "paired"]
Layout = Literal["rows", "across", "transposed"]
Step = Literal["reduce", "map"]
Unset = msgspec.UnsetType
Elements = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE)]
Power = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE, extra_json_schema={"enum": [2**power for power in range(21)]})]
PerThread = Annotated[int, msgspec.Meta(ge=16, le=1024, extra_json_schema={"enum": [2**power for power in range(4, 11)]})]
Pairs = Annotated[int, msgspec.Meta(ge=1, le=MOST_PAIRED)]
Words = Annotated[float, msgspec.Meta(gt=0, le=1024)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Exponent = Annotated[float, msgspec.Meta(ge=1, le=20)]  # of a power that stays a float


class NumberRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of `launch.numbers`: conditions, and numbers for problems that meet them. A condition that is absent always holds.

    Raises:
        ValueError: no problem meets the conditions, or the row gives no number.
    """

    source: str
    gain: Annotated[float, msgspec.Meta(ge=LEAST_GAIN)] | Unset = msgspec.UNSET  # how much faster it was, if measured

    direction: Direction | Unset = msgspec.UNSET
    element_bytes: Literal[2, 4, 8] | Unset = msgspec.UNSET  # of the result's type
    # vector: 16 bytes; narrow: fewer; scalar: one element; unaligned: 16 bytes between two edges; paired: two rows in one
    access: Access | Unset = msgspec.UNSET
    layout: Layout | Unset = (
        msgspec.UNSET
    )  # rows: a row's elements are contiguous; across: side by side; transposed: see Problem
    scores: bool | Unset = msgspec.UNSET  # whether x is scaled, masked, or divided by a temperature
    from_cols: Positive | Unset = msgspec.UNSET  # shortest row, in elements
    to_cols: Positive | Unset = msgspec.UNSET  # longest row
    from_load: Positive | Unset = msgspec.UNSET  # elements of all rows for each thread that the device holds at once
    to_load: Positive | Unset = msgspec.UNSET

    unaligned_cols: Positive | Unset = msgspec.UNSET  # the least of rows that start anywhere and are read between two edges
    paired_cols: Pairs | Unset = msgspec.UNSET  # the most of rows of an odd length whose gradients are read two in one
    words_forward: Words | Unset = msgspec.UNSET  # of short rows: words of 32 bits that a thread reads
    words_backward: Words | Unset = msgspec.UNSET  # of both operands
    short_warps: Power | Unset = msgspec.UNSET  # of a program with several rows; left out, one for each partition
    elements_per_thread: PerThread | Unset = msgspec.UNSET  # of a tile in blocks; half as many in one block
    bytes_per_block: Literal[4, 8, 16, 32] | Unset = msgspec.UNSET  # of a tile, for each thread
    row_share: Share | Unset = msgspec.UNSET  # of the registers, for a row in one tile
    beside_share: Share | Unset = msgspec.UNSET  # of the registers, for a tile of rows side by side
    matrix_bytes: Positive | Unset = msgspec.UNSET  # the most of a matrix of rows side by side of which a tile takes several
    elements_per_split: Elements | Unset = msgspec.UNSET  # for each thread and operand
    split_warps: Power | Unset = msgspec.UNSET  # left out, one for each partition of a multiprocessor
    split_registers: Positive | Unset = msgspec.UNSET  # of a thread; left out, the compiler chooses
    fewest_programs: Positive | Unset = msgspec.UNSET  # on a multiprocessor; with fewer, splits have half the size
    numbers_per_thread: Positive | Unset = msgspec.UNSET  # of other splits, where rows lie side by side
    held_across: Literal[2, 4] | Unset = msgspec.UNSET  # bytes of an element from which splits side by side are held
    spilled_bytes: Positive | Unset = msgspec.UNSET  # of a thread, for a tile that is sized for the registers
    tile_elements: Power | Unset = msgspec.UNSET  # of devices without warps: the most of a tile
    stream_elements: Power | Unset = msgspec.UNSET  # the same: of a tile of a row that is read twice
    registers: list[Positive] | Unset = msgspec.UNSET  # of a thread, where the compiler has a few sizes to choose from

    def __post_init__(self) -> None:
        for key in ("cols", "load"):
            first, last = getattr(self, f"from_{key}"), getattr(self, f"to_{key}")
            if first and last and first > last:
                raise ValueError(f"from_{key} {first} is above to_{key} {last}")
        for key in ("elements_per_thread", "short_warps", "split_warps", "tile_elements", "stream_elements"):
            if (value := getattr(self, key)) and value.bit_count() != 1:
                raise ValueError(f"{key} {value} is not a power of two")
        if not self.given:
            raise ValueError(f"a row gives at least one number: {', '.join(NUMBERS)}")

    @property
    def conditions(self) -> dict[str, Any]:
        """Returns the conditions that are given, by key."""
        return {key: value for key in CONDITIONS if (value := getattr(self, key)) is not msgspec.UNSET}

    @property
    def given(self) -> dict[str, Any]:
        """Returns the numbers that are given, by key."""
        return {key: value for key in NUMBERS if (value := getattr(self, key)) is not msgspec.UNSET}


CONDITIONS = ("direction", "element_bytes", "access", "layout", "scores", "from_cols", "to_cols", "from_load", "to_load")
NUMBERS = tuple(key for key in NumberRow.__struct_fields__ if key not in (*CONDITIONS, "source", "gain"))
OF_WARPS = (
    *("words_forward", "words_backward", "elements_per_thread", "bytes_per_block", "row_share", "beside_share"),
    *("elements_per_split", "fewest_programs", "numbers_per_thread", "spilled_bytes"),
)  # that a device with warps needs
OF_VECTOR_CORES = ("tile_elements", "stream_elements")  # that another needs


class Polls(Fact, frozen=True, forbid_unknown_fields=True):
    """Number of looks at a neighbour's words. It is limited, because each look takes time."""

    value: Annotated[int, msgspec.Meta(ge=1, le=MOST_POLLS)]


class PairedCols(Fact, frozen=True, forbid_unknown_fields=True):
    """The longest row whose gradient is read two in one. It is limited, because two rows are held at once."""

    value: Pairs


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
        edge_ps: of a multiprocessor, for each element on both sides of an unaligned row.
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
    edge_ps: Amount
    request_ps: Amount
    exponent_ps: Amount
    sum_ps: Amount
    step_us: Amount
    line: Amount
    again: Amount
    spilled: Amount


COST_NUMBERS = CostNumbers.__struct_fields__


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
        if unknown := sorted((self.errors or {}).keys() - set(COST_NUMBERS)):
            raise ValueError(f"errors of {', '.join(unknown)}; the numbers are {', '.join(COST_NUMBERS)}")


class InPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Launches that overwrite x. `shared`: programs may share its rows, as a fence orders what is seen of them."""

    value: Literal["shared"]
    source: str


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Number of programs. `tile`: one per tile. `resident`: as many as the device holds at once, and each walks over tiles."""

    value: Literal["tile", "resident"]
    source: str


class LaunchPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Preferences for launches that were measured or reasoned, never limits.

    What a file leaves out is that of the architecture which it extends; its rows of numbers go before the other's.
    """

    extends: str | Unset = msgspec.UNSET  # an architecture by name, as nvidia/estimated
    grid: Grid | Unset = msgspec.UNSET
    polls: Polls | Unset = msgspec.UNSET  # looks for a neighbour's numbers; then a program computes them itself
    in_place: InPlace | Unset = msgspec.UNSET  # left out, no programs share rows that they overwrite
    line_elements: PowerOfTwo | Unset = msgspec.UNSET  # elements that a tile takes of each line, for rows side by side
    min_line_elements: PowerOfTwo | Unset = msgspec.UNSET  # the fewest that it takes, if it holds whole rows
    unaligned_cols: Fact | Unset = msgspec.UNSET  # the shortest row that starts anywhere and is read between two edges
    paired_cols: PairedCols | Unset = msgspec.UNSET  # the longest row of an odd length whose gradients are read two in one
    matrix_bytes: Fact | Unset = msgspec.UNSET  # the largest matrix of rows side by side of which a tile takes several
    tile_elements: PowerOfTwo | Unset = msgspec.UNSET  # of devices without warps: the most of a tile of whole rows
    stream_elements: PowerOfTwo | Unset = msgspec.UNSET  # the same: of a tile of a row that is read twice
    registers: Sizes | Unset = msgspec.UNSET  # of a thread, where the compiler has a few numbers to choose from
    cost: Cost | Unset = msgspec.UNSET  # left out, no time is expected
    numbers: list[NumberRow] = []

    def over(self, other: "LaunchPolicy") -> "LaunchPolicy":
        """Returns these preferences, with the other's where they say nothing."""
        mine = {key: value for key in FACTS if (value := getattr(self, key)) is not msgspec.UNSET}
        return msgspec.structs.replace(other, **mine, extends=msgspec.UNSET, numbers=[*self.numbers, *other.numbers])


FACTS = tuple(key for key in LaunchPolicy.__struct_fields__ if key not in ("extends", "numbers"))
