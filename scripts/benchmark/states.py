"""Times states of this package side by side on one device, in turns, in processes of their own.

A state is a folder that holds `portable_softmax`, `portable_probe` and `device_profiles`, with a folder of profiles of its own
behind a colon if it has one. The CSV has the columns of scripts/results/README.md; providers are the states.

    git worktree add /tmp/old v1 && python scripts/benchmark states now=. old=/tmp/old tuned=.:profiles --out states.csv
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmark.results import OURS, Result, cells_of, read, write

SWEEPS = ("short", "medium", "vocabularies", "mixed", "across", "transposed", "heads")


def main() -> int:
    """Times all states and prints how their times compare with those of the first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("states", nargs="+", metavar="NAME=FOLDER[:PROFILES]")
    parser.add_argument("--sweep", nargs="+", default=SWEEPS)
    parser.add_argument("--direction", nargs="+", default=["forward", "backward"])
    parser.add_argument("--every", type=int, default=1, metavar="K", help="only each K-th shape of a sweep")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--jobs", default="16", help="processes that compile ahead; 0 for none")
    parser.add_argument("--out", type=Path, default=Path("states.csv"))
    options = parser.parse_args()
    states = dict(state.split("=", 1) for state in options.states)
    words = ["--sweep", *options.sweep, "--direction", *options.direction, "--every", str(options.every)]

    def measured() -> Iterator[Result]:
        for turn in range(options.turns):
            for name, where in states.items():
                yield from (
                    msgspec.structs.replace(result, provider=name)
                    for result in _timed(where, [*words, "--jobs", "0" if turn else options.jobs])
                )

    _print(write(options.out, measured()), list(states))
    return 0


def _timed(where: str, words: list[str]) -> list[Result]:
    """Returns the results of a state's process, which imports the package from its folder."""
    folder, _, profiles = where.partition(":")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}
    environment |= {"PORTABLE_SOFTMAX_PROFILES": profiles} if profiles else {}
    words = [*words, "--providers", OURS, "--turns", "1"]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "rows.csv")
        command = [sys.executable, str(Path(__file__).parent), *words, "--out", str(out)]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)  # 1: some results are wrong
        if not out.exists():
            raise SystemExit(f"{folder} was not timed: its process wrote no results")
        return read(out)


def _print(results: list[Result], states: list[str]) -> None:
    """Prints geometric means of the first state's times over the others', by class and direction."""
    ratios: dict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells_of(results):
        for state in cell.us.keys() - {states[0]} if states[0] in cell.us else ():
            for group in ((cell.result.sweep, cell.result.dtype, cell.result.direction), ("all", "", "")):
                ratios[group][state].append(cell.us[states[0]] / cell.us[state])
    for group, by_state in ratios.items():
        words = [f"{state} {statistics.geometric_mean(values):.3f} (least {min(values):.2f}, {len(values)})"
                 for state, values in by_state.items()]  # fmt: skip
        print(" ".join(group), *words, sep="  ")
