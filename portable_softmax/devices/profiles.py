"""Hardware profiles: one YAML file per architecture, with its products inside and a source for every number.

A profile holds facts that no driver reports (resident warps, register granules, Unified Buffer, bandwidth), so a launch can be
planned for hardware that is not on this machine. Unknown facts, and limits that a device does not have, are absent.
"""

import functools
import os
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.file_schema import Extension, Product, ProfileFile
from portable_softmax.devices.overlays import extended, with_launch
from portable_softmax.devices.policy import Grid, LaunchPolicy
from portable_softmax.devices.profile_checks import complaints
from portable_softmax.devices.profile_files import SHIPPED, profile_files, read_file
from portable_softmax.devices.schema import Hardware, Source, given
from portable_softmax.errors import ProfileError

_reading = threading.Lock()


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
    dtypes: tuple[str, ...]
    first_triton: str | None
    product: Product | None

    @property
    def estimated(self) -> bool:
        """Tells whether this is the vendor's cautious estimate for an architecture that nobody has described."""
        return self.product is None and self.name.endswith("/estimated")


class Described(msgspec.Struct, frozen=True, eq=False):
    """Profiles of all files, in their order: of each architecture, and of each product, whether or not one replaces it."""

    every: tuple[DeviceProfile, ...]
    products: Mapping[str, DeviceProfile]


def profiles() -> Mapping[str, DeviceProfile]:
    """Returns all products by name (`vendor/product`), in order, from device_profiles/ and from $PORTABLE_SOFTMAX_PROFILES.

    The variable names a directory, or several as in $PATH. Their files DIR/vendor/NAME.yaml (or .yml) replace products of the
    same name; of several directories the last one wins.

    Raises:
        ProfileError: a file is malformed or in the wrong place; names the file, the key and the reason.
    """
    return described().products


def described() -> Described:
    """Returns the profiles of all files, which are read once: threads that call this at the same time wait for each other."""
    with _reading:
        return _read(_directories())


def reported_as(name: str | None, among: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Returns the products whose runtime reports that name."""
    return [
        profile
        for profile in among
        if profile.product and any(re.fullmatch(each, name or "", re.IGNORECASE) for each in profile.product.matches)
    ]


def match_profile(backend: str, arch: str, device_name: str | None, warp_size: int | None = None) -> DeviceProfile:
    """Returns the profile of a live device: its product, else its architecture, else its vendor's cautious estimate.

    A profile with another warp size than the device never matches, whatever the device's name.

    Args:
        backend: Triton's name of the vendor.
        arch: Triton's name of the target architecture.
        device_name: the name that the runtime reports, if any.
        warp_size: threads of a warp, if the driver reports them.

    Raises:
        ProfileError: there is not even an estimate for the backend.
    """
    of_arch = [p for p in described().every if p.backend == backend and re.fullmatch(p.arch_pattern, arch)]
    alike = [p for p in of_arch if None in (warp_size, p.hardware.warp_size) or p.hardware.warp_size == warp_size]
    of_name = reported_as(device_name, alike)
    families = [p for p in alike if p.product is None and not p.estimated]
    estimates = [p for p in of_arch if p.estimated]
    for candidates in (of_name, families, estimates):
        if candidates:
            return candidates[-1]
    raise ProfileError(
        f"no profile and no estimate for backend {backend!r} (architecture {arch}); add device_profiles/<vendor>/estimated.yaml"
    )


def read_profiles(path: Path) -> list[DeviceProfile]:
    """Returns the profiles of one architecture's file: that of the architecture, and those of its products.

    Raises:
        ProfileError: names the file, the key and the reason.
    """
    return _profiles([path])[path]


def _profiles(paths: Iterable[Path]) -> dict[Path, list[DeviceProfile]]:
    """Returns the profiles of each file. A file that extends another may come first."""
    contents = {path: read_file(path) for path in paths}
    written = {path: content for path, content in contents.items() if isinstance(content, ProfileFile)}
    named = _shipped_estimates(written) | {f"{path.parent.name}/{path.stem}": file for path, file in written.items()}
    files = {path: with_launch(path, file, named) for path, file in written.items()}
    described: dict[str, tuple[ProfileFile, Product | None]] = {}
    found: dict[Path, list[DeviceProfile]] = {}
    for path, file in files.items():
        _complain(path, file)
        own: dict[str, Product | None] = {path.stem: None, **file.products}
        described |= {f"{path.parent.name}/{name}": (file, product) for name, product in own.items()}
        found[path] = [_profile(file, f"{path.parent.name}/{name}", product) for name, product in own.items()]
    for path, extension in contents.items():
        if isinstance(extension, Extension):
            file = extended(path, extension, described)
            _complain(path, file, alone=extension.extends.endswith("/estimated"))
            name = f"{path.parent.name}/{path.stem}"
            described[name] = file, file.products[path.stem]
            found[path] = [_profile(file, name, file.products[path.stem])]
    return {path: found[path] for path in contents}


def _shipped_estimates(files: Mapping[Path, ProfileFile]) -> dict[str, ProfileFile]:
    """Returns the shipped files that these extend, which may stand in another directory than they do."""
    names = {file.launch.extends for file in files.values() if file.launch.extends}
    paths = {name: SHIPPED / f"{name}.yaml" for name in names}
    found = {name: read_file(path) for name, path in paths.items() if path not in files and path.is_file()}
    return {name: file for name, file in found.items() if isinstance(file, ProfileFile)}


def _complain(path: Path, file: ProfileFile, alone: bool = False) -> None:
    if wrong := list(complaints(file, alone)):
        raise ProfileError("\n".join(f"{path}: {complaint}" for complaint in wrong))


def _profile(file: ProfileFile, name: str, product: Product | None) -> DeviceProfile:
    facts = given(file.hardware) | (given(product.hardware) if product else {})
    grid = file.launch.grid
    assert grid, "a file without one is complained of"
    return DeviceProfile(
        name=name,
        backend=file.backend,
        architecture=file.architecture,
        arch=(product.arch or file.arch) if product else file.arch,
        arch_pattern=file.arch,
        multiprocessor=file.multiprocessor,
        hardware=Hardware(**{key: fact.value for key, fact in facts.items()}),
        launch=_launch(file.launch, product) if product else file.launch,
        grid=grid,
        origins={key: file.sources[fact.source] for key, fact in facts.items()},
        sources=file.sources,
        dtypes=tuple(file.dtypes or BACKENDS[file.backend].dtypes),
        first_triton=file.first_triton or None,
        product=product,
    )


def _launch(launch: LaunchPolicy, product: Product) -> LaunchPolicy:
    """Returns the preferences of a product of an architecture."""
    return msgspec.structs.replace(launch, cost=product.cost or launch.cost)


def _in_order(name: str) -> list[str | int]:
    """Returns what to sort names by: numbers in them count as numbers, mi60 before mi300x."""
    return [int(each) if each.isdecimal() else each for each in re.split(r"(\d+)", name)]


def _directories() -> tuple[Path, ...]:
    extra = os.environ.get("PORTABLE_SOFTMAX_PROFILES", "").split(os.pathsep)
    return SHIPPED, *(Path(each) for each in extra if each)


@functools.cache
def _read(directories: tuple[Path, ...]) -> Described:
    for directory in directories:
        if directory == SHIPPED and not directory.is_dir():
            raise ProfileError(
                f"the package's own profiles are not in {SHIPPED}: install the package; it cannot read them from a zip"
            )
        if not directory.is_dir():
            raise ProfileError(f"{directory} is not a directory; is PORTABLE_SOFTMAX_PROFILES right?")
    files = _profiles([file for directory in directories for file in profile_files(directory)])
    _check_together(files)
    every = tuple(profile for found in files.values() for profile in found)
    products = {profile.name: profile for profile in every if profile.product}
    return Described(every, MappingProxyType({name: products[name] for name in sorted(products, key=_in_order)}))


def _check_together(files: Mapping[Path, list[DeviceProfile]]) -> None:
    """Checks that files of one directory describe no product twice, and that all files of a vendor have one backend.

    Raises:
        ProfileError: names both files.
    """
    described: dict[tuple[Path, str], Path] = {}
    backends: dict[str, tuple[str, Path]] = {}
    for path, found in files.items():
        vendor = path.parent.name
        for profile in found:
            first = described.setdefault((path.parent, profile.name), path)
            if first != path:
                raise ProfileError(f"{path}: {profile.name} is described in {first} too")
        backend, other = backends.setdefault(vendor, (found[0].backend, path))
        if found[0].backend != backend:
            raise ProfileError(f"{path}: backend: {found[0].backend!r} in the folder of a vendor with {backend!r} ({other})")
