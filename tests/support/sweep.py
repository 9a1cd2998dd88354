"""Parameters of tests: a few cases of many combinations."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def in_turn(cases: Iterable[Any], *others: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns each case with one of the combinations of other values, in turns in which these soon have all occurred."""
    choices = [*itertools.product(*others)]
    return [(case, *choices[7 * at % len(choices)]) for at, case in enumerate(cases)]


def mostly_slow(cases: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Returns every case; slow, but for those that `quick` takes, which is called with a case's values."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[] if quick(*case) else pytest.mark.slow) for case in every]
