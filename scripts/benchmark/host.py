"""Times how long the host is busy with a call, without waiting for the device."""

import contextlib
import math
import time

from tabulate import tabulate

from benchmark.directions import DIRECTIONS, Inputs, Timed, recorded
from benchmark.providers import Provider

CALLS = {"forward": DIRECTIONS["forward"].call, "with grad": recorded} | {
    name: direction.call for name, direction in DIRECTIONS.items() if name != "forward"
}
SHAPE = (128, 256)  # the device is done before the host is


def host_times(providers: dict[str, Provider], where: str) -> dict[str, dict[str, float]]:
    """Returns microseconds of a call, by provider and kind of call. A call that fails is missing."""
    given = Inputs.random(*SHAPE, "float32", where)
    times: dict[str, dict[str, float]] = {name: {} for name in providers}
    for name, provider in providers.items():
        for kind, of in CALLS.items():
            with contextlib.suppress(Exception):  # each peer fails in its own way
                if call := of(provider, given):
                    times[name][kind] = _microseconds(call)
    return times


def _microseconds(call: Timed, repeats: int = 7, calls: int = 200) -> float:
    """Returns the least of several means, because other work on the machine only adds time."""
    best = math.inf
    for _ in range(repeats):
        call().cpu()  # waits for the device
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return best


def host_table(times: dict[str, dict[str, float]]) -> str:
    """Returns a table with a line for each provider; "" without any."""
    if not times:
        return ""
    rows = [(name, *(of.get(kind) for kind in CALLS)) for name, of in times.items()]
    return tabulate(rows, ("microseconds", *CALLS), "plain", floatfmt=".1f", missingval="-") + "\n"
