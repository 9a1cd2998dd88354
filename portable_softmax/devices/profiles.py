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

import msgspec

from portable_softmax.devices.file_schema import Overlay, Product, ProfileFile
from portable_softmax.devices.policy import Grid, LaunchPolicy
from portable_softmax.devices.profile_checks import complaints
from portable_softmax.devices.profile_files import SHIPPED, architecture, overlaid, read_file
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
    first_triton: str | None
    product: Product | None

    @property
    def estimated(self) -> bool:
        """True if this is the vendor's cautious estimate for an architecture without a profile."""
        return self.product is None and self.name.endswith("/estimated")


def profiles() -> Mapping[str, DeviceProfile]:
    """Returns all products by name (`vendor/product`), in order, from device_profiles/ and from $PORTABLE_SOFTMAX_PROFILES.

    The variable names a directory, or several as in $PATH. Their files DIR/vendor/NAME.yaml replace products of the same
    name; of several directories the last one wins.

    Raises:
        ProfileError: a file is malformed; names the file, the key and the reason.
    """
    products = {profile.name: profile for profile in every_profile() if profile.product}
    return {name: products[name] for name in sorted(products, key=_in_order)}


def every_profile() -> tuple[DeviceProfile, ...]:
    """Returns the profiles of all files, of architectures and products. Files are read once; concurrent threads wait."""
    extra = os.environ.get("PORTABLE_SOFTMAX_PROFILES", "").split(os.pathsep)
    with _reading:
        return _read((SHIPPED, *(Path(directory) for directory in extra if directory)))


def reported_as(name: str | None, among: Iterable[DeviceProfile]) -> list[DeviceProfile]:
    """Returns the products whose runtime reports that name."""
    patterns = ((profile, "|".join(profile.product.matches)) for profile in among if profile.product)
    return [profile for profile, pattern in patterns if pattern and re.fullmatch(pattern, name or "", re.IGNORECASE)]


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
    """Returns the profiles of files: first of architectures, with their products; then of overlays, which may extend those.

    Raises:
        ProfileError: names the file, the key and the reason.
    """
    contents = {path: read_file(path) for path in paths}
    files = {_name(path): content for path, content in contents.items() if isinstance(content, ProfileFile)}
    described: dict[str, tuple[ProfileFile, Product | None]] = {}
    found = []
    for path, content in sorted(contents.items(), key=lambda item: isinstance(item[1], Overlay)):
        own: dict[str, Product | None] = {}
        if isinstance(content, Overlay):
            file, estimated = overlaid(path, content, described), content.extends.endswith("/estimated")
        else:
            file, estimated, own[path.stem] = architecture(path, content, files), False, None
        if wrong := list(complaints(file, estimated)):
            raise ProfileError("\n".join(f"{path}: {complaint}" for complaint in wrong))
        for name, product in {**own, **file.products}.items():
            described[_name(path, name)] = file, product
            found.append(_profile(file, _name(path, name), product))
    return found


def _name(path: Path, product: str | None = None) -> str:
    return f"{path.parent.name}/{product or path.stem}"


def _profile(file: ProfileFile, name: str, product: Product | None) -> DeviceProfile:
    facts = given(file.hardware) | (given(product.hardware) if product else {})
    grid, cost = file.launch.grid, product.cost if product else None
    assert grid, "a file without one is complained of"
    return DeviceProfile(
        name=name,
        backend=file.backend,
        architecture=file.architecture,
        arch=(product.arch if product else None) or file.arch,
        arch_pattern=file.arch,
        multiprocessor=file.multiprocessor,
        hardware=Hardware(**{key: fact.value for key, fact in facts.items()}),
        launch=msgspec.structs.replace(file.launch, cost=cost or file.launch.cost),
        grid=grid,
        origins={key: file.sources[fact.source] for key, fact in facts.items()},
        sources=file.sources,
        first_triton=file.first_triton or None,
        product=product,
    )


def _in_order(name: str) -> list[str | int]:
    """Returns what to sort names by: numbers in them count as numbers, mi60 before mi300x."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


@functools.cache
def _read(directories: tuple[Path, ...]) -> tuple[DeviceProfile, ...]:
    if missing := next((path for path in directories if not path.is_dir()), None):
        raise ProfileError(f"{missing} is not a directory; is the package installed, and PORTABLE_SOFTMAX_PROFILES right?")
    return tuple(read_profiles(file for path in directories for file in sorted(path.glob("[!.]*/[!.]*.yaml"))))
