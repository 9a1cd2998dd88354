#!/usr/bin/env python3
"""Fits the numbers of planning/row_cost.py to measured launches of row kernels, and prints how well they choose.

The launches are those of scripts/sweeps/own_h100.csv, of kernels in examples/ and of swept.py beside it. Regret is by how much
the launch of the least cost takes longer than the fastest that was timed. It is told of the data, and of problems that are left
out: numbers are fitted to four fifths of all problems, to all kernels but one, and to all lengths of rows but one.
"""

import argparse
import csv
import importlib
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from portable_probe.tune.fit import FAR_COUNTS, FOLDS, LONG_US, NEAR, Array, least_squares
from portable_softmax import Device, inspect_kernel
from portable_softmax.devices.policy import ROW_NUMBERS, RowNumbers
from portable_softmax.planning.row_cost import RowFacts, RowLaunch, Traffic, row_facts, row_terms
from portable_softmax.row_kernels.row_settings import BLOCKS
from portable_softmax.row_kernels.ttir import form_of, traffic_of

IN_BLOCKS_COUNT = 3  # weight of the few problems whose rows are loops over blocks
ARGUMENTS = {  # of a kernel, for a type, rows and columns
    "rms_norm": "{x} {w} {x} {rows} {cols} 1e-6",
    "rms_norm_gradient": "{x} {x} {w} {x} *fp32:16 {rows} {cols} 1e-6",
    "layer_norm": "{x} {w} {w} {x} {rows} {cols} 1e-6",
    "cross_entropy": "{x} i64[{rows}] f32[{rows}] {rows} {cols}",
}


class Problem(NamedTuple):
    """The name of a kernel of examples/ or swept.py, a size, what rows are known to begin at a multiple of, and the type."""

    kernel: str
    n_rows: int
    n_cols: int
    multiple: int
    dtype: str


class Launches(NamedTuple):
    """Facts and microseconds of launches, the number of the problem of each, and the problems."""

    facts: RowFacts
    us: Array
    problem: Array
    problems: list[Problem]

    @property
    def fastest(self) -> Array:
        """Returns the time of the fastest launch of each launch's problem."""
        least = np.full(len(self.problems), np.inf)
        np.minimum.at(least, self.problem, self.us)
        return least[self.problem]

    @property
    def weights(self) -> Array:
        """Returns the weight of each launch: those of a problem together weigh as the root of their number."""
        counts = np.where(self.facts.blocks > 1, IN_BLOCKS_COUNT, 1) / np.sqrt(np.bincount(self.problem)[self.problem])
        return np.where(self.us < NEAR * self.fastest, 1, FAR_COUNTS) * counts


def main() -> None:
    """Fits, and prints the numbers as a profile has them in `launch.rows`, and how well they choose."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+")
    parser.add_argument("--profile", default="nvidia/h100-sxm", help="product that the launches were timed on")
    options = parser.parse_args()
    device = Device.from_profile(options.profile)
    launches, known = read(options.csv, device), device.profile.launch.rows
    begin = np.array([getattr(known, name) for name in ROW_NUMBERS])

    def fitted(weights: Array, begin: Array) -> tuple[Array, Array]:
        return least_squares(lambda numbers: times(launches, numbers), launches.us, weights, begin, begin)

    found, errors = fitted(launches.weights, begin)

    def left_out(group: Array) -> Array:
        """Returns the times of each group's launches, by numbers that are fitted to the others."""
        told = np.empty(len(launches.us))
        for each in np.unique(group):
            numbers, _ = fitted(np.where(group == each, 1e-9, launches.weights), found)
            told[group == each] = times(launches, numbers)[group == each]
        return told

    by_chance = np.random.default_rng(0).permutation(len(launches.problems)) % FOLDS
    groups = {
        "other problems": by_chance,
        "other kernels": [each.kernel for each in launches.problems],
        "other lengths": [each.n_cols for each in launches.problems],
    }
    print(", ".join(f"{name}: {value:.4g}" for name, value in zip(ROW_NUMBERS, found, strict=True)))
    print("errors:", ", ".join(f"{name}: {error:.2g}" for name, error in zip(ROW_NUMBERS, errors, strict=True)))
    print_regret("these problems", launches, times(launches, found))
    for words, group in groups.items():
        print_regret(words, launches, left_out(np.array(group)[launches.problem]))


def read(paths: list[str], device: Device) -> Launches:
    """Reads launches that do not spill, of problems that have several."""
    found: dict[Problem, list[tuple[RowFacts, float]]] = defaultdict(list)
    traffic: dict[tuple[str, str, int], Traffic] = {}
    for row in (row for path in paths for row in csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines())):
        problem = Problem(row["kernel"], int(row["n_rows"]), int(row["n_cols"]), int(row["multiple"]), row["dtype"])
        if not row["registers"] or row["spilled"] != "0":
            continue
        key, in_blocks = (problem.kernel, problem.dtype, problem.n_cols), problem.kernel.endswith("cross_entropy")
        if key not in traffic:
            traffic[key] = moved(problem, BLOCKS[0] if in_blocks else int(row["block"]), device)
        launched = "programs", "resident", "warps", "block", "stages"
        programs, resident, warps, block, stages = (int(row[each]) for each in launched)
        of = problem.n_rows, problem.n_cols, problem.multiple
        launch = RowLaunch(*of, programs, resident, warps, block, stages, in_blocks)
        found[problem].append((row_facts(traffic[key], launch, device), float(row["us"])))
    listed = [(facts, us, at) for at, problem in enumerate(found) for facts, us in found[problem]]
    facts, us, at = zip(*listed, strict=True)
    return Launches(RowFacts(*np.array(facts, float).T), np.array(us), np.array(at), list(found))


def moved(problem: Problem, block: int, device: Device) -> Traffic:
    """Returns what a row of a problem takes."""
    sys.path[:0] = [str(Path(__file__).parents[1] / "examples"), str(Path(__file__).parent / "sweeps")]
    of = next(name for name in ARGUMENTS if problem.kernel.endswith(name))
    way = problem.kernel.removesuffix(of).removesuffix("_")  # of swept.py
    kernel = getattr(importlib.import_module("swept" if way else of.removesuffix("_gradient")), f"{of}_kernel")
    rows, cols = problem.n_rows, problem.n_cols
    kind = {"bfloat16": "bf16", "float32": "f32"}[problem.dtype]
    given = ARGUMENTS[of].format(x=f"{kind}[{rows},{cols}]", w=f"{kind}[{cols}]", rows=rows, cols=cols).split()
    arguments: dict[str, Any] = dict(zip(kernel.arg_names, given, strict=False))
    values = {name: value for name, value in (("BLOCK", block), ("STAGES", 1), ("WAY", way)) if name in kernel.arg_names}
    compiled = inspect_kernel(kernel, arguments, values, device=device).launch.compiled
    sizes = {"n_rows": rows, "n_cols": cols}
    return traffic_of(compiled.asm["ttir"], sizes, form_of(kernel, "n_rows", "BLOCK").walks, rows, cols, block)


def times(launches: Launches, numbers: Array) -> Array:
    """Returns the expected microseconds of each launch."""
    return np.asarray(row_terms(launches.facts, RowNumbers(**dict(zip(ROW_NUMBERS, numbers, strict=True)))).total)


def print_regret(words: str, launches: Launches, told: Array) -> None:
    """Prints how much longer what is chosen takes, and how wrong the expected times are."""
    near, slower = launches.us < NEAR * launches.fastest, launches.us / launches.fastest
    error, long = np.abs(np.log(told / launches.us)), launches.fastest >= LONG_US
    kinds = np.array([launches.problems[at].kernel for at in launches.problem])
    groups = {"all": long | True, f"{LONG_US} us and more": long}
    groups |= {kind: (kinds == kind) & long for kind in dict.fromkeys(each.kernel for each in launches.problems)}
    for group, chosen in groups.items():
        mine = [np.flatnonzero(launches.problem == at) for at in np.unique(launches.problem[chosen])]
        regret = np.array([slower[each[told[each].argmin()]] for each in mine]) - 1
        cells = f"regret {regret.mean():.1%}, {(regret > 0.03).sum()} of {len(regret)} above 3%, worst {regret.max():.1%}"
        print(f"{words}, {group}: {cells}; error near the fastest {np.quantile(error[near & chosen], [0.5, 0.9]).round(3)}")


if __name__ == "__main__":
    main()
