"""Files that extend others and hold only the differences: a user's product, and an architecture's preferences for launches."""

import difflib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from portable_softmax.devices.file_schema import Extension, Product, ProfileFile
from portable_softmax.devices.policy import FACTS, LaunchPolicy
from portable_softmax.devices.schema import HardwareFacts, given
from portable_softmax.errors import ProfileError

Described = Mapping[str, tuple[ProfileFile, Product | None]]  # by name: a file, and the product in it or None


def extended(path: Path, extension: Extension, described: Described) -> ProfileFile:
    """Returns the file that `extension` stands for: the extended file, with this product in place of all others.

    Raises:
        ProfileError: nothing has the name that it extends, or a source of that name is already there.
    """
    if extension.extends not in described:
        near = difflib.get_close_matches(extension.extends, described, 5) or list(described)
        raise ProfileError(f"{path}: extends: there is no {extension.extends!r}; there are {', '.join(near)}")
    file, product = described[extension.extends]
    if twice := sorted(file.sources.keys() & extension.sources.keys()):
        raise ProfileError(f"{path}: sources: {extension.extends} has {', '.join(twice)} too; choose other names")
    facts = given(product.hardware) if product else {}
    merged = Product(
        matches=extension.matches,
        hardware=HardwareFacts(**(facts | given(extension.hardware))),
        arch=extension.arch or (product.arch if product else msgspec.UNSET),
        cost=extension.cost or (product.cost if product else msgspec.UNSET),
    )
    sources = file.sources | extension.sources
    return msgspec.structs.replace(file, sources=sources, products={path.stem: merged})


def with_launch(path: Path, file: ProfileFile, files: Mapping[str, ProfileFile]) -> ProfileFile:
    """Returns the file with the launch preferences, and their sources, of the architecture that its `launch` extends.

    Raises:
        ProfileError: there is no such architecture, or it extends another; or one name stands for two sources.
    """
    name = file.launch.extends
    if not name:
        return file
    other = files.get(name)
    if other is None or other.launch.extends:
        there = ", ".join(each for each, found in files.items() if not found.launch.extends) or "the files that are here"
        raise ProfileError(f"{path}: launch.extends: {name!r} is none of {there}")
    sources = {key: source for key, source in other.sources.items() if key in set(_named(other.launch))}
    if twice := sorted(key for key, source in sources.items() if file.sources.get(key, source) != source):
        raise ProfileError(f"{path}: sources: {name} has another {', '.join(twice)}; choose other names")
    return msgspec.structs.replace(file, launch=file.launch.over(other.launch), sources=sources | file.sources)


def _named(launch: LaunchPolicy) -> list[str]:
    return [fact.source for key, fact in given(launch).items() if key in FACTS]
