"""Files of a run: the table of its launches, and a profile with the numbers that fit them."""

import csv
import datetime
import io
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from portable_probe.report import software
from portable_probe.tune.cells import Cell, problem_on, reading_of
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.reading import readings

SOURCE = "tuned"


class Launch(msgspec.Struct, frozen=True):
    """A line of the table: a cell, how its rows are cut, what a program uses, how many fit, who chose it, and its time."""

    kind: str
    n_rows: int
    n_cols: int
    dtype: str
    backward: bool
    reading: str  # see cells.reading_of
    tile_rows: int
    width: int
    splits: int
    blocks: int
    held: bool
    resident: int  # programs on a multiprocessor
    planned: bool = False  # by the planner
    num_warps: int | None = None
    max_registers: int | None = None
    folded: int = 1
    registers_per_thread: int | None = None
    spilled_bytes_per_thread: int = 0
    stack_frame_bytes: int | None = None
    us: float = math.nan

    @property
    def cell(self) -> Cell:
        """Returns the problem."""
        return Cell(self.kind, self.n_rows, self.n_cols, self.dtype, self.backward)

    @property
    def tiling(self) -> Tiling:
        """Returns how rows are cut."""
        sizes = self.tile_rows, self.width, self.num_warps, 1, self.splits, self.max_registers, self.blocks
        return Tiling(*sizes, held=self.held, walk=False, folded=self.folded)

    @property
    def spilled_bytes(self) -> int:
        """Returns the bytes of memory that each thread spills into."""
        return self.spilled_bytes_per_thread if self.stack_frame_bytes is None else self.stack_frame_bytes

    def problem_on(self, device: Device) -> Problem:
        """Returns the problem as the launch reads it.

        Raises:
            ValueError: the device does not read it so.
        """
        given = problem_on(self.cell, device)
        for problem in readings(given, device) if given else ():
            if reading_of(problem) == self.reading:
                return problem
        raise ValueError(f"{device.profile.name} does not read {self.cell} as {self.reading}")

    def __str__(self) -> str:
        return f"{self.cell}, {self.reading}: {self.tiling}"


def table_of(launches: Iterable[Launch]) -> str:
    """Returns a table as comma-separated text."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([Launch.__struct_fields__, *map(msgspec.structs.astuple, launches)])
    return text.getvalue()


def read(path: Path) -> list[Launch]:
    """Reads a table; columns that it has besides are passed over.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none; names the line.
    """
    found: list[Launch] = []
    try:
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            found.append(msgspec.convert({key: value for key, value in row.items() if value}, Launch, strict=False))
            if not 0 < found[-1].us < math.inf:
                raise ValueError(f"{found.pop().us} microseconds are no time")
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}, line {len(found) + 2}: {error}; `portable-softmax tune` writes such tables") from error
    return found


def product_of(device: Device) -> str:
    """Returns the vendor and product that a run's file stands for: the matched one, else one by the device's own name."""
    vendor, _, product = device.profile.name.partition("/")
    if device.profile.product is None:
        product = re.sub(r"[^a-z0-9]+", "-", device.name.lower().removeprefix(f"{vendor} ")).strip("-")
    return f"{vendor}/{product}"


def extension_of(device: Device) -> dict[str, Any]:
    """Returns a profile that extends the matched one, for the device that is here, with the facts that it tells otherwise."""
    known, source = device.profile, SOURCE + "_again" * (SOURCE in device.profile.sources)
    facts = [key for key, origin in device.origins.items() if origin in ("driver", "torch")]
    differ = {key: value for key in facts if (value := getattr(device.hardware, key)) != getattr(known.hardware, key)}
    versions = ", ".join(f"{name} {version}" for name, version in software().items())
    title = f"portable-softmax tune on one {device.name}, {versions}, {datetime.date.today()}"
    return {
        "extends": known.name,
        "matches": [re.escape(device.name)],
        "sources": {source: {"verified": "measured", "title": title}},
        "hardware": {key: {"value": value, "source": source} for key, value in differ.items()},
    }


def profile_of(extension: dict[str, Any], cost: dict[str, Any], told: str) -> str:
    """Returns the text of an extension with these numbers, whose source tells what came of them."""
    ((source, about),) = extension["sources"].items()
    sources = {source: {**about, "title": f"{about['title'].partition('; ')[0]}; {told}"}}
    content = {**extension, "sources": sources, "cost": {**cost, "source": source}}
    return "# Written by portable-softmax tune; the table of its launches lies beside it.\n" + dumped(content)


def dumped(content: dict[str, Any]) -> str:
    """Returns YAML, with short mappings on one line."""
    text: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=128)
    return text
