"""Reads files of profiles, and merges a file with what it extends. Errors name the file, the key and the reason."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
import yaml

from portable_softmax.devices.file_schema import Overlay, Product, ProfileFile
from portable_softmax.devices.schema import HardwareFacts, Source, given
from portable_softmax.errors import ProfileError

_PACKAGED = Path(__file__).parents[1] / "device_profiles"  # place of the profiles in a wheel
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[2] / "device_profiles"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # safe_load, by libyaml

Described = Mapping[str, tuple[ProfileFile, Product | None]]  # by name: a file, and the product in it or None


def read_file(path: Path) -> ProfileFile | Overlay:
    """Reads one file; with `extends` and without `backend` it is an Overlay.

    Raises:
        ProfileError: the file cannot be read or is not YAML, or a key is missing, unknown or out of range.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _LOADER)
        is_overlay = isinstance(content, dict) and "extends" in content and "backend" not in content
        return msgspec.convert(content, Overlay) if is_overlay else msgspec.convert(content, ProfileFile)
    except (OSError, yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise ProfileError(f"{path}: {error}") from error  # PyYAML raises more than its own errors


def architecture(path: Path, file: ProfileFile, files: Mapping[str, ProfileFile]) -> ProfileFile:
    """Returns the file with the launch preferences, and their sources, of the architecture that it extends.

    Raises:
        ProfileError: there is no such architecture, or it extends another; or one name stands for two sources.
    """
    if not file.extends:
        return file
    shipped = SHIPPED / f"{file.extends}.yaml"
    other = files.get(file.extends) or (read_file(shipped) if shipped.is_file() else None)
    if not isinstance(other, ProfileFile) or other.extends:
        raise ProfileError(f"{path}: extends: {file.extends!r} is no architecture that extends none{near(file.extends, files)}")
    named = {fact.source for fact in given(other.launch).values()}
    sources = {name: source for name, source in other.sources.items() if name in named}
    return msgspec.structs.replace(file, launch=file.launch.over(other.launch), sources=_joined(path, sources, file.sources))


def overlaid(path: Path, overlay: Overlay, described: Described) -> ProfileFile:
    """Returns the file that `overlay` extends, with this product in place of all others.

    Raises:
        ProfileError: nothing has the name that it extends, or one name stands for two sources.
    """
    if overlay.extends not in described:
        raise ProfileError(f"{path}: extends: there is no {overlay.extends!r}{near(overlay.extends, described)}")
    file, product = described[overlay.extends]
    base = product or Product()
    merged = Product(
        matches=overlay.matches,
        hardware=HardwareFacts(**given(base.hardware) | given(overlay.hardware)),
        arch=overlay.arch or base.arch,
        cost=overlay.cost or base.cost,
    )
    sources = _joined(path, file.sources, overlay.sources)
    return msgspec.structs.replace(file, sources=sources, products={path.stem: merged})


def near(word: str, known: Iterable[str]) -> str:
    """Returns a question for the known word that is most like another; "" if none is."""
    return "".join(f"; did you mean {each}?" for each in difflib.get_close_matches(word, list(known), 1))


def _joined(path: Path, theirs: Mapping[str, Source], mine: Mapping[str, Source]) -> dict[str, Source]:
    if twice := sorted(name for name in theirs.keys() & mine.keys() if theirs[name] != mine[name]):
        raise ProfileError(f"{path}: sources: what it extends has another {', '.join(twice)}; choose other names")
    return {**theirs, **mine}
