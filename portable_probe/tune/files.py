"""The table of a run's launches."""

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from portable_probe.tune.cells import Cell, problem_on
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import readings


class Launch(NamedTuple):
    """A cell's launch: how rows are read and cut, what a program uses, programs on a multiprocessor, and microseconds."""

    cell: Cell
    problem: Problem
    tiling: Tiling
    resources: KernelResources
    resident: int
    us: float = math.nan

    @property
    def n_programs(self) -> int:
        """Returns the size of the grid."""
        return self.problem.tiles(self.tiling.tile_rows) * self.tiling.splits

    def __str__(self) -> str:
        return f"{self.cell}, {reading_of(self.problem)}: {self.tiling}"


def reading_of(problem: Problem) -> str:
    """Names the way in which a problem is read."""
    return next((name for name in ("unaligned", "scattered") if getattr(problem, name)), "plain")


def table_of(launches: Iterable[Launch]) -> str:
    """Returns a table as comma-separated text, a line for each launch."""
    rows: list[dict[str, Any]] = []
    for each in launches:
        told = {"reading": reading_of(each.problem), "resident": each.resident, "us": each.us}
        rows.append(asdict(each.cell) | told | asdict(each.tiling) | asdict(each.resources))
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([*rows[:1], *(row.values() for row in rows)])
    return text.getvalue()


def read(path: Path, device: Device) -> list[Launch]:
    """Reads a table of a device's launches; columns that it has besides are passed over.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none; names the line.
    """
    found: list[Launch] = []
    try:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            given = {key: value for key, value in row.items() if value}
            cell, tiling = msgspec.convert(given, Cell, strict=False), msgspec.convert(given, Tiling, strict=False)
            used, problem = msgspec.convert(given, KernelResources, strict=False), problem_on(cell, device)
            ways = {reading_of(each): each for each in readings(problem, device)} if problem else {}
            found.append(Launch(cell, ways[given["reading"]], tiling, used, int(given["resident"]), float(given["us"])))
            if not 0 < found[-1].us < math.inf:
                raise ValueError(f"{found.pop().us} microseconds are no time")
    except (ValueError, KeyError, csv.Error) as error:
        raise ValueError(f"{path}, line {len(found) + 2}, should be as `portable-softmax tune` writes it: {error!r}") from error
    return found
