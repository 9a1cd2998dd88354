"""Tells how long a launch should take: the memory's floor, and for devices with measured cells an expected time.

It explains; no launch is chosen by it. scripts/fit_times.py fits the numbers, and docs/probe.md tells their errors.
"""

import functools
import json
import math
from pathlib import Path
from typing import NamedTuple

from portable_probe.schema import Time
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import LaunchPlan

TIMES = Path(__file__).with_name("times.json")
LONG_US = 20.0  # shorter launches have an error of their own


class Fitted(NamedTuple):
    """Numbers of a device.

    Args:
        start_us: microseconds of a launch that moves nothing.
        exchange_us: what programs that share rows add.
        forward, backward: the part of the data sheet's bandwidth that a softmax and a gradient get.
        together: the exponent with which the two times add: 1 is one after the other, more is at the same time.
        unaligned: by how much longer rows take that do not start on multiples of 16 bytes.
    """

    start_us: float
    exchange_us: float
    forward: float
    backward: float
    together: float
    unaligned: float


class Moved(NamedTuple):
    """Bytes that a launch reads and writes, at a data sheet's GB/s, and how it does so."""

    bytes: int
    gb_per_s: int
    backward: bool
    shared: bool
    unaligned: bool


def expected_us(fitted: Fitted, moved: Moved) -> float:
    """Returns the microseconds that a launch should take."""
    part = fitted.backward if moved.backward else fitted.forward
    moving = moved.bytes / (moved.gb_per_s * 1e3 * part) * (fitted.unaligned if moved.unaligned else 1)
    start = fitted.start_us + fitted.exchange_us * moved.shared
    return math.pow(start**fitted.together + moving**fitted.together, 1 / fitted.together)


def time_of(plan: LaunchPlan, n_rows: int, n_cols: int, dtype: str, device: Device, backward: bool = False) -> Time | None:
    """Returns the time of a planned softmax of contiguous rows, or of its gradient; None if nobody knows the bandwidth."""
    hardware, tiling = device.hardware, plan.tiling
    bandwidth = hardware.memory_bandwidth_gb_per_s
    if not bandwidth:
        return None
    element = DTYPE_BYTES[dtype]
    size = (3 if backward else 2) * n_rows * n_cols * element
    moved = Moved(size, bandwidth, backward, tiling.splits > 1, n_cols * element % 16 != 0)
    resident = plan.occupancy.programs_per_multiprocessor * (hardware.multiprocessor_count or 1)
    waves = plan.num_programs / resident if resident else 0.0
    read = 2 if backward else 1
    in_flight = min(resident, plan.num_programs) * tiling.tile_rows * min(tiling.tile_cols, n_cols) * element * read
    known = _fits().get(device.profile.name)
    told = expected_us(Fitted(**{name: known[name] for name in Fitted._fields}), moved) if known else None
    error = (known["error_90"] if told >= LONG_US else known["error_90_short"]) if known and told else None
    return Time(
        bytes=moved.bytes,
        floor_us=moved.bytes / (bandwidth * 1e3),
        waves=waves,
        tail=1 - waves / math.ceil(waves) if waves else 0.0,
        covered_us=in_flight / (bandwidth * 1e3),
        expected_us=told,
        error=error,
    )


@functools.cache
def _fits() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(TIMES.read_text())
    return found
