"""Hardware profiles: one YAML file per architecture, with its products, facts that no driver reports, and their sources."""

import contextlib
import functools
import os
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from portable_softmax.devices import schema
from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.schema import Content, Source, Text, Unset, set_fields
from portable_softmax.errors import ProfileError

_PACKAGED = Path(__file__).parents[1] / "device_profiles"  # place of the profiles in a wheel
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "device_profiles"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # safe_load, by libyaml
WRONG = OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError  # of hostile YAML
NOT_READ = "[!.]*.y*ml", "[!.]*/[!.]*.yml", "[!.]*/[!.]*/[!.]*.y*ml"  # YAML one level above or below, or of the other suffix
MIN_LIKENESS = 0.75  # of a name that is suggested, by difflib: nvidea, mi300y have 0.83; vr200 and h200 have 0.67
_reading = threading.Lock()


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{text!r} is not a regular expression") from error


class Product(Content, frozen=True, kw_only=True):
    """A product. Its facts override those of its architecture."""

    matches: tuple[Text, ...] = ()  # regular expressions; one must match the whole name that the runtime reports
    hardware: schema.HardwareFacts = schema.HardwareFacts()
    arch: Text | Unset = msgspec.UNSET  # Triton's target, if the products of an architecture have different targets
    cost: schema.Cost | Unset = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_pattern("|".join(self.matches))


class ProfileFile(Content, frozen=True, kw_only=True):
    """An architecture and its products. ValueError: a source is unknown, a launch lacks facts, or a pattern is none."""

    backend: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(BACKENDS)})$")]
    architecture: Text
    arch: Text  # regular expression for the whole of Triton's target architecture: 90, gfx942, Ascend910B[1-9].*
    multiprocessor: Text  # the vendor's word for it, for reports
    sources: dict[str, Source]
    hardware: schema.HardwareFacts
    extends: Text | Unset = msgspec.UNSET  # an architecture that provides what `launch` lacks
    launch: schema.LaunchPolicy = schema.LaunchPolicy()
    triton: Text | Unset = msgspec.UNSET  # releases that compile for it without a device
    products: dict[str, Product] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_pattern(self.arch)
        launch, groups = set_fields(self.launch), [set_fields(self.hardware), set_fields(self.launch)]
        vectors = "warp_size" not in groups[0] and "tile_elements" in launch  # of devices without warps
        required = {"grid", "tile_elements", "stream_elements"} if vectors else {"grid", "cost"}
        if missing := sorted(required - launch.keys()):
            raise ValueError(f"launch: {', '.join(missing)} is missing; add it, or `extends`")
        for name, product in self.products.items():
            groups += [set_fields(product.hardware), {"cost": product.cost} if product.cost else {}]
            if not re.fullmatch(self.arch, arch := product.arch or self.arch):
                raise ValueError(f"products.{name}.arch: {arch!r} is not a target that the file's arch {self.arch!r} matches")
        for key, source in ((key, fact.source) for group in groups for key, fact in group.items()):
            if source not in self.sources:
                raise ValueError(f"{key}: its source {source!r} is not among `sources`")


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, eq=False):  # hashed by identity, as a key
    """Facts about one product, or about an architecture if `product` is None, and their sources."""

    name: str
    backend: str
    architecture: str
    arch: str
    arch_pattern: str
    multiprocessor: str
    hardware: schema.Hardware
    launch: schema.LaunchPolicy
    grid: schema.Grid
    origins: Mapping[str, Source]  # source of each fact in `hardware`
    sources: Mapping[str, Source]  # sources that `launch` names
    triton: str | None
    product: Product | None

    @property
    def estimated(self) -> bool:
        """True if this is the vendor's cautious estimate for an architecture without a profile."""
        return self.product is None and self.name.endswith("/estimated")


def profiles() -> Mapping[str, DeviceProfile]:
    """Returns all products by name (`vendor/product`), in order, from device_profiles/ and from $PORTABLE_SOFTMAX_PROFILES.

    The variable names a directory, or several as in $PATH. Their files DIR/vendor/NAME.yaml replace products of the same
    name; of several directories the last one wins. A directory without such files, and YAML files elsewhere in it, cause a
    warning.

    Raises:
        ProfileError: a file is malformed, or in a folder that is a misspelt vendor; names the file, the key and the reason.
    """
    return {profile.name: profile for profile in sorted(every_profile(), key=lambda known: known.name) if profile.product}


def every_profile() -> tuple[DeviceProfile, ...]:
    """Returns the profiles of all files, of architectures and products. Files are read once; concurrent threads wait."""
    extra = os.environ.get("PORTABLE_SOFTMAX_PROFILES", "").split(os.pathsep)
    with _reading:
        return _read((SHIPPED, *(Path(directory) for directory in extra if directory)))


@functools.cache
def _read(directories: tuple[Path, ...]) -> tuple[DeviceProfile, ...]:
    read, vendors = list[Path](), set[str]()
    for directory in directories:
        if not directory.is_dir():
            raise ProfileError(f"{directory} is not a directory; check PORTABLE_SOFTMAX_PROFILES and the installation")
        files = sorted(directory.glob("[!.]*/[!.]*.yaml"))
        others = [str(file.relative_to(directory)) for pattern in NOT_READ for file in sorted(directory.glob(pattern))]
        if others or not files:
            what = f"not read: {', '.join(others)}" if others else "no profile was found"
            warnings.warn(f"{what} in {directory}: files of profiles are {directory}/VENDOR/NAME.yaml", stacklevel=2)
        vendors = vendors or {file.parent.name for file in files}  # those that are shipped
        for vendor in {file.parent.name for file in files} - vendors:
            if near := get_close_matches(vendor, vendors, 1, MIN_LIKENESS):
                raise ProfileError(f"{directory / vendor}: {vendor!r} is no vendor; did you mean {near[0]}?")
        read += files
    return tuple(read_profiles(read))


def reported_as(name: str | None, among: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Returns the products that the runtime reports under that name."""
    patterns = ((profile, "|".join(profile.product.matches)) for profile in among if profile.product)
    return [profile for profile, pattern in patterns if pattern and re.fullmatch(pattern, name or "", re.IGNORECASE)]


def match_profile(backend: str, arch: str, device_name: str | None, warp_size: int | None = None) -> DeviceProfile:
    """Returns the profile of a live device: its product, else its architecture, else its vendor's cautious estimate.

    A profile with another warp size than the driver reports never matches. ProfileError: there is not even an estimate.
    """
    of_arch = [p for p in every_profile() if p.backend == backend and re.fullmatch(p.arch_pattern, arch)]
    alike = [p for p in of_arch if None in (warp_size, p.hardware.warp_size) or p.hardware.warp_size == warp_size]
    families = [p for p in alike if p.product is None and not p.estimated]
    for candidates in (reported_as(device_name, alike), families, [p for p in of_arch if p.estimated]):
        if candidates:
            return candidates[-1]
    what = f"no profile and no estimate for backend {backend!r} (architecture {arch})"
    raise ProfileError(f"{what}; add device_profiles/<vendor>/estimated.yaml")


def read_profiles(paths: Iterable[Path]) -> list[DeviceProfile]:
    """Returns the profiles of files: of architectures with their products, then of products that extend those."""
    contents, result = dict[Path, dict[str, Any]](), list[DeviceProfile]()
    for path in paths:
        with _errors_of(path):
            contents[path] = _content(path)
    families = {f"{path.parent.name}/{path.stem}": content for path, content in contents.items() if "backend" in content}
    alone: dict[str, dict[str, Any]] = {}  # by name of a product, a file with no other one; of an architecture with none
    for path, content in sorted(contents.items(), key=lambda item: "backend" not in item[1]):
        with _errors_of(path):
            whole = _extended(content, families, alone, path.stem)
            file = msgspec.convert(whole, ProfileFile)
            named: dict[str, Product | None] = {path.stem: None} if "backend" in content else {}
            for name, product in {**named, **file.products}.items():
                alone[f"{path.parent.name}/{name}"] = whole | {"products": {name: whole["products"][name]} if product else {}}
                result.append(_profile(file, f"{path.parent.name}/{name}", product))
    return result


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except WRONG as error:
        raise ProfileError(f"{path}: {error or type(error).__name__}") from error


def _content(path: Path) -> dict[str, Any]:
    """Returns the mapping that a YAML file contains."""
    content = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    if not isinstance(content, dict):
        raise ProfileError(f"the file must be a mapping, not {type(content).__name__}")
    return content


def _extended(content: dict[str, Any], families: Mapping[str, Any], alone: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Returns a file merged, key by key, with what it extends: the `launch` of an architecture; all, without `backend`."""
    base, sources = content.get("extends"), content.get("sources", {})
    if not base:
        return content
    if "backend" in content:
        shipped = SHIPPED / f"{base}.yaml"
        other = families.get(base) or (_content(shipped) if shipped.is_file() else {})
        if "launch" not in other or "extends" in other:
            raise ProfileError(f"extends: {base!r} is not an architecture without `extends`")
        theirs = {fact["source"]: other["sources"][fact["source"]] for fact in other["launch"].values()}
        return {**content, "launch": {**other["launch"], **content.get("launch", {})}, "sources": {**theirs, **sources}}
    if base not in alone:
        raise ProfileError(f"extends: no profile named {base!r}")
    product: dict[str, Any] = next(iter(alone[base]["products"].values()), {})
    own = {key: value for key, value in content.items() if key not in ("extends", "sources")}
    own["hardware"] = {**product.get("hardware", {}), **own.get("hardware", {})}
    products = {stem: {**product, "matches": [], **own}}
    return {**alone[base], "sources": {**alone[base]["sources"], **sources}, "products": products}


def _profile(file: ProfileFile, name: str, product: Product | None) -> DeviceProfile:
    facts, grid = set_fields(file.hardware) | (set_fields(product.hardware) if product else {}), file.launch.grid
    assert grid, "a file without one is complained of"
    same = {key: getattr(file, key) for key in ("backend", "architecture", "multiprocessor", "sources")}
    return DeviceProfile(
        name=name,
        arch=(product.arch if product else None) or file.arch,
        arch_pattern=file.arch,
        hardware=schema.Hardware(**{key: fact.value for key, fact in facts.items()}),
        launch=msgspec.structs.replace(file.launch, cost=(product and product.cost) or file.launch.cost),
        grid=grid,
        origins={key: file.sources[fact.source] for key, fact in facts.items()},
        triton=file.triton or None,
        product=product,
        **same,
    )
