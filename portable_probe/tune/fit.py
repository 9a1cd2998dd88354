"""Least squares of the numbers of a launch's cost, and how well they predict the times of problems that were left out."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.devices.policy import COST_NUMBERS, CostNumbers
from portable_softmax.planning.cost import Facts, cost

LONG_US, NEAR = 20, 1.25  # shorter launches are listed apart; near: at most so many times the fastest's time
COUNTS, FAR_COUNTS = 1.1, 0.03  # launches within so many times the fastest's time count, and others so little
TOLERATED = 0.05  # relative error from which a launch counts less than its square
PRIOR = 5e-4  # weight of the numbers to begin with, in parts of all launches'
FOLDS, STEP = 5, 1e-4
HEADER = ("problems", "regret", "worst", "error, near: median", "90%", "all: median", "90%")
Array = Any  # of numpy


class Timed(NamedTuple):
    """A launch that was timed: what it is a launch of, the class of that, whether it is a softmax's, its facts, and us."""

    problem: str
    kind: str
    softmax: bool
    facts: Facts
    us: float


class Launches(NamedTuple):
    """Launches of problems: an array of each fact, and of each column."""

    facts: Facts
    us: Array
    slower: Array  # us, in parts of the fastest launch's of the problem
    weights: Array  # in the fit
    problem: Array  # its number in `kinds`
    kinds: list[str]


def prepared(timed: Iterable[Timed]) -> Launches:
    """Returns the launches of problems of which there are several.

    Raises:
        ValueError: they are too few to fit anything.
    """
    by_problem: dict[str, list[Timed]] = {}
    for launch in timed:
        by_problem.setdefault(launch.problem, []).append(launch)
    several = [by_problem[name] for name in sorted(by_problem) if len(by_problem[name]) > 2]  # in any order the same folds
    listed = [(launch, at) for at, launches in enumerate(several) for launch in launches]
    if len(listed) < 2 * len(COST_NUMBERS) or len(several) < FOLDS:
        raise ValueError(f"{len(listed)} launches of {len(several)} problems are too few to fit; give it more --minutes")
    us, problem = np.array([launch.us for launch, _ in listed]), np.array([at for _, at in listed])
    fastest = np.full(len(several), math.inf)
    np.minimum.at(fastest, problem, us)
    slower = us / fastest[problem]
    softmax = np.array([launches[0].softmax for launches in several])
    share = np.where(softmax, 1, max(1, softmax.sum()) / max(1, (~softmax).sum()))  # both halves weigh alike
    weights = np.where(slower < COUNTS, 1, FAR_COUNTS) / np.sqrt(np.bincount(problem)[problem]) * share[problem]
    facts = Facts(*np.array([launch.facts for launch, _ in listed], float).T)
    return Launches(facts, us, slower, weights, problem, [launches[0].kind for launches in several])


def times(launches: Launches, numbers: Array) -> Array:
    """Returns the expected microseconds of each launch."""
    return np.asarray(cost(launches.facts, CostNumbers(**dict(zip(COST_NUMBERS, numbers, strict=True)))).total)


def fitted(launches: Launches, weights: Array, prior: Array) -> tuple[Array, Array]:
    """Returns numbers with the least weighted error of the logarithm of times, and their relative standard errors.

    It is Levenberg's and Marquardt's method; large errors count less than their square.

    Args:
        launches: as they were timed.
        weights: of the launches.
        prior: numbers to begin with, which are preferred where the times say nothing.
    """
    at, damping, held = np.log(prior), 1e-2, PRIOR * weights.sum()
    first, unit = at, np.eye(len(at))

    def wrong(logarithms: Array) -> Array:
        return np.log(times(launches, np.exp(logarithms)) / launches.us)

    def loss(error: Array, logarithms: Array) -> float:
        squares = np.sqrt(1 + (error / TOLERATED) ** 2) - 1
        return float((weights * squares).sum() + 2 * held * ((logarithms - first) ** 2).sum())

    error = wrong(at)
    least = loss(error, at)
    for _ in range(100):
        slope = np.stack([(wrong(at + STEP * one) - error) / STEP for one in unit], 1)
        weighted = weights / np.sqrt(1 + (error / TOLERATED) ** 2) / TOLERATED**2
        curve = slope.T @ (slope * weighted[:, None]) + 4 * held * unit
        uphill = slope.T @ (weighted * error) + 4 * held * (at - first)
        tried = at - np.clip(np.linalg.solve(curve + damping * np.diag(np.diag(curve)), uphill), -1, 1)
        if (now := loss(tried_error := wrong(tried), tried)) < least:
            done, damping = least - now < 1e-5 * least, max(damping / 5, 1e-9)
            at, error, least = tried, tried_error, now
            if done:
                break
        elif (damping := 4 * damping) > 1e9:
            break
    spread = (weighted * error**2).sum() / (weighted > 0).sum()
    return np.exp(at), np.sqrt(np.diag(np.linalg.inv(curve)) * spread)


def left_out(launches: Launches, prior: Array) -> Array:
    """Returns the expected microseconds of each launch by numbers that were fitted to other problems."""
    fold = np.random.default_rng(0).permutation(len(launches.kinds))[launches.problem] % FOLDS
    expected = np.empty(len(fold))
    for part in np.unique(fold):
        numbers, _ = fitted(launches, np.where(fold == part, 0, launches.weights), prior)
        expected[fold == part] = times(launches, numbers)[fold == part]
    return expected


def error_90(launches: Launches, expected: Array) -> float:
    """Returns the relative error that nine of ten times of launches near the fastest keep."""
    return float(np.quantile(np.abs(np.log(expected / launches.us))[launches.slower < NEAR], 0.9))


def regrets(launches: Launches, expected: Array) -> Array:
    """Returns by how much the launch of the least expected time takes longer than the fastest of its problem."""
    order = np.lexsort((expected, launches.problem))
    return launches.slower[order[np.unique(launches.problem[order], return_index=True)[1]]] - 1


def table(launches: Launches, expected: Array) -> Iterator[tuple[str, ...]]:
    """Yields lines below HEADER: of all problems, of those with a long fastest launch, and of each class."""
    kinds, regret = np.array(launches.kinds), regrets(launches, expected)
    fastest = np.zeros(len(kinds))
    fastest[launches.problem] = launches.us / launches.slower
    groups = {"all": fastest > 0, f"{LONG_US} us and more": fastest >= LONG_US}
    groups |= {kind: kinds == kind for kind in dict.fromkeys(launches.kinds)}
    error, near = np.abs(np.log(expected / launches.us)), launches.slower < NEAR
    for name, chosen in ((name, chosen) for name, chosen in groups.items() if chosen.any()):
        mine = chosen[launches.problem]
        quantiles = [np.quantile(error[which], part) for which in (mine & near, mine) for part in (0.5, 0.9)]
        values = regret[chosen].mean(), regret[chosen].max(), *quantiles
        yield name, str(chosen.sum()), *(f"{value:.1%}" for value in values)
