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
from typing import Any

import msgspec
import yaml

from portable_softmax.errors import ProfileError
from portable_softmax.schema import Hardware, LaunchPolicy, Product, ProfileFile, Source


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
