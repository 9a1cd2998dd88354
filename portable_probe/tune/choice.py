"""Chooses rows of numbers from measured times: arithmetic on a table, with no device."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from portable_probe.tune.cells import BETWEEN_LOADS
from portable_probe.tune.variations import READING, Variation
from portable_softmax.devices.policy import LEAST_GAIN, NumberRow
from portable_softmax.planning.problem import Problem

COMPUTED: Variation = ()


@dataclass(frozen=True)
class Measured:
    """A cell's times by what was varied.

    Args:
        given: its problem.
        read: the same as the computed launch reads it.
        load: elements for each thread that the device holds at once; None where it has none.
        us: microseconds by variation, COMPUTED among them.
        again_us: of the computed launch, timed once more.
    """

    given: Problem
    read: Problem
    load: float | None
    us: Mapping[Variation, float]
    again_us: float

    def gain(self, variation: Variation) -> float:
        """Returns how much faster the cell is than computed."""
        return self.us[COMPUTED] / self.us[variation]

    def regret(self, variation: Variation) -> float:
        """Returns how much slower the cell is than by the best of all variations, 0 for that."""
        return self.us[variation] / min(self.us.values()) - 1


class Span(NamedTuple):
    """Neighbouring lengths of a group, and the variation that is chosen for them."""

    first: int
    last: int
    variation: Variation
    gain: float
    saved: float  # sum of the logarithms of the gains


def chosen_rows(measured: Sequence[Measured], source: str) -> list[NumberRow]:
    """Returns rows of numbers: for each kind of problem, and range of lengths, the value with the least worst regret.

    A row gains LEAST_GAIN or more in the geometric mean of its lengths, and more than the noise on its first and on its last.
    """
    rows = []
    for reading in (True, False):
        for conditions, group in _groups(measured, reading):
            lengths = sorted(group)
            tried = [each for each in _tried(group) if reading == bool({key for key, _ in each} & set(READING))]
            for span in _spans(group, lengths, tried, noise_of([each for cells in group.values() for each in cells])):
                gain = math.floor(100 * span.gain + 1e-9) / 100
                columns: dict[str, Any] = {"from_cols": _edge(lengths, span.first, -1), "to_cols": _edge(lengths, span.last, 1)}
                rows.append(NumberRow(**conditions, **columns, **dict(span.variation), gain=gain, source=source))
    return rows


def noise_of(measured: Sequence[Measured]) -> float:
    """Returns the ratio by which two times of one launch differ: the root of the mean square, of logarithms."""
    squares = [math.log(each.again_us / each.us[COMPUTED]) ** 2 for each in measured]
    return math.exp(math.sqrt(statistics.fmean(squares))) if squares else 1.0


def _groups(measured: Sequence[Measured], reading: bool) -> Iterator[tuple[dict[str, Any], dict[int, list[Measured]]]]:
    """Yields conditions, and by length the cells that meet them.

    What decides how a row is read is looked up for the problem as it is given, and all else for the problem as it is read.
    """
    found: dict[tuple[Any, ...], dict[int, list[Measured]]] = {}
    for each in measured:
        problem = each.given if reading else each.read
        few = None if each.load is None else each.load < BETWEEN_LOADS
        key = problem.direction, problem.element_bytes, problem.access, problem.layout, few
        found.setdefault(key, {}).setdefault(problem.n_cols, []).append(each)
    for (direction, element_bytes, access, layout, few), group in found.items():
        load = {} if few is None else {"to_load" if few else "from_load": BETWEEN_LOADS}
        yield dict(direction=direction, element_bytes=element_bytes, access=access, layout=layout, **load), group


def _tried(group: Mapping[int, Sequence[Measured]]) -> list[Variation]:
    found = (variation for cells in group.values() for each in cells for variation in each.us)
    return [each for each in dict.fromkeys(found) if each != COMPUTED]


def _spans(group: Mapping[int, list[Measured]], lengths: list[int], tried: Sequence[Variation], noise: float) -> Iterator[Span]:
    """Yields what gains most, then the same of the lengths that are left on either side."""
    ends = [(first, last) for first in range(len(lengths)) for last in range(first, len(lengths))]
    found = [span for first, last in ends if (span := _span(group, lengths, first, last, tried, noise))]
    if not found:
        return
    best = max(found, key=lambda span: (span.saved, span.first - span.last))  # of equal ones the shorter
    yield best
    for part in (lengths[: best.first], lengths[best.last + 1 :]):
        for span in _spans(group, part, tried, noise) if part else ():
            at = lengths.index(part[0])
            yield span._replace(first=span.first + at, last=span.last + at)


def _span(
    group: Mapping[int, list[Measured]], lengths: list[int], first: int, last: int, tried: Sequence[Variation], noise: float
) -> Span | None:
    """Returns the variation with the least worst regret on all of these lengths; None where it is not worth a row."""
    cells = [each for length in lengths[first : last + 1] for each in group[length]]
    everywhere = [each for each in tried if all(each in cell.us for cell in cells)]
    best = min((COMPUTED, *everywhere), key=lambda each: _order(cells, each))
    gains = [math.log(cell.gain(best)) for cell in cells]
    gain = math.exp(statistics.fmean(gains))
    at_ends = [cell.gain(best) for length in (lengths[first], lengths[last]) for cell in group[length]]
    if gain < LEAST_GAIN or min(at_ends) <= noise or min(gains) < -math.log(noise):
        return None
    return Span(first, last, best, gain, sum(gains))


def _order(cells: Sequence[Measured], variation: Variation) -> tuple[float, float]:
    """Returns the worst regret, and of equal ones the mean."""
    regrets = [cell.regret(variation) for cell in cells]
    return max(regrets), statistics.fmean(regrets)


def _edge(lengths: Sequence[int], at: int, step: int) -> int:
    """Returns a range's end: halfway, by ratio, to the next length that was tuned, or the length itself where there is none."""
    beyond = at + step
    if not 0 <= beyond < len(lengths):
        return lengths[at]
    between = math.isqrt(lengths[at] * lengths[beyond])
    return between + 1 if step < 0 else between
