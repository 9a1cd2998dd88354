"""Hardware profiles: one YAML file per architecture, its products inside, a source for every number.

A profile answers what no driver tells (resident warps, register granules, Unified Buffer, bandwidth) and lets a launch
be planned for hardware that is not there. Facts that are unknown, and limits that a device does not have, are absent.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
import yaml

from portable_softmax.errors import ProfileError

Positive = Annotated[int, msgspec.Meta(gt=0)]
Verified = Literal["measured", "vendor", "third-party"]


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What one device offers, in Triton's words; None means that it is unknown or that there is no such limit.

    A *multiprocessor* is what the vendor's driver counts: SM (NVIDIA), CU (AMD CDNA), WGP of two CUs (AMD RDNA),
    vector core (Ascend). *Shared memory* is LDS on AMD and the Unified Buffer on Ascend.
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
    barriers_per_multiprocessor: int | None = None  # slots that a program of several warps takes one of
    shared_memory_per_program_max: int | None = None  # bytes
    shared_memory_per_multiprocessor: int | None = None  # bytes
    shared_memory_granule: int | None = None  # bytes
    shared_memory_reserved_per_program: int | None = None  # bytes that the driver takes from every program
    memory_alignment: int | None = None  # bytes; a narrower row of a tile is padded to it
    max_programs: int | None = None  # of one launch
    l2_cache_bytes: int | None = None
    last_level_cache_bytes: int | None = None  # MALL, Infinity Cache
    memory_bytes: int | None = None
    memory_bandwidth_gb_per_s: int | None = None  # 10^9 bytes per second


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a number comes from, and how far it was checked."""

    verified: Verified
    title: str
    url: str | msgspec.UnsetType = msgspec.UNSET


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number and the key of its source in the file's `sources`."""

    value: Positive
    source: str


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`tile`: one program per tile. `resident`: as many programs as the device holds at once, each walking tiles."""

    value: Literal["tile", "resident"]
    source: str


class LaunchPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How launches are chosen on an architecture: preferences that were measured or reasoned, never limits."""

    grid: Grid
    tile_elements: Fact  # rows shorter than this share a tile until it holds so many elements
    max_tile_cols: Fact  # columns of the widest row that is taken in one tile
    online_tile_cols: Fact  # columns of a tile of longer rows
    elements_per_thread: Fact | msgspec.UnsetType = msgspec.UNSET  # 32-bit elements that one thread holds
    num_stages: Fact | msgspec.UnsetType = msgspec.UNSET
    # Rows of 16-bit types in tiles of at least so many columns: walked by resident programs that load so far ahead.
    prefetch_from_cols: Fact | msgspec.UnsetType = msgspec.UNSET
    prefetch_stages: Fact | msgspec.UnsetType = msgspec.UNSET


HardwareFacts: Any = msgspec.defstruct(
    "HardwareFacts",
    [(field, Fact | msgspec.UnsetType, msgspec.UNSET) for field in Hardware.__struct_fields__],
    frozen=True,
    forbid_unknown_fields=True,
    namespace={"__doc__": "The fields of Hardware, each with its source."},
)


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device that can be bought; `hardware` adds to and overrides its architecture's."""

    matches: list[str]  # regular expressions; one must match the whole name that the runtime reports
    hardware: HardwareFacts
    arch: str | msgspec.UnsetType = msgspec.UNSET  # Triton's target, where products of an architecture differ in it


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file of device_profiles/."""

    backend: str
    architecture: str
    arch: str  # regular expression for the whole of Triton's target architecture: 90, gfx942, Ascend910B[1-9].*
    multiprocessor: str  # the vendor's word for it, for reports
    sources: dict[str, Source]
    hardware: HardwareFacts
    launch: LaunchPolicy
    first_triton: str | msgspec.UnsetType = msgspec.UNSET  # first release that compiles for it with no device
    products: dict[str, Product] = {}


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one product, or about an architecture when `product` is None."""

    name: str
    backend: str
    architecture: str
    arch: str
    arch_pattern: str
    multiprocessor: str
    hardware: Hardware
    launch: LaunchPolicy
    origins: Mapping[str, Source]  # of each fact in `hardware`
    policy_origins: Mapping[str, Source]  # of each preference in `launch`
    first_triton: str | None
    product: Product | None

    @property
    def estimated(self) -> bool:
        """Whether this is the vendor's cautious stand-in for an architecture that nobody has described."""
        return self.name.endswith("/estimated")


def profiles() -> Mapping[str, DeviceProfile]:
    """All products by name (`vendor/product`), from device_profiles/ and from $PORTABLE_SOFTMAX_PROFILES.

    A file of the user's directory (DIR/vendor/*.yaml) replaces products of the same name.

    Raises:
        ProfileError: a file is malformed; names the file, the key and the reason.
    """
    return MappingProxyType({p.name: p for p in _all(_directories()) if p.product is not None})


def find_profile(name: str) -> DeviceProfile:
    """The product of that name.

    Raises:
        ProfileError: there is none; lists the nearest names.
    """
    known = profiles()
    if name not in known:
        wanted = name.rpartition("/")[2].lower()
        near = [n for n in known if wanted in n or n.rpartition("/")[2] in wanted] or list(known)
        raise ProfileError(
            f"no profile named {name!r}; did you mean {', '.join(sorted(near))}? "
            "`python scripts/probe_device.py --list` shows all of them"
        )
    return known[name]


def match_profile(backend: str, arch: str, device_name: str | None) -> DeviceProfile:
    """The profile of a live device: its product, else its architecture, else its vendor's cautious estimate.

    Raises:
        ProfileError: not even an estimate exists for the backend.
    """
    of_arch = [p for p in _all(_directories()) if p.backend == backend and re.fullmatch(p.arch_pattern, arch)]
    of_name = [p for p in of_arch if p.product and _names(p.product, device_name)]
    described = [p for p in of_arch if p.product is None and not p.estimated]
    for candidates in (of_name, described, of_arch):
        if candidates:
            return candidates[-1]
    raise ProfileError(
        f"no profile and no estimate for backend {backend!r} (architecture {arch}); add device_profiles/<vendor>/estimated.yaml"
    )


def read_profiles(path: Path) -> list[DeviceProfile]:
    """The profiles of one file: its products, and its architecture.

    Raises:
        ProfileError: names the file, the key and the reason.
    """
    try:
        file = msgspec.convert(yaml.load(path.read_text(), _StrictLoader), ProfileFile)
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: {error}") from error
    for where, source in _cited(file):
        if source not in file.sources:
            raise ProfileError(f"{path}: {where}: its source {source!r} is not among `sources` ({', '.join(file.sources)})")
    vendor = path.parent.name
    return [_profile(file, f"{vendor}/{path.stem}", None)] + [
        _profile(file, f"{vendor}/{name}", product) for name, product in file.products.items()
    ]


class _StrictLoader(yaml.SafeLoader):
    """Builds plain data only, and takes no key twice: YAML would let the second win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"found the key {key!r} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _profile(file: ProfileFile, name: str, product: Product | None) -> DeviceProfile:
    facts = _present(file.hardware) | (_present(product.hardware) if product else {})
    return DeviceProfile(
        name=name,
        backend=file.backend,
        architecture=file.architecture,
        arch=(product.arch or file.arch) if product else file.arch,
        arch_pattern=file.arch,
        multiprocessor=file.multiprocessor,
        hardware=Hardware(**{key: fact.value for key, fact in facts.items()}),
        launch=file.launch,
        origins={key: file.sources[fact.source] for key, fact in facts.items()},
        policy_origins={key: file.sources[fact.source] for key, fact in _present(file.launch).items()},
        first_triton=file.first_triton or None,
        product=product,
    )


def _present(struct: Any) -> dict[str, Any]:
    return {key: value for key in struct.__struct_fields__ if (value := getattr(struct, key)) is not msgspec.UNSET}


def _cited(file: ProfileFile) -> Iterator[tuple[str, str]]:
    groups = {"hardware": file.hardware, "launch": file.launch}
    groups |= {f"products.{name}.hardware": product.hardware for name, product in file.products.items()}
    for group, struct in groups.items():
        for key, fact in _present(struct).items():
            yield f"{group}.{key}", fact.source


def _names(product: Product, device_name: str | None) -> bool:
    return any(re.fullmatch(pattern, device_name or "") for pattern in product.matches)


def _directories() -> tuple[Path, ...]:
    packaged = Path(__file__).parent / "device_profiles"  # in a wheel
    shipped = packaged if packaged.is_dir() else Path(__file__).parents[1] / "device_profiles"
    extra = os.environ.get("PORTABLE_SOFTMAX_PROFILES")
    return (shipped, Path(extra)) if extra else (shipped,)


@functools.cache
def _all(directories: tuple[Path, ...]) -> tuple[DeviceProfile, ...]:
    for directory in directories:
        if not directory.is_dir():
            raise ProfileError(f"{directory} is not a directory; is PORTABLE_SOFTMAX_PROFILES right?")
    files = [file for directory in directories for file in sorted(directory.glob("*/*.yaml"))]
    return tuple(profile for file in files for profile in read_profiles(file))
