"""Ratios of our times to others', over cells."""

import math
import statistics
from collections.abc import Iterable

from benchmark.results import CEILINGS, Cell


def mean(ratios: Iterable[float]) -> float:
    """Returns the geometric mean of what is known; nan of nothing."""
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    return statistics.geometric_mean(known) if known else math.nan


def to_best(cell: Cell) -> float:
    """Returns how many times as fast as the best peer we are; nan without a peer."""
    return cell.ratio(cell.best_peer())


def to_ceiling(cell: Cell) -> float:
    """Returns which part of the speed of the fastest ceiling ours is; nan without one."""
    return min((cell.ratio(ceiling) for ceiling in CEILINGS if ceiling in cell.us), default=math.nan)


def compared(cells: Iterable[Cell]) -> list[Cell]:
    """Returns the cells that have a peer's time and ours, the slowest beside the peer first."""
    return sorted((cell for cell in cells if not math.isnan(to_best(cell))), key=to_best)


def text(ratio: float) -> str:
    """Returns a ratio with two decimals; "-" for nan."""
    return "-" if math.isnan(ratio) else f"{ratio:.2f}"
