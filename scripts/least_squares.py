"""Fits positive numbers to measured times."""

from collections.abc import Callable
from typing import Any

import numpy as np

TOLERATED = 0.05  # relative error from which a time counts less than its square
PRIOR = 0.002  # weight of the numbers to begin with, in parts of all times'
STEP = 1e-4
Array = Any  # of numpy


def fit(times: Callable[[Array], Array], us: Array, weights: Array, first: Array, begin: Array) -> tuple[Array, Array]:
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
