"""Compares results of the benchmark with float64, element by element, on all ranks."""

from typing import Any

import torch
import torch.distributed as dist

from benchmark_sharded.providers import Given
from portable_probe.closeness import allowed_of_terms, units

AT_ONCE = 2**25  # elements that are checked at once


def check(result: torch.Tensor, given: Given, direction: str) -> dict[str, Any]:
    """Returns the worst error in units of the allowed error, and how many elements exceed it, over all ranks.

    Args:
        result: y or dx, with all columns or this rank's.
        given: the operands.
        direction: forward, both or loss.
    """
    part = slice(None) if result.shape == given.x.shape else given.part
    worst, beyond = (torch.zeros((), device=result.device, dtype=torch.float64) for _ in range(2))
    rows = max(1, AT_ONCE // given.x.shape[1])
    for at in (slice(first, first + rows) for first in range(0, len(given.x), rows)):
        exact, allowed = _exact(given, at, part, direction)
        error = units(result[at], exact, allowed)
        worst, beyond = torch.maximum(worst, error.max()) if error.numel() else worst, beyond + (error > 1).sum()
    counts = torch.stack((beyond, torch.full_like(beyond, result.numel())))
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    dist.all_reduce(counts)
    return {"worst_error": worst.item(), "beyond": int(counts[0]), "elements": int(counts[1])}


def _exact(given: Given, at: slice, part: slice, direction: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns columns of some rows in float64, and their allowed error.

    A gradient is computed from a rounded result: its exponential is off by as much as the logarithm was.
    """
    y = torch.log_softmax(given.x[at].double(), -1)
    if direction == "forward":
        return y[:, part], allowed_of_terms(y[:, part], given.x.dtype, 1.0, given.x.dtype)
    if direction == "both":
        dy = given.dy[at].double()
    else:
        dy = torch.zeros_like(y).scatter_(1, given.target[at].unsqueeze(1), -1 / len(given.x))
    down = y.exp() * dy.sum(-1, keepdim=True)
    terms = dy.abs() + down.abs() * (2 + y.abs())
    exact = (dy - down)[:, part]
    return exact, allowed_of_terms(exact, given.x.dtype, terms[:, part], given.x.dtype)
