"""Prints times and ratios of results, and writes the tables of documents. Neither torch nor a device is needed.

The best peer is the fastest provider of a cell that is neither the ceiling nor ours. Without files: those of scripts/results,
which the tables of documents are made of.

    python scripts/benchmark report rows.csv
    python scripts/benchmark report *.csv --keep scripts/results/nvidia_h100.csv
    python scripts/benchmark report --write          # the tables between <!-- table: NAME CARD --> and <!-- end -->
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from tabulate import tabulate

from benchmark import chart, documents
from benchmark.results import COPY, OURS, Cell, Result, cells_of, keep, read


def main(arguments: list[str] | None = None) -> int:
    """Reads the files that the command line names, and prints their report. `arguments` None takes those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write a compact table of the files: a row for each cell")
    parser.add_argument("--sweep", nargs="+", help="only these sweeps of the files")
    parser.add_argument(
        "--write", action="store_true", help="write the tables and the chart of README.md and docs/ from the kept results"
    )
    options = parser.parse_args(arguments)
    if options.write:
        documents.write()
        chart.draw()
        return 0
    files = options.files or documents.TABLES_OF_CARDS
    results = [result for file in files for result in read(file) if result.sweep in (options.sweep or [result.sweep])]
    if options.keep:
        keep(options.keep, results)
        return 0
    print(text_of(results))
    return 0


def text_of(results: Iterable[Result]) -> str:
    """Returns microseconds of every cell as a table."""
    return tabulate(times(cells_of(results)), headers="firstrow", tablefmt="plain", disable_numparse=True)


def times(cells: list[Cell]) -> list[tuple[str, ...]]:
    """Returns a header, and for each cell microseconds by provider, our GB/s, and our ratios."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.us))
    table: list[tuple[str, ...]] = [("direction", "dtype", "cell", *names, "GB/s", "/copy", "/best")]
    for cell in cells:
        known = (f"{cell.us[name]:.1f}" if name in cell.us else "-" for name in names)
        rate = cell.gb_per_s.get(OURS)
        ratios = documents.as_text(cell.ratio(COPY)), documents.as_text(cell.to_best())
        table.append((cell.result.direction, cell.result.dtype, cell.place, *known, f"{rate:.0f}" if rate else "-", *ratios))
    return table
