"""Collectives that make of each shard's numbers those of whole rows: functional ones, which torch.compile can trace."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from portable_softmax.distributed.steps import combined

# Ranks up to which each gets every other's pair of numbers, in one collective. More get the maximum, then the sum: in two, but
# their time grows with the logarithm of the nodes, and a row's bytes not at all.
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


def exchanged(numbers: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Returns the numbers of all ranks' shards, or what they come to. It waits on the device's stream, not on the host.

    Args:
        numbers: [1, 2, n_rows], or [1, 1, n_rows] for a gradient: what reduce_shard gives.
        groups: those whose ranks together hold whole rows, one after the other; each of more than one rank.

    Returns:
        [ranks, 2, n_rows] or [1, 2, n_rows]; [1, 1, n_rows] for a gradient, whose numbers are added up.
    """
    if numbers.shape[1] == 1:
        return over(SUM, numbers, groups)
    if math.prod([group.size for group in groups]) <= MOST_GATHERED:
        return over(_gather, numbers, groups)
    first = over(MAX, numbers[:, 0].contiguous(), groups)
    total = over(SUM, combined(numbers[:, 0], numbers[:, 1], first), groups)
    return torch.stack((first, total), dim=1)


def gathered(numbers: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Returns the numbers of all ranks of the groups: [ranks, ...] of [1, ...]."""
    return over(_gather, numbers, groups)


def over(collective: Collective, numbers: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Does a collective over one group after the other."""
    for group in groups:
        numbers = _collectives.wait_tensor(collective(numbers, group))
    return numbers


SUM, MAX = _reduce("sum"), _reduce("max")
