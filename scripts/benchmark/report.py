"""Prints ratios and draws plots from the results of run.py. Several files count as one.

The best peer is the fastest provider of a cell that is neither the ceiling nor ours. Neither torch nor a device is needed:

    python scripts/benchmark report results/*.csv --plots results
    python scripts/benchmark report scripts/results/h200_forward.csv --markdown
"""

import argparse
import math
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmark.results import Cell, read
from benchmark.sweeps import SWEEPS

HEADER = ("direction", "sweep", "dtype", "cells", "to copy", "to torch", "to best peer", "below it", "worst")


def main(arguments: list[str] | None = None) -> int:
    """Reads the files that the command line names, and prints their report. `arguments` None takes those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--plots", type=Path, help="folder for a PNG of each direction and type")
    parser.add_argument("--sweep", nargs="+", choices=tuple(SWEEPS), help="only these sweeps of the files")
    parser.add_argument("--markdown", action="store_true", help="the ratios alone, as a table in Markdown")
    options = parser.parse_args(arguments)
    cells = [cell for file in options.files for cell in read(file) if cell.sweep in (options.sweep or [cell.sweep])]
    if options.plots:
        plot(cells, options.plots)
    print(markdown(cells) if options.markdown else report(cells))
    return 0


def report(cells: list[Cell]) -> str:
    """Returns GB/s of every cell, then the cells below the best peer, then the ratios of each sweep."""
    slower = ["below the best peer:", *below(cells)]
    return "\n".join([_table(rates(cells)), "", *slower, "", _table([HEADER, *summary(cells)])])


def _table(rows: list[tuple[str, ...]], form: str = "plain") -> str:
    """Returns rows of text, with the header first, as a table in one of tabulate's forms."""
    return tabulate(rows, headers="firstrow", tablefmt=form, disable_numparse=True)


def rates(cells: list[Cell]) -> list[tuple[str, ...]]:
    """Returns a header, and for each cell GB/s by provider and our ratios."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.rates))
    table: list[tuple[str, ...]] = [("direction", "dtype", "rows", "cols", *names, "/copy", "/best")]
    for cell in cells:
        known = (f"{cell.rates[name]:.0f}" if name in cell.rates else "-" for name in names)
        ratios = (_mean([cell.ratio(other)]) for other in ("copy", cell.best_peer()))
        table.append((cell.direction, cell.dtype, str(cell.n_rows), str(cell.n_cols), *known, *ratios))
    return table


def markdown(cells: list[Cell]) -> str:
    """Returns the ratios of each sweep as a table in Markdown."""
    return _table([HEADER, *summary(cells)], "github")


def summary(cells: list[Cell]) -> list[tuple[str, ...]]:
    """Returns rows of HEADER: geometric means of our ratios, and the worst cell, for each direction, sweep and type."""
    groups = dict.fromkeys((cell.direction, cell.sweep, cell.dtype) for cell in cells)
    return [_line(key, [cell for cell in cells if (cell.direction, cell.sweep, cell.dtype) == key]) for key in groups]


def _line(key: tuple[str, str, str], cells: list[Cell]) -> tuple[str, ...]:
    compared = _compared(cells)
    means = (_mean(cell.ratio(other) for cell in cells) for other in ("copy", "torch"))
    to_best = [cell.ratio(cell.best_peer()) for cell in compared]
    worst = f"{to_best[0]:.2f} {_place(compared[0])}" if compared else "-"
    return *key, str(len(cells)), *means, _mean(to_best), str(sum(ratio < 1 for ratio in to_best)), worst


def below(cells: list[Cell]) -> list[str]:
    """Returns a line for each cell in which a peer is faster, worst first."""
    slower = [(cell.ratio(cell.best_peer()), cell) for cell in _compared(cells)]
    return [f"  {ratio:.3f} {cell.direction} {cell.dtype} {_place(cell)}" for ratio, cell in slower if ratio < 1]


def _compared(cells: list[Cell]) -> list[Cell]:
    both = (cell for cell in cells if not math.isnan(cell.ratio(cell.best_peer())))
    return sorted(both, key=lambda cell: cell.ratio(cell.best_peer()))


def _place(cell: Cell) -> str:
    return f"{cell.n_rows} x {cell.n_cols} ({cell.best_peer()})"


def _mean(ratios: Iterable[float]) -> str:
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return f"{statistics.geometric_mean(known):.2f}" if known else "-"


def plot(cells: list[Cell], directory: Path) -> None:
    """Writes a PNG for each direction and type, with a panel for each sweep."""
    from matplotlib.figure import Figure

    directory.mkdir(parents=True, exist_ok=True)
    for direction, dtype in dict.fromkeys((cell.direction, cell.dtype) for cell in cells):
        chosen = [cell for cell in cells if (cell.direction, cell.dtype) == (direction, dtype)]
        sweeps = list(dict.fromkeys(cell.sweep for cell in chosen))
        names = list(dict.fromkeys(name for cell in chosen for name in cell.rates))
        figure = Figure(figsize=(11, 4 * len(sweeps)), layout="constrained")
        panels = figure.subplots(len(sweeps), squeeze=False)[:, 0]
        for panel, sweep in zip(panels, sweeps, strict=True):
            _draw(panel, [cell for cell in chosen if cell.sweep == sweep], names)
            panel.set(title=f"{direction}, {dtype}, {sweep}", ylabel="GB/s", ylim=(0, None))
        panels[0].legend(ncols=3)
        figure.savefig(directory / f"{direction}_{dtype}.png", dpi=110)


def _draw(panel: Any, cells: list[Cell], names: list[str]) -> None:
    """Draws shapes in order, at equal distances: some sweeps grow by addition, some by doubling, some by rows."""
    for i, name in enumerate(names):
        style = {"color": "black", "linewidth": 2} if name == "ours" else {"color": f"C{i}", "linewidth": 1}
        panel.plot([cell.rates.get(name, math.nan) for cell in cells], ".-", label=name, **style)
    ticks = range(0, len(cells), -(-len(cells) // 20))
    panel.set_xticks(ticks, [f"{cells[i].n_rows} x {cells[i].n_cols}" for i in ticks], rotation=45, ha="right")
    panel.grid(alpha=0.3)
