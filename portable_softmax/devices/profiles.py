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

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.schema import POWERS_OF_TWO, Content, Hardware, HardwareFacts, LaunchPolicy, Source, Text
from portable_softmax.errors import ProfileError

PLACES = [folder / "device_profiles" for folder in Path(__file__).parents[1:3]]  # in a wheel, in a clone
SHIPPED = next(filter(Path.is_dir, PLACES), PLACES[0])
MIN_LIKENESS = 0.8  # by difflib, of a name that is meant: nvida, mi300y have 0.91, 0.83; nvidia-lab, vr200 0.75, 0.67
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # safe_load, by libyaml
WRONG = OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError  # of hostile YAML
Entry = dict[str, Any]  # of a product or an architecture
_reading = threading.Lock()


class DeviceProfile(Content, frozen=True, kw_only=True, eq=False):  # hashed by identity, as a key
    """Facts about one product, or about an architecture, with all that it inherits, and their sources."""

    name: str  # VENDOR/PRODUCT; of an architecture, VENDOR/FILE
    family: str  # name of the architecture
    is_product: bool
    estimated: bool  # the vendor's cautious estimate, for an architecture without a profile
    target_pattern: Text  # regular expression for the whole of Triton's target: 90, gfx942, Ascend910B[1-9].*
    backend: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(BACKENDS)})$")]
    architecture: Text
    arch: Text  # Triton's target, which the pattern matches; of an architecture, the pattern
    multiprocessor: Text  # the vendor's word for it, for reports
    sources: dict[str, Source]
    facts: HardwareFacts = msgspec.field(name="hardware")
    launch: LaunchPolicy
    matches: tuple[Text, ...] = ()  # regular expressions; one must match the whole name that the runtime reports
    triton: Text | None = None  # releases that compile for it without a device

    def __post_init__(self) -> None:
        for pattern in (self.target_pattern, *self.matches):
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"{pattern!r} is not a regular expression") from error
        if self.is_product and not re.fullmatch(self.target_pattern, self.arch):
            raise ValueError(f"arch: {self.arch!r} is not a target that the architecture's {self.target_pattern!r} matches")
        for key, fact in (self.facts.stated() | self.launch.stated()).items():
            if fact.source not in self.sources:
                raise ValueError(f"{key}: its source {fact.source!r} is not among `sources`")
            if key in POWERS_OF_TWO and fact.value.bit_count() != 1:
                raise ValueError(f"{key}: {fact.value} is not a power of two")

    @property
    def hardware(self) -> Hardware:
        """Returns the facts."""
        return Hardware(**{key: fact.value for key, fact in self.facts.stated().items()})

    @property
    def origins(self) -> Mapping[str, Source]:
        """Returns the source of each fact."""
        return {key: self.sources[fact.source] for key, fact in self.facts.stated().items()}


def profiles() -> Mapping[str, DeviceProfile]:
    """Returns all products by name (`vendor/product`), in order, from device_profiles/ and from $PORTABLE_SOFTMAX_PROFILES.

    The variable names a directory, or several as in $PATH. All YAML files below it are profiles: DIR/vendor/NAME.yaml. They
    replace products of the same name; of several directories the last one wins. A directory without any causes a warning.

    Raises:
        ProfileError: a file is malformed; the error names the file, the key and the reason.
    """
    products = (profile for profile in every_profile() if profile.is_product)
    return {profile.name: profile for profile in sorted(products, key=lambda known: known.name)}


def every_profile() -> tuple[DeviceProfile, ...]:
    """Returns the profiles of all files, of architectures and products. Files are read once; concurrent threads wait."""
    extra = os.environ.get("PORTABLE_SOFTMAX_PROFILES", "").split(os.pathsep)
    with _reading:
        return _read((SHIPPED, *(Path(directory).resolve() for directory in extra if directory)))


@functools.cache
def _read(directories: tuple[Path, ...]) -> tuple[DeviceProfile, ...]:
    read = list[Path]()
    for directory in directories:
        if not directory.is_dir():
            raise ProfileError(f"{directory} is not a directory; check PORTABLE_SOFTMAX_PROFILES and the installation")
        paths = [file.relative_to(directory) for file in directory.rglob("*.y*ml")]
        files = sorted(directory / file for file in paths if not any(part.startswith(".") for part in file.parts))
        if not files:
            warnings.warn(f"no profile was found in {directory}: files of profiles are VENDOR/NAME.yaml", stacklevel=2)
        read += files
    return tuple(read_profiles(read))


def reported_as(name: str | None, candidates: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Returns the products that the runtime reports under that name."""
    return [p for p in candidates if any(re.fullmatch(pattern, name or "", re.IGNORECASE) for pattern in p.matches)]


def match_profile(backend: str, arch: str, device_name: str | None, warp_size: int | None = None) -> DeviceProfile:
    """Returns the profile of a live device: its product, else its architecture, else its vendor's cautious estimate.

    A profile with another warp size than the driver reports never matches. ProfileError: there is not even an estimate.
    """
    of_arch = [p for p in every_profile() if p.backend == backend and re.fullmatch(p.target_pattern, arch)]
    alike = [p for p in of_arch if None in (warp_size, p.hardware.warp_size) or p.hardware.warp_size == warp_size]
    families = [p for p in alike if not p.is_product and not p.estimated]
    for candidates in (reported_as(device_name, alike), families, [p for p in of_arch if p.estimated]):
        if candidates:
            return candidates[-1]
    raise ProfileError(f"no profile for {backend}/{arch}; add a file device_profiles/<vendor>/estimated.yaml")


def read_profiles(paths: Iterable[Path]) -> list[DeviceProfile]:
    """Returns the profiles of files: of architectures with their products, then of products that extend one of those."""
    contents, result = list[tuple[Path, Entry]](), list[DeviceProfile]()
    for path in paths:
        with _errors_of(f"{path}"):
            contents.append((path, msgspec.convert(yaml.load(path.read_text(encoding="utf-8"), _LOADER), Entry)))
    vendors = {path.parent.name for path in SHIPPED.glob("*/*.yaml")}
    known = {f"{path.parent.name}/{path.stem}": content for path, content in contents if "extends" not in content}
    for path, content in sorted(contents, key=lambda file: "backend" not in file[1]):
        vendor = path.parent.name
        with _errors_of(f"{path}"):
            if vendor not in vendors and (meant := get_close_matches(vendor.lower(), vendors, 1, MIN_LIKENESS)):
                raise ProfileError(f"the folder's name is the vendor's, and {vendor!r} is none; did you mean {meant[0]}?")
            known |= (entries := entries_of(f"{vendor}/{path.stem}", content, known))
        for name, entry in entries.items():
            with _errors_of(f"{path}: {name}"):
                result.append(msgspec.convert({**entry, "name": name}, DeviceProfile))
    return result


@contextlib.contextmanager
def _errors_of(place: str) -> Iterator[None]:
    try:
        yield
    except WRONG as error:
        raise ProfileError(f"{place}: {error or type(error).__name__}") from error


def entries_of(name: str, content: Mapping[str, Any], known: Mapping[str, Entry]) -> dict[str, Entry]:
    """Returns the entries of a file by name, with all that they inherit: an architecture and its products, or one product.

    An architecture `extends` the launch of another one. A file without `backend` is a product that extends any entry.
    """
    own = dict(content)
    products, base = own.pop("products", {}), own.pop("extends", None)
    if base and base not in known:
        raise ProfileError(f"extends: no profile named {base!r} is read before this one")
    inherited = known.get(base, {})
    if "backend" in own:
        inherited = {key: inherited[key] for key in ("launch", "sources") if key in inherited}
        about = {"is_product": False, "estimated": name.endswith("/estimated")}
        own |= {"family": name, "target_pattern": own.get("arch", ""), **about}
    entries = {name: _merged(inherited, own)}
    for product, more in products.items():
        entries[f"{name.partition('/')[0]}/{product}"] = _merged(entries[name], more)
    return entries


def _merged(inherited: Mapping[str, Any], own: Mapping[str, Any]) -> Entry:
    """Returns an entry with its own keys in place of inherited ones; those of hardware, launch and sources one by one."""
    groups = {key: {**inherited.get(key, {}), **own.get(key, {})} for key in ("hardware", "launch", "sources")}
    return {**inherited, "matches": (), "is_product": True, "estimated": False, **own, **groups}
