"""Contents of a profile's file: hardware facts and preferences for launches, each with a source. What is unknown is absent."""

from typing import Annotated, Any, Literal

import msgspec

LARGEST_TILE = 2**20  # elements of a tensor in Triton: TRITON_MAX_TENSOR_NUMEL in python/triton/_utils.py
LARGEST_COUNT = 2**16  # of multiprocessors, warps, slots: any real device has far fewer; of polls, which take 10 ms then

Positive = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Unset = msgspec.UnsetType
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one device, in Triton's words. None means that a fact is unknown or that there is no such limit.

    A *multiprocessor* is what the vendor's driver counts: SM (NVIDIA), CU (AMD CDNA), WGP of two CUs (AMD RDNA),
    vector core (Ascend), Xe core (Intel). *Shared memory* is LDS on AMD, the Unified Buffer on Ascend, SLM on Intel.
    """

    multiprocessor_count: int | None = None
    warp_size: int | None = None  # threads; a wavefront on AMD
    partitions_per_multiprocessor: int | None = None  # SM sub-partitions, SIMDs: each owns a slice of the registers
    registers_per_multiprocessor: int | None = None  # 32-bit, all lanes of all partitions
    register_granule: int | None = None  # registers per thread that are allocated together
    max_registers_per_thread: int | None = None
    max_threads_per_program: int | None = None
    max_warps_per_multiprocessor: int | None = None
    max_programs_per_multiprocessor: int | None = None
    barriers_per_multiprocessor: int | None = None  # a program of several warps takes one
    shared_memory_per_program_max: int | None = None  # bytes
    shared_memory_per_multiprocessor: int | None = None  # bytes
    shared_memory_granule: int | None = None  # bytes
    shared_memory_sizes: tuple[int, ...] | None = None  # bytes: all sizes that a program can have, if there are few
    shared_memory_reserved_per_program: int | None = None  # bytes that the driver takes from every program
    tensor_memory_columns: int | None = None  # of a multiprocessor
    memory_alignment: int | None = None  # bytes; a narrower row of a tile is padded to this
    max_programs: int | None = None  # programs of one launch; along x, where the next is known
    max_programs_y_z: int | None = None  # along y, and along z
    max_threads: int | None = None  # threads of one launch, of all axes
    l2_cache_bytes: int | None = None
    last_level_cache_bytes: int | None = None  # MALL, Infinity Cache
    memory_bytes: int | None = None
    memory_bandwidth_gb_per_s: int | None = None  # 10^9 bytes per second


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a file; a key that it lacks is refused."""


class Source(Content, frozen=True):
    """Source of a number, and how far it was checked."""

    verified: Literal["measured", "vendor", "third-party"]
    title: Text
    url: str | Unset = msgspec.UNSET


class Fact(Content, frozen=True):
    """A number and the key of its source in the file's `sources`."""

    value: Positive
    source: str


class Sizes(Content, frozen=True):
    """All sizes that exist, in ascending order, and the key of their source."""

    value: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
    source: str


class Count(Fact, frozen=True):
    """A number of parts of a device, or of polls."""

    value: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]


class PowerOfTwo(Fact, frozen=True):
    """A number that Triton requires to be a power of two: threads of a warp, elements of a tile."""

    value: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE)]

    def __post_init__(self) -> None:
        if self.value.bit_count() != 1:
            raise ValueError(f"{self.value} is not a power of two")


COUNTS = "multiprocessor_count partitions_per_multiprocessor register_granule max_registers_per_thread "
COUNTS += "max_warps_per_multiprocessor max_programs_per_multiprocessor barriers_per_multiprocessor tensor_memory_columns"
KINDS: dict[str, Any] = {
    "shared_memory_sizes": Sizes,
    **dict.fromkeys(COUNTS.split(), Count),
    **dict.fromkeys(("warp_size", "max_threads_per_program", "memory_alignment"), PowerOfTwo),
}
HardwareFacts: Any = msgspec.defstruct(
    "HardwareFacts",
    [(key, KINDS.get(key, Fact) | Unset, msgspec.UNSET) for key in Hardware.__struct_fields__],
    bases=(Content,),
    frozen=True,
    namespace={"__doc__": "The fields of Hardware, each with its source."},
)


class CostNumbers(Content, frozen=True, kw_only=True):
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


class Cost(CostNumbers, frozen=True, kw_only=True):
    """All numbers of a device's cost, and the error of its times."""

    error_90: Amount | Unset = msgspec.UNSET  # relative: nine in ten times err less, on problems outside the fit
    source: str  # the key of their source


class Grid(Content, frozen=True):
    """Number of programs. `tile`: one per tile. `resident`: as many as are resident at once, in a loop over tiles."""

    value: Literal["tile", "resident"]
    source: str


class BufferBytes(Content, frozen=True):
    """Bytes of the Unified Buffer that a tile requires."""

    value: dict[str, Amount]  # per element, by operations and shapes: the most counts; "" of every tile
    row: Amount  # per row of log-probabilities, in addition
    source: str


class LaunchPolicy(Content, frozen=True, kw_only=True):
    """Preferences for launches that were measured or reasoned, never limits. `extends` provides what a file leaves out."""

    grid: Grid
    polls: Count | Unset = msgspec.UNSET  # looks for a neighbour's numbers; then a program computes them itself
    line_elements: PowerOfTwo | Unset = msgspec.UNSET  # elements that a tile takes of each line, for rows side by side
    min_line_elements: PowerOfTwo | Unset = msgspec.UNSET  # the fewest that it takes, if it holds whole rows
    tile_elements: PowerOfTwo | Unset = msgspec.UNSET  # of devices without warps: the most of a tile of whole rows
    row_elements: PowerOfTwo | Unset = msgspec.UNSET  # the same: of a tile of a single row, which is read once up to here
    stream_elements: PowerOfTwo | Unset = msgspec.UNSET  # the same: of a tile of a row that is read twice
    buffer_bytes: BufferBytes | Unset = msgspec.UNSET  # the same: where the compiler is not asked; left out, every tile may fit
    registers: Sizes | Unset = msgspec.UNSET  # of a thread, where the compiler has a few numbers to choose from
    cost: Cost | Unset = msgspec.UNSET  # left out, no time is expected


def set_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of a struct that its file sets."""
    return {key: value for key in struct.__struct_fields__ if (value := getattr(struct, key)) is not msgspec.UNSET}
