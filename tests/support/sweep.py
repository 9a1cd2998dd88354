"""Sweeps of many cases: the default run has those that no other stands for, `scripts/test.sh --all` has every one."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

MARKS = {"each_value": 1, "pairwise": 2}  # how many values come together in some case


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks cases of a test with a mark of MARKS as slow, but for a few in which each value is, or each two together."""
    sweeps = defaultdict(list)
    for item in items:
        for mark, size in MARKS.items():
            if item.get_closest_marker(mark) and not item.get_closest_marker("slow") and hasattr(item, "callspec"):
                sweeps[item.nodeid.partition("[")[0], size].append(item)
    for (_, size), cases in sweeps.items():
        few = covering([tuple((name, id(value)) for name, value in case.callspec.params.items()) for case in cases], size)
        for place, case in enumerate(cases):
            if place not in few:
                case.add_marker(pytest.mark.slow)


def covering(cases: Sequence[tuple[Any, ...]], size: int) -> set[int]:
    """Returns the places of a few cases that hold all that so many values make together; all cases have the same axes.

    Among cases that are as good, one whose values few others have: each value of a short axis is met by many of a long one.
    """
    groups = [set(itertools.combinations(case, min(size, len(case)))) for case in cases]
    missing, few, used = set().union(*groups), set(), Counter()
    while missing:
        best = max(range(len(cases)), key=lambda at: (len(groups[at] & missing), -sum(used[value] for value in cases[at])))
        few.add(best)
        used.update(cases[best])
        missing -= groups[best]
    return few


def mostly_slow(cases: Iterable[Any], quick: Callable[..., bool]) -> list[Any]:
    """Returns every case; slow, but for those that `quick` takes, which is called with a case's values."""
    every = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[] if quick(*case) else pytest.mark.slow) for case in every]
