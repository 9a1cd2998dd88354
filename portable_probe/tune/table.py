"""The table of a run: a line for each launch of each cell, and what it tells: rates, and regret before and after."""

import csv
import io
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, cast

from portable_probe.tune.cells import CLASSES, DTYPES, Cell
from portable_softmax.devices.policy import Step

CELL = ("class", "n_rows", "n_cols", "dtype", "direction", "step", "held_out")  # columns that tell a cell
COLUMNS = (*CELL, "numbers", "launch", "median_us", "again_us", "copy_us", "error", "chosen")
BEFORE, AFTER = "before", "after"  # words of the column `chosen`: the computed launch, and that of the rows that are written
DIRECTIONS = ("forward", "backward")
LEAST_COPY = 2**23  # bytes; a smaller copy may not leave the cache

Line = dict[str, str]  # by column


class Regret(NamedTuple):
    """Ratios by which cells are slower than the best that was found, less 1: their geometric mean, and the worst."""

    mean: float
    worst: float

    def __str__(self) -> str:
        return f"{self.mean:.1%} (worst {self.worst:.1%})"


def told(cell: Cell) -> Line:
    """Returns the columns that tell a cell."""
    values = cell.kind, cell.n_rows, cell.n_cols, cell.dtype, DIRECTIONS[cell.backward], cell.step or "", cell.held_out
    return dict(zip(CELL, map(str, values), strict=True))


def cell_of(line: Line) -> Cell:
    """Returns the cell that `told` told.

    Raises:
        ValueError: there is none like that.
    """
    kind, n_rows, n_cols, dtype, direction, step, held_out = (line[key] for key in CELL)
    choices = ((kind, CLASSES), (dtype, DTYPES), (direction, DIRECTIONS), (step, ("", "reduce", "map")))
    for value, known in (*choices, (held_out, ("True", "False"))):
        if value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
    if min(int(n_rows), int(n_cols)) < 1:
        raise ValueError(f"{n_rows} rows of {n_cols} columns are no cell")
    return Cell(
        kind, int(n_rows), int(n_cols), dtype, direction == "backward", cast(Step | None, step or None), held_out == "True"
    )


def text_of(lines: Iterable[Line]) -> str:
    """Returns the table as comma-separated text."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def read(path: Path) -> list[Line]:
    """Reads a table.

    Raises:
        OSError: it cannot be read.
        ValueError: it has other columns, a number is none, or there is no such cell; names the line.
    """
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"columns are {', '.join(reader.fieldnames or ())}; they should be {', '.join(COLUMNS)}")
        try:
            lines = list(reader)
        except csv.Error as error:
            raise ValueError(f"after line {reader.line_num}: {error}") from error
    for number, line in enumerate(lines, 2):
        try:
            cell_of(line)
            for key in ("median_us", "again_us", "copy_us"):
                if line[key] and not 0 < float(line[key]) < math.inf:
                    raise ValueError(f"{key} is {line[key]}, which is no time")
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number}: {error}") from error
    return lines


def gb_per_s(line: Line, column: str) -> float:
    """Returns the rate at which a line's operands are moved in the time of a column."""
    return 1e-3 * cell_of(line).bytes_moved / float(line[column])


def copy_rate(lines: Iterable[Line]) -> float | None:
    """Returns the fastest copy's rate; None where nothing was copied."""
    copied = [line for line in lines if line["copy_us"]]
    large = [line for line in copied if cell_of(line).bytes_moved >= LEAST_COPY]
    return max((gb_per_s(line, "copy_us") for line in large or copied), default=None)


def regrets(lines: Iterable[Line], kind: str | None = None) -> tuple[Regret, Regret] | None:
    """Returns the regret of the held-out cells of a class, or of all, before and after; None where none was timed both ways."""
    cells: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        if line["median_us"] and line["held_out"] == "True" and kind in (None, line["class"]):
            cells.setdefault(tuple(line[key] for key in CELL), []).append(line)
    found = [both for timed in cells.values() if (both := _ratios(timed))]
    if not found:
        return None
    before, after = zip(*found, strict=True)
    return _regret(before), _regret(after)


def _regret(ratios: tuple[float, ...]) -> Regret:
    return Regret(statistics.geometric_mean(ratios) - 1, max(ratios) - 1)


def _ratios(lines: list[Line]) -> tuple[float, float] | None:
    """Returns a cell's times before and after, as ratios to the best; None where one is missing."""
    best = min(float(line["median_us"]) for line in lines)
    us = {word: float(line["median_us"]) for line in lines for word in line["chosen"].split()}
    return (us[BEFORE] / best, us[AFTER] / best) if us.keys() >= {BEFORE, AFTER} else None


def summary(lines: list[Line]) -> str:
    """Returns what a source says of its table: rate of a copy, number of cells, regret before and after."""
    rate, found = copy_rate(lines), regrets(lines)
    copy = f"a copy {rate:.4g} GB/s; " if rate else ""
    cells = len({tuple(line[key] for key in CELL) for line in lines})
    if not found:
        return f"{copy}{cells} cells; no held-out length was timed before and after"
    regret = f"regret of held-out lengths {found[0]} before, {found[1]} after"
    return f"{copy}{cells} cells; {regret}"
