#!/usr/bin/env python3
"""Fits the probe's expected times to scripts/results/launches_hopper.csv, writes them, and prints their errors in Markdown.

Each cell is a softmax or a gradient of contiguous rows, with the launch that was measured. The fit has the least mean relative
error, by a search along each number in turn.
"""

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmark import results
from benchmark.results import Result

from portable_probe.times import LONG_US, TIMES, Fitted, Moved, expected_us
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device

ROOT = Path(__file__).parents[1]
PROFILES = {"NVIDIA H200": "nvidia/h200", "NVIDIA H100 80GB HBM3": "nvidia/h100-sxm"}
LAUNCHES = ROOT / "scripts" / "results" / "launches_hopper.csv"
BEGIN = Fitted(start_us=5.0, exchange_us=1.0, forward=0.9, backward=0.9, together=1.0, unaligned=1.02)


class Cell(NamedTuple):
    """A measured launch."""

    moved: Moved
    microseconds: float


def main() -> None:
    """Prints how well a fit to each device tells cells that were left out, and those of the other device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {TIMES.name}, from which the probe tells times")
    options = parser.parse_args()
    cells = {profile: read(name) for name, profile in PROFILES.items()}
    fits = {profile: fit(each) for profile, each in cells.items()}
    print(
        "| fitted to | told of | cells | 50% | 90% | cells of 20 us and more | 50% | 90% |\n|---|---|---|---|---|---|---|---|"
    )
    left_out = {profile: leave_one_out(each) for profile, each in cells.items()}
    for profile, each in cells.items():
        print(_row(profile, f"{profile}, the cell left out", each, left_out[profile]))
    for one in fits:
        for other in fits.keys() - {one}:
            print(_row(one, other, cells[other], errors(fits[one], cells[other])))
    if options.write:
        told = {profile: {**_asdict(found), **_interval(cells[profile], left_out[profile])} for profile, found in fits.items()}
        TIMES.write_text(json.dumps(told, indent=1) + "\n")


def read(device: str) -> list[Cell]:
    """Reads the cells of a device."""
    bandwidth = Device.from_profile(PROFILES[device]).hardware.memory_bandwidth_gb_per_s
    assert bandwidth, "the data sheet tells it"
    return [_cell(each, bandwidth) for each in results.read(LAUNCHES) if each.device == device and each.median_us]


def _cell(result: Result, bandwidth: int) -> Cell:
    n_rows, n_cols = result.sizes
    element, backward = DTYPE_BYTES[result.dtype], result.direction == "backward"
    moved = n_rows * n_cols * element * (3 if backward else 2)
    shared = result.launch.startswith("shared")
    unaligned = n_cols * element % 16 != 0
    return Cell(Moved(moved, bandwidth, backward, shared, unaligned), result.median_us or math.nan)


def fit(cells: list[Cell], begin: Fitted = BEGIN, steps: int = 200) -> Fitted:
    """Finds the numbers with the least mean error of the logarithm."""
    best, least, step = begin, _mean_error(begin, cells), dict.fromkeys(Fitted._fields, 0.2)
    for _ in range(steps):
        for name in Fitted._fields:
            tried = [best._replace(**{name: getattr(best, name) * math.exp(sign * step[name])}) for sign in (1, -1)]
            error, better = min((_mean_error(each, cells), each) for each in tried)
            step[name] *= 1.2 if error < least else 0.6
            best, least = (better, error) if error < least else (best, least)
        if max(step.values()) < 1e-3:
            break
    return best


def _mean_error(fitted: Fitted, cells: list[Cell]) -> float:
    return float(np.mean([abs(math.log(expected_us(fitted, each.moved) / each.microseconds)) for each in cells]))


def errors(fitted: Fitted, cells: list[Cell]) -> list[float]:
    """Returns the relative error of each cell."""
    return [expected_us(fitted, each.moved) / each.microseconds - 1 for each in cells]


def leave_one_out(cells: list[Cell]) -> list[float]:
    """Returns the error of each cell, told by a fit to all others."""
    whole, found = fit(cells), []
    for number, cell in enumerate(cells):
        fitted = fit(cells[:number] + cells[number + 1 :], whole, 10)
        found += errors(fitted, [cell])
    return found


def _interval(cells: list[Cell], found: list[float]) -> dict[str, float]:
    """Returns the relative errors within which nine of ten cells are, of short and of long ones."""
    both = list(zip(found, cells, strict=True))
    short = [abs(each) for each, cell in both if cell.microseconds < LONG_US]
    long = [abs(each) for each, cell in both if cell.microseconds >= LONG_US]
    return {"error_90_short": _quantile(short, 0.9), "error_90": _quantile(long, 0.9)}


def _row(fitted_to: str, told: str, cells: list[Cell], found: list[float]) -> str:
    every = [abs(each) for each in found]
    long = [abs(each) for each, cell in zip(found, cells, strict=True) if cell.microseconds >= LONG_US]
    parts = [f"{len(each)} | {_quantile(each, 0.5):.1%} | {_quantile(each, 0.9):.1%}" for each in (every, long)]
    return f"| {fitted_to} | {told} | {' | '.join(parts)} |"


def _quantile(values: list[float], part: float) -> float:
    return round(float(np.quantile(values, part)), 4)


def _asdict(fitted: Fitted) -> dict[str, float]:
    return {name: round(value, 4) for name, value in fitted._asdict().items()}


if __name__ == "__main__":
    main()
