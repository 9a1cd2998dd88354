#!/usr/bin/env python3
"""Fits the numbers of planning/cost.py to launches that scripts/sweep_launches.py timed, and prints how well they tell others.

The regret of a problem is by how much the launch of the least cost takes longer than the fastest that was timed. Numbers of
"other problems" are fitted to four fifths of all problems, and tell the rest.
"""

import argparse
import csv
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from portable_probe.tune.cells import Cell, problem_on
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import NUMBERS, CostNumbers, terms
from portable_softmax.planning.facts import Facts, facts
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.reading import as_read

LONG_US, NEAR = 20, 1.25  # shorter launches are told of apart; near: at most so many times the fastest's time
FAR_COUNTS = 0.15  # weight of a launch that is not near
TOLERATED = 0.05  # relative error from which a launch counts less than its square
PRIOR = 0.002  # weight of the numbers to begin with, in parts of all launches'
FOLDS, STEP = 5, 1e-4
NAMES = [each.name for each in fields(CostNumbers)]
BEGIN = CostNumbers(
    start_us=4, bandwidth=0.92, link=3, overlap=5, in_step=2.6, exchange_us=1.2, lookup_ns=0.7, program_ns=75,
    warp_ns=5, thread_ns=4, exponent_ps=40, sum_ps=20, step_us=0.3, line=0.06, again=2,
)  # fmt: skip
Array = Any  # of numpy


class Launches(NamedTuple):
    """Launches of many problems: facts, microseconds, number of the problem, whether it is today's plan, and the problems."""

    facts: Facts
    us: Array
    problem: Array
    planned: Array
    cells: list[Cell]

    @property
    def fastest(self) -> Array:
        """Returns the time of the fastest launch of each launch's problem."""
        least = np.full(len(self.cells), math.inf)
        np.minimum.at(least, self.problem, self.us)
        return least[self.problem]

    @property
    def weights(self) -> Array:
        """Returns the weight of each launch: those of a problem together weigh as the root of their number."""
        return np.where(self.us < NEAR * self.fastest, 1, FAR_COUNTS) / np.sqrt(np.bincount(self.problem)[self.problem])


def main() -> None:
    """Fits, prints tables in Markdown, and writes the numbers if it is asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv", nargs="+", help="files of scripts/sweep_launches.py")
    parser.add_argument("--profile", default="nvidia/h100-sxm", help="product that the launches were timed on")
    parser.add_argument("--write", action="store_true", help=f"write {NUMBERS.name}")
    options = parser.parse_args()
    launches = read(options.csv, Device.from_profile(options.profile))
    found, errors = fit(launches, launches.weights)
    print("| number | value | standard error |\n|---|---|---|")
    for name, value, error in zip(NAMES, found, errors, strict=True):
        print(f"| {name} | {value:.3g} | {error:.0%} |")
    print("\n| numbers of | class | problems | regret | worst | today's | error, near: median | 90% | all: median | 90% |")
    print("|---" * 10 + "|")
    for words, told in (("these problems", times(launches, found)), ("other problems", by_others(launches, found))):
        print_table(words, launches, told)
    if options.write:
        numbers = {name: [float(f"{a:.4g}"), float(f"{b:.2g}")] for name, a, b in zip(NAMES, found, errors, strict=True)}
        known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
        source = f"least squares of {len(launches.us)} launches of {len(launches.cells)} problems: {' '.join(options.csv)}"
        NUMBERS.write_text(json.dumps({**known, options.profile: {"source": source, "numbers": numbers}}, indent=1) + "\n")


def read(paths: Iterable[str], device: Device) -> Launches:
    """Reads the launches of problems of which there are several, and whose rows are neither paired nor folded."""
    found: dict[Cell, list[tuple[Facts, float, bool]]] = {}
    for row in (row for path in paths for row in csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines())):
        cell = Cell(row["kind"], int(row["n_rows"]), int(row["n_cols"]), row["dtype"], row["backward"] == "1")
        given = problem_on(cell, device)
        problem = given and as_read(given, device)
        if problem and not problem.paired and problem.folded == 1:
            sizes: dict[str, Any] = {name: int(row[name]) for name in ("tile_rows", "width", "num_warps", "splits", "blocks")}
            tiling = Tiling(**sizes, held=row["held"] in ("1", "True"))
            used = int(row["resident"]), device, int(row["spilled_bytes_per_thread"])
            told = facts(problem, tiling, problem.tiles(tiling.tile_rows) * tiling.splits, *used)
            found.setdefault(cell, []).append((told, float(row["us"]), row["planned"] == "1"))
    several = [cell for cell in found if len(found[cell]) > 2]
    listed = [(*launch, at) for at, cell in enumerate(several) for launch in found[cell]]
    given_facts, us, planned, at = zip(*listed, strict=True)
    return Launches(Facts(*np.array(given_facts, float).T), np.array(us), np.array(at), np.array(planned), several)


def times(launches: Launches, numbers: Array) -> Array:
    """Returns the expected microseconds of each launch."""
    return np.asarray(terms(launches.facts, CostNumbers(**dict(zip(NAMES, numbers, strict=True)))).total)


def fit(launches: Launches, weights: Array, begin: Array | None = None) -> tuple[Array, Array]:
    """Finds the numbers of the cost, and their relative errors."""
    first = np.array([getattr(BEGIN, name) for name in NAMES])
    return least_squares(
        lambda numbers: times(launches, numbers), launches.us, weights, first, first if begin is None else begin
    )


def least_squares(
    times: Callable[[Array], Array], us: Array, weights: Array, first: Array, begin: Array
) -> tuple[Array, Array]:
    """Finds numbers with the least weighted error of the logarithm, by Levenberg and Marquardt.

    Args:
        times: of all launches, with given numbers.
        us: as they were measured.
        weights: of the launches.
        first: numbers that are preferred where the times do not tell.
        begin: numbers to begin with.

    Returns:
        The numbers, and their relative standard errors.
    """
    first, at, damping, prior = np.log(first), np.log(begin), 1e-2, PRIOR * weights.sum()

    def wrong(numbers: Array) -> Array:
        return np.log(times(np.exp(numbers)) / us)

    def loss(error: Array, numbers: Array) -> float:
        squares = np.sqrt(1 + (error / TOLERATED) ** 2) - 1
        return float((weights * squares).sum() + 2 * prior * ((numbers - first) ** 2).sum())

    error = wrong(at)
    least = loss(error, at)
    for _ in range(100):
        slope = np.stack([(wrong(at + STEP * one) - error) / STEP for one in np.eye(len(at))], 1)
        weighted = weights / np.sqrt(1 + (error / TOLERATED) ** 2) / TOLERATED**2
        curve = slope.T @ (slope * weighted[:, None]) + 4 * prior * np.eye(len(at))
        uphill = slope.T @ (weighted * error) + 4 * prior * (at - first)
        step = np.linalg.solve(curve + damping * np.diag(np.diag(curve)), -uphill)
        tried = at + np.clip(step, -1, 1)
        if (now := loss(tried_error := wrong(tried), tried)) < least:
            done, damping = least - now < 1e-6 * least, max(damping / 5, 1e-9)
            at, error, least = tried, tried_error, now
            if done:
                break
        elif (damping := 4 * damping) > 1e9:
            break
    spread = (weighted * error**2).sum() / (weighted > 0).sum()
    return np.exp(at), np.sqrt(np.diag(np.linalg.inv(curve)) * spread)


def by_others(launches: Launches, begin: Array) -> Array:
    """Returns the expected microseconds of each launch by numbers that were fitted to other problems."""
    fold = np.random.default_rng(0).permutation(len(launches.cells))[launches.problem] % FOLDS
    told = np.empty(len(fold))
    for each in range(FOLDS):
        numbers, _ = fit(launches, np.where(fold == each, 0, launches.weights), begin)
        told[fold == each] = times(launches, numbers)[fold == each]
    return told


def print_table(words: str, launches: Launches, told: Array) -> None:
    """Prints a line for all problems, for those whose fastest launch is long, and for each class."""
    long = launches.fastest >= LONG_US
    kinds = np.array([launches.cells[at].kind for at in launches.problem])
    groups = {"all": long | True, f"{LONG_US} us and more": long} | {kind: kinds == kind for kind in dict.fromkeys(kinds)}
    error, near = np.abs(np.log(told / launches.us)), launches.us < NEAR * launches.fastest
    slower = launches.us / launches.fastest
    for group, chosen in groups.items():
        problems = [np.flatnonzero(launches.problem == at) for at in np.unique(launches.problem[chosen])]
        regret = [slower[mine[told[mine].argmin()]] for mine in problems]
        today = [slower[mine[launches.planned[mine]][0]] for mine in problems if launches.planned[mine].any()]
        means = [math.exp(np.mean(np.log(each))) - 1 if each else math.nan for each in (regret, today)]
        quantiles = [np.quantile(error[which], part) for which in (chosen & near, chosen) for part in (0.5, 0.9)]
        cells = " | ".join(f"{each:.1%}" for each in (means[0], max(regret) - 1, means[1], *quantiles))
        print(f"| {words} | {group} | {len(regret)} | {cells} |")


if __name__ == "__main__":
    main()
