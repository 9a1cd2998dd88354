"""Values of the numbers that launches are computed with, one number at a time around those that a profile gives."""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import MOST_PAIRED, NumberRow
from portable_softmax.devices.schema import Source
from portable_softmax.planning.budget import Candidate
from portable_softmax.planning.candidates import candidates
from portable_softmax.planning.problem import MAX_COLS, Problem
from portable_softmax.planning.reading import as_read

SOURCE = "tune"  # name of the source of a row that is tried
FACTORS = (2, 0.5, 1.5, 0.75)
READING = ("unaligned_cols", "paired_cols")  # that decide how a row is read, and so its access
ALONE = {  # numbers with a few values, or that a profile need not give
    "unaligned_cols": (1, MAX_COLS),
    "paired_cols": (MOST_PAIRED, 1),
    "held_across": (2, 4),
    "bytes_per_block": (8, 16, 4, 32),
    "split_warps": (2, 8, 1, 4),
}
LOOKED_AT = 8  # launches of a problem, of which the planner takes one of the first

Variation = tuple[tuple[str, Any], ...]  # (number, value), one or a few; none for the launch that is computed


def variations(device: Device) -> list[Variation]:
    """Returns what is tried on a device beside its own numbers, the likeliest first."""
    for_all, for_some = _own(device)
    keys = [key for key in for_all if key not in (*ALONE, "registers")]
    around: list[list[Variation]] = [
        [((key, value),) for key in keys for value in _times(key, for_all[key], factor)] for factor in FACTORS
    ]
    first, *others = around
    if device.hardware.warp_size:
        alone: list[Variation] = [((key, value),) for key, values in ALONE.items() for value in values]
        first = [*first, *alone, *_splits(device, for_all.get("elements_per_split", 1)), *for_some]
    return list(dict.fromkeys(itertools.chain(first, *others)))


def row_of(variation: Variation) -> tuple[NumberRow, ...]:
    """Returns the row for all problems that gives a variation's numbers; none for the launch that is computed."""
    return (NumberRow(source=SOURCE, **dict(variation)),) if variation else ()


def words_of(variation: Variation) -> str:
    """Writes a variation as a cell of a table: `split_warps=2 elements_per_split=64`, or `computed`."""
    return " ".join(f"{key}={value}" for key, value in variation) or "computed"


def variation_of(words: str) -> Variation:
    """Reads what `words_of` wrote.

    Raises:
        ValueError: it is no such text.
    """
    if words == "computed":
        return ()
    pairs = [each.partition("=") for each in words.split()]
    return tuple((key, float(value) if "." in value else int(value)) for key, _, value in pairs)


@functools.lru_cache(maxsize=1024)
def with_rows(device: Device, rows: tuple[NumberRow, ...]) -> Device:
    """Returns the device with rows of numbers before those of its profile; the same object each time."""
    if not rows:
        return device
    profile = device.profile
    launch = msgspec.structs.replace(profile.launch, numbers=[*rows, *profile.launch.numbers])
    named = {row.source: Source(verified="measured", title="a launch that is tried") for row in rows}
    tried = msgspec.structs.replace(profile, launch=launch, sources={**named, **profile.sources})
    return dataclasses.replace(device, profile=tried)


def first_launches(problem: Problem, device: Device) -> tuple[Any, ...]:
    """Returns how a problem is read, and the first of its candidates: equal ones are planned alike."""
    read = as_read(problem, device)
    return read, tuple((each.tiling, each.spilled_bytes) for each in _first(read, device))


def _first(read: Problem, device: Device) -> Iterator[Candidate]:
    return itertools.islice(candidates(read, device), LOOKED_AT)


def _own(device: Device) -> tuple[dict[str, Any], list[Variation]]:
    """Returns the numbers that a profile gives for all problems, and those that it gives for some."""
    for_all: dict[str, Any] = {}
    for_some: list[Variation] = []
    for row in device.profile.launch.numbers:
        if row.conditions:
            for_some += [((key, value),) for key, value in row.given.items() if key != "registers"]
        else:
            for_all = row.given | for_all
    overridden = [((key, value),) for key, value in for_all.items() if key in {key for ((key, _),) in for_some}]
    return for_all, [*for_some, *overridden]


def _times(key: str, value: float, factor: float) -> Iterator[float]:
    """Yields a value times a factor, if the number may have that."""
    varied = round(value * factor, 4) if isinstance(value, float) else int(value * factor)
    with contextlib.suppress(msgspec.ValidationError):
        msgspec.convert({"source": SOURCE, key: varied}, NumberRow)
        yield varied


def _splits(device: Device, elements: int) -> Iterator[Variation]:
    """Yields splits with registers for 3, 4 or 5 programs of a warp for each partition, and splits of fewer, larger threads."""
    hardware = device.hardware
    threads = (hardware.partitions_per_multiprocessor or 1) * (hardware.warp_size or 1)
    granule, most = hardware.register_granule or 1, hardware.max_registers_per_thread or 0
    each = [(hardware.registers_per_multiprocessor or 0) // (programs * threads) // granule * granule for programs in (3, 5, 4)]
    registers = [("split_registers", number) for number in each if 0 < number <= most]
    yield from ((number,) for number in registers)
    for warps in (1, 2):
        larger: Variation = (("split_warps", warps), ("elements_per_split", 2 * elements))
        yield larger
        yield from ((*larger, number) for number in registers[:1])
