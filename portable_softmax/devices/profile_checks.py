"""Files of device_profiles/, and checks of one beyond the ranges of its values."""

import re
from collections.abc import Iterator
from operator import le
from typing import Any

import msgspec

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.policy import Cost, LaunchPolicy
from portable_softmax.devices.schema import HardwareFacts, Release, Source, Text, set_fields


class Product(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A device that can be bought. What it gives hides the same of its architecture."""

    matches: list[Text] = []  # regular expressions; one must match the whole name that the runtime reports
    hardware: HardwareFacts = HardwareFacts()
    arch: Text | msgspec.UnsetType = msgspec.UNSET  # Triton's target, if the products of an architecture have different targets
    cost: Cost | msgspec.UnsetType = msgspec.UNSET


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


_MEMORY = "shared_memory_per_multiprocessor"
_REGISTERS = "registers_per_multiprocessor partitions_per_multiprocessor"
_THREADS = "max_threads_per_program"
RELATIONS: tuple[tuple[str, Any, str], ...] = (  # facts, what holds if all of them are known, and the reason
    (f"shared_memory_per_program_max {_MEMORY}", le, "a program's shared memory is part of its multiprocessor's"),
    (f"shared_memory_granule {_MEMORY}", le, "no program that uses shared memory would fit"),
    ("shared_memory_per_program_max shared_memory_sizes", lambda most, sizes: most == sizes[-1], "one program can have it"),
    (f"warp_size {_THREADS}", le, "a program has at least one warp"),
    (f"{_THREADS} max_warps_per_multiprocessor warp_size", lambda n, warps, warp: n <= warps * warp, "a program is resident"),
    (_REGISTERS, lambda n, partitions: n % partitions == 0, "a partition owns an equal slice of the registers"),
    (
        f"{_REGISTERS} warp_size register_granule",
        lambda n, partitions, warp, granule: n // partitions % (warp * granule) == 0,
        "a partition's registers are allocated to whole warps in whole granules",
    ),
    (
        f"{_REGISTERS} warp_size max_registers_per_thread",
        lambda n, partitions, warp, most: most * warp <= n // partitions,
        "a warp's registers are in one partition",
    ),
    (f"{_THREADS} max_threads", le, "no program would fit a launch"),
    ("l2_cache_bytes memory_bytes", le, "a cache is smaller than the memory behind it"),
    ("last_level_cache_bytes memory_bytes", le, "a cache is smaller than the memory behind it"),
)


def complaints(file: ProfileFile, alone: bool = False) -> Iterator[str]:
    """Yields everything that is wrong with a file, with its key and the reason.

    Args:
        file: the file, with what it extends.
        alone: True checks the products' facts only among themselves, for an estimate: its facts are not those of one device.
    """
    if file.backend not in BACKENDS:
        yield f"backend: {file.backend!r} is none of {', '.join(BACKENDS)}"
    yield from _no_patterns("arch", [file.arch])
    launch, facts = file.launch, set_fields(file.hardware)
    groups = {"hardware": facts, "launch": set_fields(launch)}
    yield from _contradictions("hardware", facts, facts)
    vectors = "warp_size" not in facts and launch.tile_elements  # of devices without warps
    wanted = ("grid", "tile_elements", "stream_elements") if vectors else ("grid", "cost")
    if missing := [key for key in wanted if not getattr(launch, key)]:
        yield f"launch: {', '.join(missing)} is missing; give it, or `extends`"
    for name, product in file.products.items():
        where, own = f"products.{name}", set_fields(product.hardware)
        groups |= {f"{where}.hardware": own, where: {"cost": product.cost} if product.cost else {}}
        yield from _no_patterns(f"{where}.matches", product.matches)
        arch = product.arch or file.arch
        if not list(_no_patterns("", [file.arch])) and not re.fullmatch(file.arch, arch):
            yield f"{where}.arch: {arch!r} is not a target that the file's arch {file.arch!r} matches"
        yield from _contradictions(f"{where}.hardware", own if alone else facts | own, own)
    for where, key, source in ((at, key, fact.source) for at, group in groups.items() for key, fact in group.items()):
        if source not in file.sources:
            yield f"{where}.{key}: its source {source!r} is not among `sources`"


def _no_patterns(where: str, texts: list[str]) -> Iterator[str]:
    for text in texts:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError):
            yield f"{where}: {text!r} is not a regular expression"


def _contradictions(where: str, facts: dict[str, Any], own: dict[str, Any]) -> Iterator[str]:
    """Yields each relation that does not hold among `facts` and involves a fact of `own`."""
    for keys, holds, reason in RELATIONS:
        known = {key: facts[key].value for key in keys.split() if key in facts}
        if len(known) == len(keys.split()) and own.keys() & known.keys() and not holds(*known.values()):
            yield f"{where}: {', '.join(f'{key} {value}' for key, value in known.items())}: {reason}"
