"""Times the providers of a cell in turns."""

import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from triton.testing import do_bench

from benchmark.here import version_of
from benchmark.results import CEILINGS, OURS, Result

PEER_ERROR = 20  # times our allowed error: a peer that is only less exact is still timed
BUSY_MS = 50
Call = Callable[[], Any]


class Timed(NamedTuple):
    """Calls of a problem by provider, and the largest error of a result in units of the error that is allowed."""

    calls: Mapping[str, Call]
    error_of: Callable[[Any], float]


def results_of(columns: Mapping[str, Any], timed: Timed, turns: int) -> list[Result]:
    """Checks all calls, times the correct ones in turns, and returns their results; `columns` name device and problem."""
    calls, error_of = timed
    checked = {name: _checked(name, call, error_of) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in checked}
    right = [calls[name] for name, (_, failure) in checked.items() if not failure]
    if right:
        do_bench(right[0], warmup=BUSY_MS, rep=1)  # a device that waited for compilers is slow at first
    for name, (_, failure) in turns * list(checked.items()):
        if not failure:
            times[name].append(1e3 * do_bench(calls[name], warmup=3, rep=12, return_mode="median"))
    return [
        Result(provider=name, version=version_of(name), error=error, failure=failure, **columns, **_of_turns(times[name]))
        for name, (error, failure) in checked.items()
    ]


def _of_turns(times: list[float]) -> dict[str, Any]:
    if not times:
        return {}
    median = statistics.median(times)
    spread = {"spread": (max(times) - min(times)) / median} if len(times) > 1 else {}
    return {"median_us": median, **spread}


def _checked(name: str, call: Call, error_of: Callable[[Any], float]) -> tuple[float | None, str]:
    """Returns the largest error of a call's result, and why it is not timed, or ""."""
    try:
        error = None if name in CEILINGS else error_of(call())
    except Exception as refusal:  # each peer refuses a tensor in its own way
        failure = f"{type(refusal).__name__}: {str(refusal)[:100]}".replace("\n", " ")
        print(f"{name}: {failure}", file=sys.stderr)
        return None, failure
    if error is not None and not error <= (1 if name == OURS else PEER_ERROR):
        print(f"{name}: WRONG, {error:.3g} times the error that is allowed", file=sys.stderr)
        return error, "wrong"
    return error, ""
