"""Least squares of the numbers of a launch's cost, and how well they tell the times of problems that were left out."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from portable_probe.tune.cells import Cell
from portable_probe.tune.files import Launch
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import COST_NUMBERS, CostNumbers
from portable_softmax.planning.cost import terms
from portable_softmax.planning.facts import Facts, facts
from portable_softmax.planning.planner import spilled_by

LONG_US, NEAR = 20, 1.25  # shorter launches are told of apart; near: at most so many times the fastest's time
FAR_COUNTS = 0.15  # weight of a launch that is not near
TOLERATED = 0.05  # relative error from which a launch counts less than its square
PRIOR = 0.002  # weight of the numbers to begin with, in parts of all launches'
FOLDS, STEP = 5, 1e-4
HEADER = ("number", "regret", "worst", "error, near: median", "90%", "all: median", "90%")
Array = Any  # of numpy


class Launches(NamedTuple):
    """Launches of problems: an array of each fact, and of each column."""

    facts: Facts
    us: Array
    slower: Array  # us, in parts of the fastest launch's of the problem
    weights: Array  # in the fit
    problem: Array  # its number in `cells`
    cells: list[Cell]


def prepared(lines: Iterable[Launch], device: Device) -> Launches:
    """Returns the launches of problems of which there are several.

    Raises:
        ValueError: they are too few to fit anything.
    """
    found: dict[Cell, list[tuple[Facts, float]]] = {}
    for each in lines:
        told = facts(each.problem, each.tiling, each.n_programs, each.resident, device, spilled_by(each.resources))
        found.setdefault(each.cell, []).append((told, each.us))
    several = [cell for cell in found if len(found[cell]) > 2]
    listed = [(*launch, at) for at, cell in enumerate(several) for launch in found[cell]]
    if len(listed) < 2 * len(COST_NUMBERS) or len(several) < FOLDS:
        raise ValueError(f"{len(listed)} launches of {len(several)} problems are too few to fit; give it more --minutes")
    given, us, problems = map(np.array, zip(*listed, strict=True))
    fastest = np.full(len(several), math.inf)
    np.minimum.at(fastest, problems, us)
    slower = us / fastest[problems]
    weights = np.where(slower < NEAR, 1, FAR_COUNTS) / np.sqrt(np.bincount(problems)[problems])
    return Launches(Facts(*given.astype(float).T), us, slower, weights, problems, several)


def times(launches: Launches, numbers: Array) -> Array:
    """Returns the expected microseconds of each launch."""
    return np.asarray(terms(launches.facts, CostNumbers(**dict(zip(COST_NUMBERS, numbers, strict=True)))).total)


def fitted(launches: Launches, weights: Array, begin: Array, prior: Array) -> tuple[Array, Array]:
    """Finds the numbers of the cost, and their relative errors."""
    return least_squares(lambda numbers: times(launches, numbers), launches.us, weights, prior, begin)


def least_squares(told: Callable[[Array], Array], us: Array, weights: Array, first: Array, begin: Array) -> tuple[Array, Array]:
    """Finds numbers with the least weighted error of the logarithm of times, by Levenberg and Marquardt.

    Args:
        told: the expected times of all launches, by some numbers.
        us: as they were measured.
        weights: of the launches.
        first: numbers that are preferred where the times do not tell.
        begin: numbers to begin with.

    Returns:
        The numbers, and their relative standard errors.
    """
    first, at, damping, held = np.log(first), np.log(begin), 1e-2, PRIOR * weights.sum()

    def wrong(numbers: Array) -> Array:
        return np.log(told(np.exp(numbers)) / us)

    def loss(error: Array, numbers: Array) -> float:
        squares = np.sqrt(1 + (error / TOLERATED) ** 2) - 1
        return float((weights * squares).sum() + 2 * held * ((numbers - first) ** 2).sum())

    error = wrong(at)
    least = loss(error, at)
    for _ in range(100):
        slope = np.stack([(wrong(at + STEP * one) - error) / STEP for one in np.eye(len(at))], 1)
        weighted = weights / np.sqrt(1 + (error / TOLERATED) ** 2) / TOLERATED**2
        curve = slope.T @ (slope * weighted[:, None]) + 4 * held * np.eye(len(at))
        uphill = slope.T @ (weighted * error) + 4 * held * (at - first)
        tried = at - np.clip(np.linalg.solve(curve + damping * np.diag(np.diag(curve)), uphill), -1, 1)
        if (now := loss(tried_error := wrong(tried), tried)) < least:
            done, damping = least - now < 1e-6 * least, max(damping / 5, 1e-9)
            at, error, least = tried, tried_error, now
            if done:
                break
        elif (damping := 4 * damping) > 1e9:
            break
    spread = (weighted * error**2).sum() / (weighted > 0).sum()
    return np.exp(at), np.sqrt(np.diag(np.linalg.inv(curve)) * spread)


def by_others(launches: Launches, begin: Array, prior: Array) -> Array:
    """Returns the expected microseconds of each launch by numbers that were fitted to other problems."""
    fold = np.random.default_rng(0).permutation(len(launches.cells))[launches.problem] % FOLDS
    told = np.empty(len(fold))
    for each in range(FOLDS):
        numbers, _ = fitted(launches, np.where(fold == each, 0, launches.weights), begin, prior)
        told[fold == each] = times(launches, numbers)[fold == each]
    return told


def error_90(launches: Launches, told: Array) -> float:
    """Returns the relative error that nine of ten times of launches near the fastest keep."""
    return float(np.quantile(np.abs(np.log(told / launches.us))[launches.slower < NEAR], 0.9))


def table(launches: Launches, told: Array) -> Iterator[tuple[str, ...]]:
    """Yields lines below HEADER: of all problems, of those whose fastest launch is long, and of each class.

    The regret of a problem is by how much the launch of the least cost takes longer than the fastest that was timed.
    """
    long, kinds = launches.us / launches.slower >= LONG_US, np.array([launches.cells[at].kind for at in launches.problem])
    groups = {"all": long | True, f"{LONG_US} us and more": long} | {kind: kinds == kind for kind in dict.fromkeys(kinds)}
    error, near = np.abs(np.log(told / launches.us)), launches.slower < NEAR
    for group, chosen in ((group, chosen) for group, chosen in groups.items() if chosen.any()):
        problems = [np.flatnonzero(launches.problem == at) for at in np.unique(launches.problem[chosen])]
        regret = [launches.slower[mine[told[mine].argmin()]] for mine in problems]
        mean = math.exp(np.mean(np.log(regret))) - 1
        quantiles = [np.quantile(error[which], part) for which in (chosen & near, chosen) for part in (0.5, 0.9)]
        yield group, str(len(problems)), *(f"{each:.1%}" for each in (mean, max(regret) - 1, *quantiles))
