"""Launches that are timed, of the softmax and of row kernels, and the tables that they are written to."""

import csv
import gzip
import io
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from portable_probe.tune.cells import SHAPES, Cell, problem_on
from portable_probe.tune.fit import Timed
from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.facts import RowLaunch, Traffic, row_facts, softmax_facts
from portable_softmax.planning.grid import readings
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import spilled_by
from portable_softmax.planning.problem import Problem


class SoftmaxLaunch(NamedTuple):
    """A cell's launch: how rows are read and cut, what a program uses, programs on a multiprocessor, and microseconds."""

    cell: Cell
    problem: Problem
    tiling: Tiling
    resources: KernelResources
    resident: int
    us: float = math.nan

    @property
    def num_programs(self) -> int:
        """Returns the size of the grid."""
        return self.problem.tiles(self.tiling.tile_rows) * self.tiling.splits

    @property
    def columns(self) -> dict[str, Any]:
        """Returns the line of a table."""
        measured = {"reading": reading_of(self.problem), "resident": self.resident, "us": self.us}
        return asdict(self.cell) | measured | asdict(self.tiling) | asdict(self.resources)

    def timed(self, device: Device) -> Timed:
        """Returns what a fit needs."""
        spilled = spilled_by(self.resources)
        facts = softmax_facts(self.problem, self.tiling, self.num_programs, self.resident, device, spilled)
        return Timed(str(self.cell), self.cell.kind.split()[0], True, facts, self.us)

    def __str__(self) -> str:
        return f"{self.cell}, {reading_of(self.problem)}: {self.tiling}"


class KernelLaunch(NamedTuple):
    """The launch of a row kernel, its type, what a row moves, and microseconds."""

    kernel: str
    dtype: str
    launch: RowLaunch
    traffic: Traffic
    us: float = math.nan

    @property
    def columns(self) -> dict[str, Any]:
        """Returns the line of a table."""
        return {"kernel": self.kernel, "dtype": self.dtype} | self.launch._asdict() | self.traffic._asdict() | {"us": self.us}

    def timed(self, device: Device) -> Timed:
        """Returns what a fit needs."""
        problem = f"{self.kernel} {self.launch.n_rows} x {self.launch.n_cols} {self.dtype} {self.launch.multiple}"
        return Timed(problem, self.kernel, False, row_facts(self.traffic, self.launch, device), self.us)


Launch = SoftmaxLaunch | KernelLaunch


def reading_of(problem: Problem) -> str:
    """Returns the name of the way in which a problem is read."""
    return next((name for name in ("unaligned", "scattered") if getattr(problem, name)), "plain")


def table_of(launches: Iterable[Launch]) -> str:
    """Returns a table as comma-separated text, a line for each launch of one kind."""
    rows = [launch.columns for launch in launches]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([*rows[:1], *(row.values() for row in rows)])
    return text.getvalue()


def read(path: Path, device: Device) -> list[Launch]:
    """Reads a table of a device's launches, which may be compressed; readings and columns that no longer exist are left out.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none; names the line.
    """
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    launches: list[Launch] = []
    number = 1
    try:
        for number, row in enumerate(csv.DictReader(text.splitlines()), 2):  # noqa: B007 - the error names it
            launch = _launch({key: value for key, value in row.items() if value}, device)
            if launch and not 0 < launch.us < math.inf:
                raise ValueError(f"{launch.us} microseconds are no time")
            launches += [launch] if launch else []
    except (ValueError, KeyError, csv.Error) as error:
        raise ValueError(f"{path}, line {number}, should be as `portable-softmax tune` writes it: {error!r}") from error
    return launches


def _launch(row: dict[str, str], device: Device) -> Launch | None:
    us = float(row["us"])
    if "kernel" in row:
        launch, traffic = (_converted([row[name] for name in of._fields], of) for of in (RowLaunch, Traffic))
        return KernelLaunch(row["kernel"], row["dtype"], launch, traffic, us)
    cell, tiling = _converted(row, Cell), _converted(row, Tiling)
    if cell.kind.split()[0] not in {kind.split()[0] for kind, _ in SHAPES}:
        return None
    problem = problem_on(cell, device)
    ways = {reading_of(way): way for way in readings(problem, device)} if problem else {}
    if row["reading"] not in ways:
        return None
    return SoftmaxLaunch(cell, ways[row["reading"]], tiling, _converted(row, KernelResources), int(row["resident"]), us)


def _converted(values: Any, kind: Any) -> Any:
    return msgspec.convert(values, kind, strict=False)
