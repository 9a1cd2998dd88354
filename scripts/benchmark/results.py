"""Measured times: CSV with a row for each provider in each cell, as written, or a row for each cell, as kept."""

import csv
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
OURS = "ours"
COPY = "copy"  # a provider that moves as many bytes and computes nothing: the ceiling
CEILINGS = (COPY, "read")  # the other one reads them
DISTURBED = 0.5  # spread above which a result is left out
STREAMS = {  # tensors that a direction must read or write
    "forward": 2, "backward": 3, "both": 5, "log_softmax": 2, "token_log_probs": 1, "token_entropy": 1, "token_backward": 2,
    "token_both": 3, "rms_norm": 2, "layer_norm": 2, "cross_entropy": 1,
}  # fmt: skip


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time of one provider in one cell. Unknown text is empty, and an unknown number None.

    Args:
        device, driver, triton, torch: what it ran on; names and versions.
        commit, date: of this package, and of the run, as year-month-day.
        sweep: list of shapes that the cell is of.
        provider, version: the implementation: `ours`, a ceiling (`copy`, `read`), or a peer and its release.
        shape: of the tensor that softmax gets, as 8x16x2048x128.
        layout: that tensor's layout in memory: `contiguous`, or the view of torch that makes it so, as transpose(1, 2).
        dim: of the softmax, counted from 0.
        dtype: by torch's name.
        direction: `forward`, `backward` (the gradient alone), `both`, one of STREAMS, or another call, in words.
        median_us: microseconds, the median over turns.
        spread: slowest less fastest turn, as a part of the median.
        error: the largest error of the result, in units of the error that is allowed.
        failure: why there is no time.
    """

    device: str
    driver: str = ""
    triton: str = ""
    torch: str = ""
    commit: str = ""
    date: str = ""
    sweep: str = ""
    provider: str
    version: str = ""
    shape: str
    layout: str = "contiguous"
    dim: int
    dtype: str
    direction: str
    median_us: float | None = None
    spread: float | None = None
    error: float | None = None
    failure: str = ""

    @property
    def cell(self) -> tuple[str | int, ...]:
        """Returns all that providers are compared in."""
        return self.device, self.sweep, self.shape, self.layout, self.dim, self.dtype, self.direction

    @property
    def sizes(self) -> tuple[int, ...]:
        """Returns the shape as numbers."""
        return tuple(map(int, self.shape.split("x")))

    @property
    def gb_per_s(self) -> float | None:
        """Returns 10^9 bytes per second, of the bytes that must move; None without a time, or for another call."""
        if not self.median_us or self.direction not in STREAMS:
            return None
        return STREAMS[self.direction] * math.prod(self.sizes) * DTYPE_BYTES[self.dtype] / self.median_us / 1e3

    @property
    def disturbed(self) -> bool:
        """True if something else ran on the device or its host: turns differ by more than half."""
        return (self.spread or 0) > DISTURBED


COLUMNS = Result.__struct_fields__
CELL = ("device", "driver", "triton", "torch", "date", "sweep", "shape", "layout", "dim", "dtype", "direction")  # as kept


@dataclass(frozen=True)
class Cell:
    """Times of all providers in one cell, in microseconds; one that failed is missing."""

    result: Result  # one of them, which describes the cell
    us: dict[str, float]

    @property
    def place(self) -> str:
        """Returns shape, layout and dim, as far as these are not the usual ones."""
        result = self.result
        view = "" if result.layout == "contiguous" else f" {result.layout}"
        dim = "" if result.dim == len(result.sizes) - 1 else f" along {result.dim}"
        return f"{' x '.join(map(str, result.sizes))}{view}{dim}"

    @property
    def gb_per_s(self) -> dict[str, float]:
        """Returns 10^9 bytes per second by provider; empty for a direction whose bytes are not counted."""
        rates = {name: msgspec.structs.replace(self.result, median_us=us).gb_per_s for name, us in self.us.items()}
        return {name: rate for name, rate in rates.items() if rate}

    def best_peer(self) -> str | None:
        """Returns the fastest provider that is neither a ceiling nor ours; None if there is none."""
        peers = {name: us for name, us in self.us.items() if name not in (*CEILINGS, OURS)}
        return min(peers, key=lambda name: peers[name], default=None)

    def ratio(self, other: str | None) -> float:
        """Returns how many times as fast as another we are; nan if one of them is missing."""
        return self.us.get(other or "", math.nan) / self.us.get(OURS, math.nan)

    def to_best(self) -> float:
        """Returns how many times as fast as the best peer we are; nan without a peer."""
        return self.ratio(self.best_peer())

    def to_ceiling(self) -> float:
        """Returns the part of the speed of the fastest ceiling that ours is; nan without one."""
        return min((self.ratio(ceiling) for ceiling in CEILINGS if ceiling in self.us), default=math.nan)


def cells_of(results: Iterable[Result]) -> list[Cell]:
    """Returns the cells of results, in order; of several times of a provider the least that is not disturbed."""
    groups: dict[tuple[str | int, ...], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.cell].append(result)
    return [Cell(group[0], _times(group)) for group in groups.values()]


def _times(group: list[Result]) -> dict[str, float]:
    times: dict[str, list[float]] = defaultdict(list)
    for result in group:
        if result.median_us and not result.disturbed:
            times[result.provider].append(result.median_us)
    return {name: min(us) for name, us in times.items()}


def read(path: Path) -> list[Result]:
    """Reads a file of results, or a kept table.

    Raises:
        OSError: it cannot be read.
        ValueError: it has other columns, or a value is not of its type; names the line.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = tuple(reader.fieldnames or ())
        rows = list(enumerate(reader, 2))
    if columns == COLUMNS:
        return [_result(row, number) for number, row in rows]
    if columns[: len(CELL)] == CELL:
        return [result for number, row in rows for result in _of_cell(row, number)]
    raise ValueError(f"columns should be {','.join(COLUMNS)}, not {','.join(columns)}")


def _of_cell(row: dict[str, str], number: int) -> list[Result]:
    """Returns the result of each provider that has a time in a row of a kept table."""
    cell = {name: row[name] for name in CELL}
    times = {tuple(name.split(" ")[1:]): us for name, us in row.items() if name not in CELL and us}
    return [_result({**cell, "provider": name, "version": "".join(release), "median_us": us}, number)
            for (name, *release), us in times.items()]  # fmt: skip


def keep(path: Path, results: Iterable[Result]) -> None:
    """Writes a table with a row for each cell and a column of microseconds for each provider, as `us liger 0.8.5`."""
    results = list(results)
    names = {f"us {result.provider} {result.version}".strip(): result.provider for result in results if result.median_us}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*CELL, *names))
        for cell in cells_of(results):
            times = (_text(cell.us.get(provider)) for provider in names.values())
            writer.writerow((*(getattr(cell.result, name) for name in CELL), *times))


def _result(row: dict[str, str], number: int) -> Result:
    try:
        known = {name: value for name, value in row.items() if value}
        result = msgspec.convert(known, Result, strict=False)
        _ = result.sizes
        if result.median_us is not None and not 0 < result.median_us < math.inf:
            raise ValueError(f"{result.median_us} microseconds are no time")
    except ValueError as error:  # msgspec's is one too
        raise ValueError(f"line {number}: {error}") from error
    return result


def write(path: Path, results: Iterable[Result]) -> list[Result]:
    """Writes each result when it comes, so that an interrupted run keeps what it has; returns them all."""
    kept = []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for result in results:
            writer.writerow(_text(getattr(result, name)) for name in COLUMNS)
            file.flush()
            kept.append(result)
    return kept


def _text(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "" if value is None else str(value)
