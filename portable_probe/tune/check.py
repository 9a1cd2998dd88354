"""Checks files that runs wrote, without their devices: the profile, its launches, rates and regret."""

import importlib.metadata
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from tabulate import tabulate

from portable_probe.tune import table
from portable_probe.tune.cells import Cell
from portable_probe.tune.measuring import Launch, plan_on
from portable_probe.tune.processes import Failed, Job, answers
from portable_probe.tune.run import CHOSEN, DEFAULT, Limits
from portable_probe.tune.variations import row_of, variation_of, with_rows
from portable_softmax.devices.device import Device, merge
from portable_softmax.devices.file_schema import Extension
from portable_softmax.devices.profile_files import read_file
from portable_softmax.errors import ProfileError

FASTEST = 1.05  # times the rate of a copy
VARIABLE = "PORTABLE_SOFTMAX_PROFILES"


class Use(NamedTuple):
    """A launch, and what a program of it uses."""

    launch: str
    registers: int | None
    spilled_bytes: int
    programs_per_multiprocessor: int


def check(path: Path, limits: Limits = DEFAULT) -> list[str]:
    """Prints what the launches of a file and of the table beside it use, and returns all complaints."""
    with _taken(path.parent.parent):
        wrong, extension = [], None
        try:
            found = read_file(path)
            extension = found if isinstance(found, Extension) else None
            if extension:
                Device.from_profile(_name(path))
        except ProfileError as error:
            wrong.append(str(error))
        if not extension:
            return wrong or [f"{path}: it extends nothing, so it is no profile that `portable-softmax tune` wrote"]
        try:
            lines = table.read(path.with_suffix(".csv"))
        except (OSError, ValueError) as error:
            return [*wrong, f"{path.with_suffix('.csv')}: {error}"]
        planned = [] if wrong else list(_launches(path, extension, lines, limits))
    where = path.with_suffix(".csv")
    return [*wrong, *(f"{where}: {each}" for each in (*planned, *_too_fast(lines))), *_summary(path, extension, lines)]


def replanned(name: str, n_own: int, cell: Cell, words: str) -> Use:
    """Plans a cell as a line of a table says, for a device that need not be here.

    Args:
        name: of the profile.
        n_own: rows of numbers that the run chose; without them launches are as computed.
        cell: the cell.
        words: what was varied; CHOSEN keeps the run's rows.

    Raises:
        PlanError, CompileError, ProfileError: it cannot be planned.
        ValueError: there are no such numbers.
    """
    device = Device.from_profile(name)
    if words != CHOSEN:
        launch = device.profile.launch
        computed = msgspec.structs.replace(launch, numbers=launch.numbers[n_own:])
        device = merge(msgspec.structs.replace(device.profile, launch=computed), None, None)
        device = with_rows(device, row_of(variation_of(words)))
    plan = plan_on(cell, device)
    used = plan.resources
    programs = plan.occupancy.programs_per_multiprocessor
    return Use(str(Launch.of(plan)), used.registers_per_thread, used.spilled_bytes_per_thread, programs)


def _launches(path: Path, extension: Extension, lines: list[table.Line], limits: Limits) -> Iterator[str]:
    """Prints a table of launches, and yields a complaint for each that is planned otherwise here, or not at all."""
    said: dict[Job, str] = {}
    for line in lines:
        if line["median_us"]:
            words = {line["numbers"], *([CHOSEN] if table.AFTER in line["chosen"].split() else [])}
            said |= {(_name(path), len(extension.numbers), table.cell_of(line), each): line["launch"] for each in words}
    uses = {}
    same = all(f"triton {_triton()}," in source.title for source in extension.sources.values())
    for job, found in answers(replanned, list(said), limits.processes, limits.plan_s, math.inf):
        cell, words = job[2:]
        if isinstance(found, Failed):
            yield f"{cell}, {words}: {said[job]!r} was launched; here {found.reason}"
            continue
        uses[found.launch.rpartition(", ")[0]] = found
        if found.launch != said[job] and same:
            yield f"{cell}, {words}: {said[job]!r} was launched; here it is {found.launch!r}"
    rows = [(launch, *use[1:]) for launch, use in sorted(uses.items())]
    print(tabulate(rows, ("launch", "registers", "spilled bytes", "programs per multiprocessor"), disable_numparse=True))
    if not same:
        print(f"{path} is of another Triton than {_triton()}: other launches here are no mistake")


def _too_fast(lines: list[table.Line]) -> Iterator[str]:
    """Yields a complaint for each rate that no copy allows; a reduction of a shard, which writes nothing, is no copy."""
    copy = table.copy_rate(lines)
    if copy is None:
        yield "no copy was timed"
        return
    for line in lines:
        if line["median_us"] and line["step"] != "reduce":
            rate = table.gb_per_s(line, "median_us")
            if rate > FASTEST * copy:
                yield f"{table.cell_of(line)}, {line['launch']}: {rate:.4g} GB/s; the fastest copy has {copy:.4g}"


def _summary(path: Path, extension: Extension, lines: list[table.Line]) -> Iterator[str]:
    """Yields a complaint if no source says what the table tells."""
    told = table.summary(lines)
    if not any(source.title.endswith(told) for source in extension.sources.values()):
        titles = "; ".join(source.title for source in extension.sources.values())
        yield f"{path}: sources: the table tells {told!r}; the file says {titles!r}"


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _triton() -> str:
    return importlib.metadata.version("triton")


@contextmanager
def _taken(directory: Path) -> Iterator[None]:
    """Lets this process, and those that it starts, take the profiles of a directory."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(directory.resolve())
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
