"""Least squares of the numbers of a launch's cost, and the errors of the times that they predict."""

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from portable_softmax.devices.schema import COST_NUMBERS, CostNumbers
from portable_softmax.planning.cost import Terms

NEAR, FAR_WEIGHT = 1.1, 0.03  # launches within NEAR times the fastest of their problem have weight 1, others FAR_WEIGHT
TOLERATED = 0.05  # relative error from which a launch counts less than its square
PRIOR = 5e-4  # weight of the initial numbers, in parts of all launches'
HELD = "walking", "latency_us", "launch_ns"  # numbers that softmaxes hardly depend on, and row kernels do: they stay
FOLDS, STEP, TURNS = 5, 1e-4, 12
Array = Any  # of numpy


class Timed(NamedTuple):
    """A timed launch: its problem, its cost by numbers of a device, and microseconds."""

    problem: str
    expected: Callable[[CostNumbers], Terms]
    us: float


class Launches(NamedTuple):
    """Timed launches: their costs, and arrays of other columns."""

    expected: list[Callable[[CostNumbers], Terms]]
    us: Array
    slower: Array  # us, in parts of the fastest launch's of the problem
    problem: Array  # its number


def prepared(timed: Iterable[Timed]) -> Launches:
    """Returns the launches of problems with at least three; raises ValueError if they are too few to fit."""
    in_order = sorted(timed, key=lambda launch: launch.problem)
    by_problem = (list(launches) for _, launches in groupby(in_order, lambda launch: launch.problem))
    problems = [launches for launches in by_problem if len(launches) > 2]
    listed = [(launch, at) for at, launches in enumerate(problems) for launch in launches]
    if len(listed) < 2 * len(COST_NUMBERS) or len(problems) < FOLDS:
        raise ValueError(f"{len(listed)} launches of {len(problems)} problems are too few to fit; increase --minutes")
    us, problem = np.array([launch.us for launch, _ in listed]), np.array([at for _, at in listed])
    slower = us / np.array([min(launch.us for launch in launches) for launches in problems])[problem]
    return Launches([launch.expected for launch, _ in listed], us, slower, problem)


def times(launches: Launches, numbers: Array) -> Array:
    """Returns the expected microseconds of every launch."""
    named = CostNumbers(**dict(zip(COST_NUMBERS, map(float, numbers), strict=True)))
    return np.array([expected(named).total for expected in launches.expected])


def fitted(launches: Launches, prior: Array, used: Array = True) -> tuple[Array, Array]:
    """Returns the numbers of the least error of the logarithm of times, and their relative standard errors.

    Gauss and Newton's steps, with a loss that is linear for large errors, from `prior`, which is kept where the times determine
    nothing. `used` is true for the launches that are fitted.
    """
    weights = np.where(launches.slower < NEAR, 1, FAR_WEIGHT) / np.sqrt(np.bincount(launches.problem)[launches.problem]) * used
    first = at = np.log(prior)
    unit = np.eye(len(at))
    held = 4 * PRIOR * weights.sum() * np.array([1e6 if name in HELD else 1 for name in COST_NUMBERS])

    def error_of(logarithms: Array) -> Array:
        return np.log(times(launches, np.exp(logarithms)) / launches.us)

    for turn in range(TURNS):
        error = error_of(at)
        slope = np.stack([(error_of(at + STEP * one) - error) / STEP for one in unit], 1)
        weighted = weights / np.sqrt(1 + (error / TOLERATED) ** 2) / TOLERATED**2
        curve = slope.T @ (slope * weighted[:, None]) + np.diag(held)
        step = np.linalg.solve(curve, slope.T @ (weighted * error) + held * (at - first))
        at = at - np.clip(step, -1, 1) / (1 + turn / 4)
    spread = (weighted * error**2).sum() / (weighted > 0).sum()
    return np.exp(at), np.sqrt(np.diag(np.linalg.inv(curve)) * spread)


def left_out(launches: Launches, prior: Array) -> Array:
    """Returns the expected microseconds of every launch, by numbers fitted to other problems."""
    fold = np.random.default_rng(0).permutation(launches.problem.max() + 1)[launches.problem] % FOLDS
    expected = [times(launches, fitted(launches, prior, fold != part)[0]) for part in range(FOLDS)]
    return np.choose(fold, expected)


def accuracy(launches: Launches, expected: Array) -> tuple[float, ...]:
    """Returns the mean and largest regret of the predicted best launches, and median and 90% of errors near the fastest."""
    order = np.lexsort((expected, launches.problem))
    regret = launches.slower[order[np.unique(launches.problem[order], return_index=True)[1]]] - 1
    error = np.abs(np.log(expected / launches.us))[launches.slower < NEAR]
    return tuple(map(float, (regret.mean(), regret.max(), *np.quantile(error, (0.5, 0.9)))))
