"""What cannot be right in a profile although each value is in range. Only what is certainly wrong."""

import datetime
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.schema import Product, ProfileFile, given


class Rule(NamedTuple):
    """A relation that facts and preferences keep, of those that are known."""

    keys: tuple[str, ...]
    holds: Callable[..., bool]
    reason: str


RULES = (
    Rule(
        ("shared_memory_per_program_max", "shared_memory_per_multiprocessor"),
        lambda program, multiprocessor: program <= multiprocessor,
        "a program's shared memory is part of its multiprocessor's",
    ),
    Rule(
        ("shared_memory_granule", "shared_memory_per_multiprocessor"),
        lambda granule, multiprocessor: granule <= multiprocessor,
        "no program that uses shared memory would fit",
    ),
    Rule(
        ("warp_size", "max_threads_per_program"),
        lambda warp, threads: warp <= threads,
        "a program has at least one warp",
    ),
    Rule(
        ("max_threads_per_program", "max_warps_per_multiprocessor", "warp_size"),
        lambda threads, warps, warp: threads <= warps * warp,
        "all threads of a program are resident on one multiprocessor",
    ),
    Rule(
        ("registers_per_multiprocessor", "partitions_per_multiprocessor"),
        lambda registers, partitions: registers % partitions == 0,
        "each partition owns an equal slice of the registers",
    ),
    Rule(
        ("registers_per_multiprocessor", "partitions_per_multiprocessor", "warp_size", "register_granule"),
        lambda registers, partitions, warp, granule: registers // partitions % (warp * granule) == 0,
        "a partition's registers are given to whole warps in whole granules",
    ),
    Rule(
        ("max_registers_per_thread", "registers_per_multiprocessor", "partitions_per_multiprocessor", "warp_size"),
        lambda most, registers, partitions, warp: most * warp <= registers // partitions,
        "a warp's registers are in one partition",
    ),
    Rule(
        ("elements_per_thread", "max_registers_per_thread"),
        lambda elements, most: elements <= most,
        "an element takes a register",
    ),
    Rule(
        ("max_registers", "max_registers_per_thread"),
        lambda wanted, most: wanted[-1] <= most,
        "no instruction can name that many registers",
    ),
    Rule(
        ("max_threads_per_program", "max_threads"),
        lambda program, launch: program <= launch,
        "no program would fit a launch",
    ),
    Rule(
        ("shared_tile_cols", "shared_num_warps"),
        lambda cols, warps: warps <= cols,
        "each warp has elements of the tile",
    ),
    Rule(
        ("shared_tile_cols", "shared_wide_cols"),
        lambda cols, wide: cols <= wide,
        "wide parts are not narrower than others",
    ),
    Rule(
        ("l2_cache_bytes", "memory_bytes"),
        lambda cache, memory: cache <= memory,
        "a cache is smaller than the memory behind it",
    ),
    Rule(
        ("last_level_cache_bytes", "memory_bytes"),
        lambda cache, memory: cache <= memory,
        "a cache is smaller than the memory behind it",
    ),
)


def complaints(file: ProfileFile) -> Iterator[str]:
    """Everything that is wrong with a file, each with its key and the reason."""
    if file.backend not in BACKENDS:
        yield f"backend: {file.backend!r} is none of {', '.join(BACKENDS)}"
    yield from _sources(file)
    yield from _patterns("arch", file.arch)
    facts = _numbers("hardware", file.hardware) | _numbers("launch", file.launch)
    yield from _contradictions(facts, facts)
    for name, product in file.products.items():
        where = f"products.{name}"
        if not re.fullmatch(r"[^\s/]+", name):
            yield f"{where}: {name!r} should have neither slashes nor spaces: the product is called vendor/name"
        for number, pattern in enumerate(product.matches):
            yield from _patterns(f"{where}.matches[{number}]", pattern)
        yield from _target(where, file, product)
        own = _numbers(f"{where}.hardware", product.hardware)
        yield from _contradictions(facts | own, own)


def _sources(file: ProfileFile) -> Iterator[str]:
    for name, source in file.sources.items():
        for date in re.findall(r"\b20\d\d-\d\d-\d\d\b", source.title):
            if reason := _error(datetime.date.fromisoformat, date):
                yield f"sources.{name}.title: {date} is no date: {reason}"
    groups = {"hardware": file.hardware, "launch": file.launch}
    groups |= {f"products.{name}.hardware": product.hardware for name, product in file.products.items()}
    for group, struct in groups.items():
        for key, fact in given(struct).items():
            if fact.source not in file.sources:
                yield f"{group}.{key}: its source {fact.source!r} is not among `sources` ({', '.join(file.sources)})"


def _patterns(where: str, pattern: str) -> Iterator[str]:
    if reason := _error(re.compile, pattern):
        yield f"{where}: {pattern!r} is not a regular expression: {reason}"


def _error(read: Callable[[str], Any], text: str) -> str | None:
    """Why `read` cannot read the text; None if it can."""
    try:
        read(text)
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        return str(error)
    return None


def _target(where: str, file: ProfileFile, product: Product) -> Iterator[str]:
    """A product that is planned for without the device needs one target, which its file's pattern knows again."""
    if not _error(re.compile, file.arch) and not re.fullmatch(file.arch, arch := product.arch or file.arch):
        yield f"{where}.arch: {arch!r} is not a target that the file's arch {file.arch!r} matches"


def _numbers(where: str, struct: Any) -> dict[str, tuple[str, Any]]:
    """(path in the file, value) by key."""
    return {key: (f"{where}.{key}", fact.value) for key, fact in given(struct).items()}


def _contradictions(facts: dict[str, tuple[str, Any]], own: dict[str, tuple[str, Any]]) -> Iterator[str]:
    """Rules that do not hold among `facts`, of those that `own` has a part in."""
    for keys, holds, reason in RULES:
        known = [facts[key] for key in keys if key in facts]
        if len(known) == len(keys) and not own.keys().isdisjoint(keys) and not holds(*(value for _, value in known)):
            yield f"{', '.join(f'{path} {value}' for path, value in known)}: {reason}"
