"""Times how long the host is busy with a call, without waiting for the device."""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from benchmark.directions import DIRECTIONS, Timed, recorded
from benchmark.here import version_of
from benchmark.providers import Provider
from benchmark.results import Result

CALLS = DIRECTIONS | {"with gradient": DIRECTIONS["forward"]._replace(call=recorded)}
SHAPE = (128, 256)  # the device is done before the host is
SWEEP = "host"


def host_results(providers: dict[str, Provider], where: str, columns: Mapping[str, Any]) -> Iterator[Result]:
    """Yields the host's microseconds for each kind of call of each provider. A call that fails is left out."""
    shape = "x".join(map(str, SHAPE))
    for name, provider in providers.items():
        for kind, direction in CALLS.items():
            with contextlib.suppress(Exception):  # each peer fails in its own way
                if call := direction.call(provider, direction.inputs(*SHAPE, "float32", where)):
                    us = _microseconds(call)
                    yield Result(
                        **columns, sweep=SWEEP, provider=name, version=version_of(name), shape=shape, dim=1, dtype="float32",
                        direction=kind, median_us=us,
                    )  # fmt: skip


def _microseconds(call: Timed, repeats: int = 7, calls: int = 200) -> float:
    """Returns the least of several means, because other work on the machine only adds time."""
    best = math.inf
    for _ in range(repeats):
        call()
        torch.get_device_module().synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls * 1e6)
    return best
