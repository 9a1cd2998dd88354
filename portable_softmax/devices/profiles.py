"""Hardware profiles: one YAML file per architecture, with its products inside and a source for every number.

It holds facts that no driver reports, so a launch can be planned for hardware that is not on this machine. Unknown facts, and
limits that a device does not have, are absent.
"""

import functools
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.policy import Cost, Grid, LaunchPolicy
from portable_softmax.devices.schema import Hardware, HardwareFacts, Source, Text, set_fields
from portable_softmax.errors import ProfileError

_PACKAGED = Path(__file__).parents[1] / "device_profiles"  # place of the profiles in a wheel
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "device_profiles"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # safe_load, by libyaml
WRONG = OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError  # of hostile YAML
NOT_READ = "[!.]*.y*ml", "[!.]*/[!.]*.yml", "[!.]*/[!.]*/[!.]*.y*ml"  # YAML one level above or below, or of the other suffix
_reading = threading.Lock()


def _check_patterns(*texts: str) -> None:
    for text in texts:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression") from error


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A product. Its facts override those of its architecture."""

    matches: list[Text] = []  # regular expressions; one must match the whole name that the runtime reports
    hardware: HardwareFacts = HardwareFacts()
    arch: Text | msgspec.UnsetType = msgspec.UNSET  # Triton's target, if the products of an architecture have different targets
    cost: Cost | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_patterns(*self.matches)


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An architecture and its products.

    Raises:
        ValueError: a source is unknown, a launch lacks facts, or a pattern is none.
    """

    backend: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(BACKENDS)})$")]
    architecture: Text
    arch: Text  # regular expression for the whole of Triton's target architecture: 90, gfx942, Ascend910B[1-9].*
    multiprocessor: Text  # the vendor's word for it, for reports
    sources: dict[str, Source]
    hardware: HardwareFacts
    extends: Text | msgspec.UnsetType = msgspec.UNSET  # an architecture that provides what `launch` lacks
    launch: LaunchPolicy = LaunchPolicy()
    triton: Text | msgspec.UnsetType = msgspec.UNSET  # releases that compile for it without a device
    products: dict[str, Product] = {}

    def __post_init__(self) -> None:
        _check_patterns(self.arch)
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


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True, eq=False):  # eq=False: hashed by identity, as a key
    """Facts about one product, or about an architecture if `product` is None, and their sources."""

    name: str
    backend: str
    architecture: str
    arch: str
    arch_pattern: str
    multiprocessor: str
    hardware: Hardware
    launch: LaunchPolicy
    grid: Grid
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
        ProfileError: a file is malformed; names the file, the key and the reason.
    """
    return {profile.name: profile for profile in sorted(every_profile(), key=lambda known: known.name) if profile.product}


def every_profile() -> tuple[DeviceProfile, ...]:
    """Returns the profiles of all files, of architectures and products. Files are read once; concurrent threads wait."""
    extra = os.environ.get("PORTABLE_SOFTMAX_PROFILES", "").split(os.pathsep)
    with _reading:
        return _read((SHIPPED, *(Path(directory) for directory in extra if directory)))


@functools.cache
def _read(directories: tuple[Path, ...]) -> tuple[DeviceProfile, ...]:
    if missing := next((path for path in directories if not path.is_dir()), None):
        raise ProfileError(f"{missing} is not a directory; check PORTABLE_SOFTMAX_PROFILES and the installation")
    files = {path: sorted(path.glob("[!.]*/[!.]*.yaml")) for path in directories}
    for path, read in files.items():
        others = [str(file.relative_to(path)) for pattern in NOT_READ for file in sorted(path.glob(pattern))]
        if others or not read:
            what = f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} not read" if others else "no profile was found"
            warnings.warn(f"{what} in {path}: files of profiles are {path}/VENDOR/NAME.yaml", stacklevel=2)
    return tuple(read_profiles(file for read in files.values() for file in read))


def reported_as(name: str | None, among: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Returns the products that the runtime reports under that name."""
    patterns = ((profile, "|".join(profile.product.matches)) for profile in among if profile.product)
    return [profile for profile, pattern in patterns if pattern and re.fullmatch(pattern, name or "", re.IGNORECASE)]


def match_profile(backend: str, arch: str, device_name: str | None, warp_size: int | None = None) -> DeviceProfile:
    """Returns the profile of a live device: its product, else its architecture, else its vendor's cautious estimate.

    The arguments are Triton's names, the name that the runtime reports, and the threads of a warp, if the driver reports them.
    A profile with another warp size than the device never matches, whatever the device's name.

    Raises:
        ProfileError: there is not even an estimate for the backend.
    """
    of_arch = [p for p in every_profile() if p.backend == backend and re.fullmatch(p.arch_pattern, arch)]
    alike = [p for p in of_arch if None in (warp_size, p.hardware.warp_size) or p.hardware.warp_size == warp_size]
    families = [p for p in alike if p.product is None and not p.estimated]
    for candidates in (reported_as(device_name, alike), families, [p for p in of_arch if p.estimated]):
        if candidates:
            return candidates[-1]
    raise ProfileError(
        f"no profile and no estimate for backend {backend!r} (architecture {arch}); add device_profiles/<vendor>/estimated.yaml"
    )


def read_profiles(paths: Iterable[Path]) -> list[DeviceProfile]:
    """Returns the profiles of files: of architectures with their products, then of products that extend those.

    Raises:
        ProfileError: names the file, the key and the reason.
    """
    files = {path: _checked(path, _content, path) for path in paths}
    named = {f"{path.parent.name}/{path.stem}": content for path, content in files.items() if "backend" in content}
    products: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}  # a file and its product, or an empty one, by name
    result: list[DeviceProfile] = []
    for path, content in sorted(files.items(), key=lambda item: "backend" not in item[1]):
        vendor, stem = path.parent.name, path.stem
        file = _checked(path, _extended, content, named, products, stem)
        read = _checked(path, msgspec.convert, file, ProfileFile)
        for name, product in [*([(stem, None)] if "backend" in content else []), *read.products.items()]:
            products[f"{vendor}/{name}"] = file, file["products"][name] if product else {}
            result.append(_profile(read, f"{vendor}/{name}", product))
    return result


def _checked(path: Path, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except WRONG as error:
        raise ProfileError(f"{path}: {error or type(error).__name__}") from error


def _content(path: Path) -> dict[str, Any]:
    """Returns the mapping that a YAML file contains."""
    content = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
    if not isinstance(content, dict):
        raise ProfileError(f"the file must be a mapping, not {type(content).__name__}")
    return content


def _extended(content: dict[str, Any], named: Mapping[str, Any], products: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Returns a file merged, key by key, with the one that it extends.

    An architecture extends another one's `launch`; a file without `backend` is a product, which extends another or an
    architecture.
    """
    base = content.get("extends")
    if not base:
        return content
    if "backend" in content:
        other = named.get(base) or (_content(SHIPPED / f"{base}.yaml") if (SHIPPED / f"{base}.yaml").is_file() else {})
        if "launch" not in other or "extends" in other:
            raise ProfileError(f"extends: {base!r} is not an architecture without `extends`")
        theirs = {fact["source"] for fact in other["launch"].values()}
        sources = {**{name: other["sources"][name] for name in theirs}, **content.get("sources", {})}
        return {**content, "launch": {**other["launch"], **content.get("launch", {})}, "sources": sources}
    if base not in products:
        raise ProfileError(f"extends: no profile named {base!r}")
    file, product = products[base]
    own = {key: value for key, value in content.items() if key not in ("extends", "sources")}
    hardware = {**product.get("hardware", {}), **own.get("hardware", {})}
    sources = {**file["sources"], **content.get("sources", {})}
    return {**file, "sources": sources, "products": {stem: {**product, "matches": [], **own, "hardware": hardware}}}


def _profile(file: ProfileFile, name: str, product: Product | None) -> DeviceProfile:
    facts = set_fields(file.hardware) | (set_fields(product.hardware) if product else {})
    grid, cost = file.launch.grid, product.cost if product else None
    assert grid, "a file without one is complained of"
    same = {key: getattr(file, key) for key in ("backend", "architecture", "multiprocessor", "sources")}
    return DeviceProfile(
        name=name,
        arch=(product.arch if product else None) or file.arch,
        arch_pattern=file.arch,
        hardware=Hardware(**{key: fact.value for key, fact in facts.items()}),
        launch=msgspec.structs.replace(file.launch, cost=cost or file.launch.cost),
        grid=grid,
        origins={key: file.sources[fact.source] for key, fact in facts.items()},
        triton=file.triton or None,
        product=product,
        **same,
    )
