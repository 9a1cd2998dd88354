"""Contents of a file of device_profiles/."""

import msgspec

from portable_softmax.devices.policy import Cost, LaunchPolicy
from portable_softmax.devices.schema import HardwareFacts, Release, Source, Text


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device that can be bought. What it gives hides the same of its architecture."""

    matches: list[Text] = []  # regular expressions; one must match the whole name that the runtime reports
    hardware: HardwareFacts = HardwareFacts()
    arch: Text | msgspec.UnsetType = msgspec.UNSET  # Triton's target, if the products of an architecture have different targets
    cost: Cost | msgspec.UnsetType = msgspec.UNSET


class Overlay(Product, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A product in a file of its own, named after the file: only what differs from the architecture or product it extends."""

    extends: Text
    sources: dict[str, Source] = {}


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An architecture and its products."""

    backend: str
    architecture: Text
    arch: Text  # regular expression for the whole of Triton's target architecture: 90, gfx942, Ascend910B[1-9].*
    multiprocessor: Text  # the vendor's word for it, for reports
    sources: dict[str, Source]
    hardware: HardwareFacts
    extends: Text | msgspec.UnsetType = msgspec.UNSET  # an architecture, of which launches are what `launch` does not give
    launch: LaunchPolicy = LaunchPolicy()
    first_triton: Release | msgspec.UnsetType = msgspec.UNSET  # first release that compiles for it without a device
    products: dict[str, Product] = {}
