"""Sweeps of many cases: the default run has those that no other stands for, `scripts/test.sh --all` has every one."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def pairwise(*axes: Iterable[Any]) -> list[Any]:
    """Returns every combination of the axes' values; slow, but for a few in which each pair of values comes together once."""
    every = list(itertools.product(*map(list, axes)))
    pairs = list(map(_pairs, every))
    missing = set().union(*pairs)
    quick = set()
    while missing:
        best = max(range(len(every)), key=lambda place: len(pairs[place] & missing))
        quick.add(best)
        missing -= pairs[best]
    return [_param(case, place in quick) for place, case in enumerate(every)]


def mostly_slow(cases: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Returns every case; slow, but for those that `quick` takes, which is called with a case's values."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [_param(case, quick(*case)) for case in every]


def _pairs(case: tuple[Any, ...]) -> set[Any]:
    """Returns each two values with their axes; those of a single axis are alone. By their text, as some have no hash."""
    named = list(enumerate(map(repr, case)))
    return set(itertools.combinations(named, min(2, len(named))))


def _param(case: tuple[Any, ...], quick: bool) -> Any:
    return pytest.param(*case, marks=[] if quick else pytest.mark.slow)
