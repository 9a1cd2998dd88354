"""Contents of a profile's file: hardware facts and preferences for launches, each with a source. What is unknown is absent."""

from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import msgspec

LARGEST_TILE = 2**20  # elements of a tensor in Triton: TRITON_MAX_TENSOR_NUMEL in python/triton/_utils.py
LARGEST_COUNT = 2**16  # of multiprocessors, warps, slots: any real device has far fewer; of polls, which take 10 ms then

Positive = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_COUNT)]  # of parts of a device, or of polls
Power = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE)]  # a power of two, which Triton requires of threads and elements
Sizes = Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]  # all that exist, in ascending order
Amount = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
POWERS_OF_TWO = {"warp_size", "max_threads_per_program", "memory_alignment", "line_elements", "min_line_elements"}
POWERS_OF_TWO |= {"tile_elements", "row_elements", "stream_elements"}
Text = Annotated[str, msgspec.Meta(min_length=1)]
Value = TypeVar("Value")


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a file; a key that it lacks is refused."""

    def stated(self) -> dict[str, Any]:
        """Returns the fields that are in the file."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class Hardware(Content, frozen=True, kw_only=True):
    """Facts of one device, in Triton's words. None means that a fact is unknown or that there is no such limit.

    A *multiprocessor* is what the vendor's driver counts: SM (NVIDIA), CU (AMD CDNA), WGP of two CUs (AMD RDNA),
    vector core (Ascend), Xe core (Intel). *Shared memory* is LDS on AMD, the Unified Buffer on Ascend, SLM on Intel.
    """

    multiprocessor_count: Count | None = None
    warp_size: Power | None = None  # threads; a wavefront on AMD
    partitions_per_multiprocessor: Count | None = None  # SM sub-partitions, SIMDs: each owns a slice of the registers
    registers_per_multiprocessor: Positive | None = None  # 32-bit, all lanes of all partitions
    register_granule: Count | None = None  # registers per thread that are allocated together
    max_registers_per_thread: Count | None = None
    max_threads_per_program: Power | None = None
    max_warps_per_multiprocessor: Count | None = None
    max_programs_per_multiprocessor: Count | None = None
    barriers_per_multiprocessor: Count | None = None  # a program of several warps takes one
    shared_memory_per_program_max: Positive | None = None  # bytes
    shared_memory_per_multiprocessor: Positive | None = None  # bytes
    shared_memory_granule: Positive | None = None  # bytes
    shared_memory_sizes: Sizes | None = None  # bytes: all sizes that a program can have, if there are few
    shared_memory_reserved_per_program: Positive | None = None  # bytes that the driver takes from every program
    tensor_memory_columns: Count | None = None  # of a multiprocessor
    memory_alignment: Power | None = None  # bytes; a narrower row of a tile is padded to this
    max_programs: Positive | None = None  # programs of one launch; along x, where the next is known
    max_programs_y_z: Positive | None = None  # along y, and along z
    max_threads: Positive | None = None  # threads of one launch, of all axes
    l2_cache_bytes: Positive | None = None
    last_level_cache_bytes: Positive | None = None  # MALL, Infinity Cache
    memory_bytes: Positive | None = None
    memory_bandwidth_gb_per_s: Positive | None = None  # 10^9 bytes per second


class Source(Content, frozen=True):
    """Source of a number, and how far it was checked."""

    verified: Literal["measured", "vendor", "third-party"]
    title: Text
    url: str | None = None


class Fact(Content, Generic[Value], frozen=True):
    """A value and the key of its source in the file's `sources`."""

    value: Value
    source: str


HardwareFacts: Any = msgspec.defstruct(
    "HardwareFacts",
    [(field.name, Fact[get_args(field.type)[0]] | None, None) for field in msgspec.structs.fields(Hardware)],  # type: ignore[misc]
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
    latency_us: Amount  # of memory
    element_ns: Amount  # of a thread, for each element, and again for each exponential
    issue_ns: Amount  # of a multiprocessor, for each access or shuffle of a warp
    exchange_us: Amount  # until programs that share rows know each other's statistics
    turnover_us: Amount  # until a program that follows another one begins
    launch_ns: Amount  # of the device, for each program


COST_NUMBERS = CostNumbers.__struct_fields__


class Cost(CostNumbers, frozen=True, kw_only=True):
    """All numbers of a device's cost, and the error of its times."""

    error_90: Amount | None = None  # relative: nine in ten times err less, on problems outside the fit
    source: str  # the key of their source


class LaunchPolicy(Content, frozen=True, kw_only=True):
    """Preferences for launches that were measured or reasoned, never limits. `extends` provides what a file leaves out."""

    grid: Fact[Literal["tile", "resident"]]  # programs: one per tile, or as many as are resident at once, in a loop over tiles
    polls: Fact[Count] | None = None  # of the words of a row's splits, at most; then a program reduces the whole row itself
    line_elements: Fact[Power] | None = None  # elements that a tile takes of each line, for rows side by side
    min_line_elements: Fact[Power] | None = None  # the fewest that it takes, if it holds whole rows
    tile_elements: Fact[Power] | None = None  # of devices without warps: the most of a tile of whole rows
    row_elements: Fact[Power] | None = None  # the same: of a tile of a single row, which is read once up to here
    stream_elements: Fact[Power] | None = None  # the same: of a tile of a row that is read twice
    buffer_bytes: Fact[dict[str, Amount]] | None = None  # the same: bytes of a tile, where no compiler is asked
    registers: Fact[Sizes] | None = None  # of a thread, where the compiler has a few numbers to choose from
    cost: Cost | None = None  # left out, no time is expected
