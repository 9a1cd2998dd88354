"""Sweeps of many cases: the default run has one of equivalent ones, `scripts/test.sh --all` has every one."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks cases of a test with the mark each_value as slow, but for a few in which each value of each parameter is."""
    sweeps = defaultdict(list)
    for item in items:
        if item.get_closest_marker("each_value") and not item.get_closest_marker("slow") and hasattr(item, "callspec"):
            sweeps[item.nodeid.partition("[")[0]].append(item)
    for cases in sweeps.values():
        few = covering([{(name, id(value)) for name, value in case.callspec.params.items()} for case in cases])
        for place, case in enumerate(cases):
            if place not in few:
                case.add_marker(pytest.mark.slow)


def covering(cases: Sequence[set[Any]]) -> set[int]:
    """Returns the indices of a few cases that have all values; of equally good cases, one with rare values."""
    missing, few, used = set().union(*cases), set(), Counter()
    while missing:
        best = max(range(len(cases)), key=lambda at: (len(cases[at] & missing), -sum(used[value] for value in cases[at])))
        few.add(best)
        used.update(cases[best])
        missing -= cases[best]
    return few


def mostly_slow(cases: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Returns every case; slow, but for those that `quick` takes, which is called with a case's values."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[] if quick(*case) else pytest.mark.slow) for case in every]
