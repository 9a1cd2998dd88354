"""Files of device_profiles/: an architecture and its products."""

import re
from typing import Annotated

import msgspec

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.policy import Cost, LaunchPolicy
from portable_softmax.devices.schema import HardwareFacts, Source, Text, set_fields

Release = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$")]  # of Triton


def _check_patterns(*texts: str) -> None:
    for text in texts:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{text!r} is not a regular expression") from error


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device that can be bought. What it gives hides the same of its architecture."""

    matches: list[Text] = []  # regular expressions; one must match the whole name that the runtime reports
    hardware: HardwareFacts = HardwareFacts()
    arch: Text | msgspec.UnsetType = msgspec.UNSET  # Triton's target, if the products of an architecture have different targets
    cost: Cost | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        _check_patterns(*self.matches)


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An architecture and its products.

    Raises:
        ValueError: a backend or a source is unknown, a launch lacks facts, or a pattern is none.
    """

    backend: str
    architecture: Text
    arch: Text  # regular expression for the whole of Triton's target architecture: 90, gfx942, Ascend910B[1-9].*
    multiprocessor: Text  # the vendor's word for it, for reports
    sources: dict[str, Source]
    hardware: HardwareFacts
    extends: Text | msgspec.UnsetType = msgspec.UNSET  # an architecture, of which launches are what `launch` does not give
    launch: LaunchPolicy = LaunchPolicy()
    first_triton: Release | msgspec.UnsetType = msgspec.UNSET  # first that compiles for it without a device
    products: dict[str, Product] = {}

    def __post_init__(self) -> None:
        _check_patterns(self.arch)
        if self.backend not in BACKENDS:
            raise ValueError(f"backend: {self.backend!r} is none of {', '.join(BACKENDS)}")
        launch, groups = set_fields(self.launch), [set_fields(self.hardware), set_fields(self.launch)]
        vectors = "warp_size" not in groups[0] and "tile_elements" in launch  # of devices without warps
        wanted = {"grid", "tile_elements", "stream_elements"} if vectors else {"grid", "cost"}
        if missing := sorted(wanted - launch.keys()):
            raise ValueError(f"launch: {', '.join(missing)} is missing; give it, or `extends`")
        for name, product in self.products.items():
            groups += [set_fields(product.hardware), {"cost": product.cost} if product.cost else {}]
            if not re.fullmatch(self.arch, arch := product.arch or self.arch):
                raise ValueError(f"products.{name}.arch: {arch!r} is not a target that the file's arch {self.arch!r} matches")
        for key, source in ((key, fact.source) for group in groups for key, fact in group.items()):
            if source not in self.sources:
                raise ValueError(f"{key}: its source {source!r} is not among `sources`")
