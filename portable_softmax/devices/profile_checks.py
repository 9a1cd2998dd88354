"""Checks of a profile whose values are each in range. They reject only what is certainly wrong together."""

import datetime
import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.file_schema import Product, ProfileFile
from portable_softmax.devices.policy import FACTS, LaunchPolicy
from portable_softmax.devices.schema import given


class Relation(NamedTuple):
    """A relation between facts, which holds whenever all of them are known."""

    keys: tuple[str, ...]
    holds: Callable[..., bool]
    reason: str


RELATIONS = (
    Relation(
        ("shared_memory_per_program_max", "shared_memory_per_multiprocessor"),
        lambda program, multiprocessor: program <= multiprocessor,
        "a program's shared memory is part of its multiprocessor's",
    ),
    Relation(
        ("shared_memory_granule", "shared_memory_per_multiprocessor"),
        lambda granule, multiprocessor: granule <= multiprocessor,
        "no program that uses shared memory would fit",
    ),
    Relation(
        ("shared_memory_per_program_max", "shared_memory_sizes"),
        lambda program, sizes: program == sizes[-1],
        "the largest size is the most that a program can be given",
    ),
    Relation(
        ("warp_size", "max_threads_per_program"),
        lambda warp, threads: warp <= threads,
        "a program has at least one warp",
    ),
    Relation(
        ("max_threads_per_program", "max_warps_per_multiprocessor", "warp_size"),
        lambda threads, warps, warp: threads <= warps * warp,
        "all threads of a program are resident on one multiprocessor",
    ),
    Relation(
        ("registers_per_multiprocessor", "partitions_per_multiprocessor"),
        lambda registers, partitions: registers % partitions == 0,
        "each partition owns an equal slice of the registers",
    ),
    Relation(
        ("registers_per_multiprocessor", "partitions_per_multiprocessor", "warp_size", "register_granule"),
        lambda registers, partitions, warp, granule: registers // partitions % (warp * granule) == 0,
        "a partition's registers are given to whole warps in whole granules",
    ),
    Relation(
        ("max_registers_per_thread", "registers_per_multiprocessor", "partitions_per_multiprocessor", "warp_size"),
        lambda most, registers, partitions, warp: most * warp <= registers // partitions,
        "a warp's registers are in one partition",
    ),
    Relation(
        ("max_threads_per_program", "max_threads"),
        lambda program, launch: program <= launch,
        "no program would fit a launch",
    ),
    Relation(
        ("l2_cache_bytes", "memory_bytes"),
        lambda cache, memory: cache <= memory,
        "a cache is smaller than the memory behind it",
    ),
    Relation(
        ("last_level_cache_bytes", "memory_bytes"),
        lambda cache, memory: cache <= memory,
        "a cache is smaller than the memory behind it",
    ),
)


def complaints(file: ProfileFile, alone: bool = False) -> Iterator[str]:
    """Yields everything that is wrong with a file, each with its key and the reason.

    Args:
        file: the file, or the one that an extension stands for.
        alone: True checks the products' facts only among themselves, for an estimate, whose facts are those of no device.
    """
    if file.backend not in BACKENDS:
        yield f"backend: {file.backend!r} is none of {', '.join(BACKENDS)}"
    yield from _sources(file)
    yield from _patterns("arch", file.arch)
    facts = _numbers("hardware", file.hardware)
    yield from _contradictions(facts, facts)
    yield from _launch("launch", file.launch, facts)
    for name, product in file.products.items():
        where = f"products.{name}"
        if not re.fullmatch(r"[^\s/]+", name):
            yield f"{where}: {name!r} should have neither slashes nor spaces: the product is called vendor/name"
        for number, pattern in enumerate(product.matches):
            yield from _patterns(f"{where}.matches[{number}]", pattern)
        yield from _target(where, file, product)
        own = _numbers(f"{where}.hardware", product.hardware)
        yield from _contradictions(own if alone else facts | own, own)


def _launch(where: str, launch: LaunchPolicy, facts: dict[str, tuple[str, Any]]) -> Iterator[str]:
    """Yields a complaint for what is missing, so that some problem would have no launch."""
    if not launch.grid:
        yield f"{where}.grid: is missing; give it, or `extends`"
    path, most = facts.get("max_registers_per_thread", ("", None))
    if most and launch.registers and max(launch.registers.value) > most:
        yield f"{where}.registers {list(launch.registers.value)}, {path} {most}: a thread has no more registers"
    of_vector_cores = "warp_size" not in facts and bool(launch.tile_elements)
    wanted = ("tile_elements", "stream_elements") if of_vector_cores else ("cost",)
    if missing := [key for key in wanted if not getattr(launch, key)]:
        yield f"{where}: {', '.join(missing)} is missing; give it, or `extends`"


def _sources(file: ProfileFile) -> Iterator[str]:
    for name, source in file.sources.items():
        for date in re.findall(r"\b20\d\d-\d\d-\d\d\b", source.title):
            if reason := _error(datetime.date.fromisoformat, date):
                yield f"sources.{name}.title: {date} is no date: {reason}"
    for where, named in _named_sources(file):
        if named not in file.sources:
            near = difflib.get_close_matches(named, file.sources, 3) or list(file.sources)[:3]
            yield f"{where}: its source {named!r} is not among `sources`; there are {', '.join(near)}, ..."


def _named_sources(file: ProfileFile) -> Iterator[tuple[str, str]]:
    """Yields (path in the file, name of its source) for every fact."""
    policy = {key: value for key, value in given(file.launch).items() if key in FACTS}
    groups = {"hardware": given(file.hardware), "launch": policy}
    for name, product in file.products.items():
        groups[f"products.{name}.hardware"] = given(product.hardware)
        groups[f"products.{name}"] = {"cost": product.cost} if product.cost else {}
    for group, facts in groups.items():
        yield from ((f"{group}.{key}", fact.source) for key, fact in facts.items())


def _patterns(where: str, pattern: str) -> Iterator[str]:
    if reason := _error(re.compile, pattern):
        yield f"{where}: {pattern!r} is not a regular expression: {reason}"


def _error(read: Callable[[str], Any], text: str) -> str | None:
    """Returns the message of the error that `read` raises for the text; None if it can read the text."""
    try:
        read(text)
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def _target(where: str, file: ProfileFile, product: Product) -> Iterator[str]:
    """Yields a complaint if a product's target does not match the file's pattern. Plans without the device need the target."""
    if not _error(re.compile, file.arch) and not re.fullmatch(file.arch, arch := product.arch or file.arch):
        yield f"{where}.arch: {arch!r} is not a target that the file's arch {file.arch!r} matches"


def _numbers(where: str, struct: Any) -> dict[str, tuple[str, Any]]:
    """Returns (path in the file, value) by key."""
    return {key: (f"{where}.{key}", fact.value) for key, fact in given(struct).items()}


def _contradictions(facts: dict[str, tuple[str, Any]], own: dict[str, tuple[str, Any]]) -> Iterator[str]:
    """Yields a complaint for each relation that does not hold among `facts` and involves a fact of `own`."""
    for keys, holds, reason in RELATIONS:
        known = [facts[key] for key in keys if key in facts]
        if len(known) == len(keys) and not own.keys().isdisjoint(keys) and not holds(*(value for _, value in known)):
            yield f"{', '.join(f'{path} {value}' for path, value in known)}: {reason}"
