"""Contents of a profile's file: hardware facts, each with its source. What is unknown, or what a device lacks, is absent."""

from typing import Annotated, Any, Literal

import msgspec

LARGEST_TILE = 2**20  # elements of a tensor in Triton: TRITON_MAX_TENSOR_NUMEL in python/triton/_utils.py

Positive = Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


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


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Source of a number, and how far it was checked."""

    verified: Literal["measured", "vendor", "third-party"]
    title: Text
    url: str | msgspec.UnsetType = msgspec.UNSET


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number and the key of its source in the file's `sources`."""

    value: Positive
    source: str


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sizes that exist, in ascending order, and the key of their source."""

    value: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1)]
    source: str


class PowerOfTwo(Fact, frozen=True, forbid_unknown_fields=True):
    """A number that Triton requires to be a power of two: threads of a warp, elements of a tile."""

    value: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_TILE)]

    def __post_init__(self) -> None:
        if self.value.bit_count() != 1:
            raise ValueError(f"{self.value} is not a power of two")


KINDS = {
    "shared_memory_sizes": Sizes,
    **dict.fromkeys(("warp_size", "max_threads_per_program", "memory_alignment"), PowerOfTwo),
}
HardwareFacts: Any = msgspec.defstruct(
    "HardwareFacts",
    [(key, KINDS.get(key, Fact) | msgspec.UnsetType, msgspec.UNSET) for key in Hardware.__struct_fields__],
    frozen=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "The fields of Hardware, each with its source."},
)


def set_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Returns the fields of a struct that its file sets."""
    return {key: value for key in struct.__struct_fields__ if (value := getattr(struct, key)) is not msgspec.UNSET}
