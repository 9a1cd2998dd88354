"""Results of the benchmark: a cell for each direction, type and shape, kept as CSV."""

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

KEYS = ("direction", "sweep", "dtype", "n_rows", "n_cols")


@dataclass(frozen=True)
class Cell:
    """GB/s by provider for one direction, type and shape. A provider that refused, failed or was wrong is missing."""

    direction: str
    sweep: str
    dtype: str
    n_rows: int
    n_cols: int
    rates: dict[str, float]

    def best_peer(self) -> str | None:
        """Returns the fastest provider that is neither the ceiling nor ours; None if there is none."""
        peers = {name: rate for name, rate in self.rates.items() if name not in ("copy", "ours")}
        return max(peers, key=lambda name: peers[name], default=None)

    def ratio(self, other: str | None) -> float:
        """Returns our rate divided by another's; nan if one of them is missing."""
        return self.rates.get("ours", math.nan) / self.rates.get(other or "", math.nan)


def save(cells: Iterable[Cell], names: Sequence[str], path: Path) -> list[Cell]:
    """Writes each cell when it comes, so that an interrupted run keeps its results; returns all cells."""
    kept = []
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*KEYS, *names])
        for cell in cells:
            rates = (f"{cell.rates[name]:.5g}" if name in cell.rates else "" for name in names)
            writer.writerow([cell.direction, cell.sweep, cell.dtype, cell.n_rows, cell.n_cols, *rates])
            file.flush()
            kept.append(cell)
    return kept


def read(path: Path) -> list[Cell]:
    """Reads the cells of a CSV file from `save`."""
    with path.open(newline="") as file:
        return [_cell(row) for row in csv.DictReader(file)]


def _cell(row: dict[str, str]) -> Cell:
    direction, sweep, dtype, n_rows, n_cols = (row.pop(key) for key in KEYS)
    rates = {name: float(rate) for name, rate in row.items() if rate}
    return Cell(direction, sweep, dtype, int(n_rows), int(n_cols), rates)
