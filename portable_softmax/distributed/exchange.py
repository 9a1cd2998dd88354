"""Collectives that make of each shard's numbers those of whole rows: functional ones, which torch.compile can trace.

A collective has begun when `begin` returns, and the caller may launch other work before it calls `finish`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from portable_softmax.distributed.steps import combined

# Ranks up to which each gets every other's pair of numbers, in one collective. More get the maximum, then the sum: in two, but
# their time grows with the logarithm of the nodes, and a row's bytes not at all; see scripts/benchmark_sharded/cost.py.
MOST_GATHERED = 32


class Group(NamedTuple):
    """A process group: its name, by which functional collectives know it, and its number of ranks."""

    name: str
    size: int


Groups = tuple[Group, ...]
Collective = Callable[[torch.Tensor, Group], torch.Tensor]
_collectives = torch.ops._c10d_functional


def _gather(numbers: torch.Tensor, group: Group) -> torch.Tensor:
    result: torch.Tensor = _collectives.all_gather_into_tensor(numbers, group.size, group.name)
    return result


def _reduce(operation: str) -> Collective:
    def collective(numbers: torch.Tensor, group: Group) -> torch.Tensor:
        result: torch.Tensor = _collectives.all_reduce(numbers, operation, group.name)
        return result

    return collective


def begin(numbers: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Begins the first collective, over the first of the groups.

    Args:
        numbers: [1, 2, n_rows], or [1, 1, n_rows] for a gradient: what reduce_shard gives.
        groups: those whose ranks together hold whole rows, one after the other; each of more than one rank.

    Returns:
        A tensor to call `finish` with.
    """
    collective, given = _first(numbers, groups)
    return collective(given, groups[0]) if groups else numbers


def finish(begun: torch.Tensor, numbers: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Waits, on the device's stream, for what `begin` has begun, and does the rest.

    Args:
        begun: what `begin` returned.
        numbers, groups: those that it was given.

    Returns:
        [ranks, 2, n_rows] or [1, 2, n_rows]; [1, 1, n_rows] for a gradient.
    """
    if not groups:
        return numbers
    collective, _ = _first(numbers, groups)
    result = _over(collective, begun, groups[1:])
    if collective is _gather or numbers.shape[1] == 1:
        return result
    sums = combined(numbers[:, 0], numbers[:, 1], result)
    total = _over(SUM, SUM(sums, groups[0]), groups[1:])
    return torch.stack((result, total), dim=1)


def _first(numbers: torch.Tensor, groups: Groups) -> tuple[Collective, torch.Tensor]:
    """Returns the first collective and what it is of: the sum of a gradient's numbers, all pairs, or the maximum."""
    if numbers.shape[1] == 1:
        return SUM, numbers
    if math.prod([group.size for group in groups]) <= MOST_GATHERED:
        return _gather, numbers
    return MAX, numbers[:, 0].contiguous()


def _over(collective: Collective, begun: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Waits for a collective, and repeats it over more groups."""
    result: torch.Tensor = _collectives.wait_tensor(begun)
    for group in groups:
        result = _collectives.wait_tensor(collective(result, group))
    return result


SUM, MAX = _reduce("sum"), _reduce("max")
