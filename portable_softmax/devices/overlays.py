"""A user's product that extends an architecture or another product: its file holds only the differences."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from portable_softmax.devices.file_schema import Extension, Product, ProfileFile
from portable_softmax.devices.schema import HardwareFacts, given
from portable_softmax.errors import ProfileError

Described = Mapping[str, tuple[ProfileFile, Product | None]]  # by name: a file, and the product in it or None


def extended(path: Path, extension: Extension, described: Described) -> ProfileFile:
    """Returns the file that `extension` stands for: the extended file, with this product in place of all others.

    Raises:
        ProfileError: nothing has the name that it extends, or a source of that name is already there.
    """
    if extension.extends not in described:
        vendor = extension.extends.partition("/")[0]
        near = ", ".join(name for name in described if name.startswith(f"{vendor}/")) or ", ".join(described)
        raise ProfileError(f"{path}: extends: there is no {extension.extends!r}; there are {near}")
    file, product = described[extension.extends]
    if twice := sorted(file.sources.keys() & extension.sources.keys()):
        raise ProfileError(f"{path}: sources: {extension.extends} has {', '.join(twice)} too; choose other names")
    facts = given(product.hardware) if product else {}
    merged = Product(
        matches=extension.matches,
        hardware=HardwareFacts(**(facts | given(extension.hardware))),
        arch=extension.arch or (product.arch if product else msgspec.UNSET),
        rules=[*extension.rules, *(product.rules if product else ())],
    )
    sources = file.sources | extension.sources
    return msgspec.structs.replace(file, sources=sources, products={path.stem: merged})
