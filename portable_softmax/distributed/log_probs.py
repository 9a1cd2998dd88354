"""Log-probabilities of tokens where each rank of a process group holds a part of the vocabulary.

Each rank reads its part once, and gathers a few numbers of each row from the others. What it gets is of whole rows, the same on
all ranks; so a loss is computed alike on each, and each has the gradient of its own part without another collective.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed import get_rank

from portable_softmax.distributed.entry import checked_group
from portable_softmax.distributed.exchange import Group, Groups, gathered
from portable_softmax.operators.log_probs import by_torch
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient
from portable_softmax.operators.log_probs.call import Given, read
from portable_softmax.operators.log_probs.library import backward_operator, operator

NAME = "token_log_probs"
NONE = -(2**62)  # stands for an id that no part holds
ELSEWHERE = 1.0  # in place of a score less its maximum, which is never above 0


def sharded(
    x: Any, ids: Any, given: Given, out: Any, groups: Sequence[Any], vocab_start: int | None
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Computes log-probabilities, or (log-probabilities, entropies), of logits that are this rank's part.

    Every rank calls it with the same arguments but for logits, and with ids of the whole vocabulary.

    Args:
        x, ids, given, out: as api.log_probs.token_log_probs takes them.
        groups: process groups whose ranks together hold each row.
        vocab_start: the id of this rank's first column; None where all ranks of a single group have as many.

    Raises:
        ValueError: ranks, a gradient in place of logits, or `out` are asked for.
        TypeError: a group is something else.
        RuntimeError: a temperature needs a gradient; or a rank is lost, as torch.distributed finds it.
    """
    if given.rank or given.grad_inplace or out is not None:
        raise ValueError(f"{NAME}() of a shard was asked for with rank, grad_inplace or out, which are of whole rows alone")
    groups = [checked_group(each) for each in groups]
    asked = read(x, ids, given)
    if any(each.requires_grad for each in asked.numbers):
        raise RuntimeError(f"{NAME}() of a shard has no gradient of its scale or temperature; give them detached")
    start = get_rank(groups[0]) * asked.x.shape[asked.own_dim] if vocab_start is None else vocab_start
    rest = asked._replace(x=None, ids=None, factors=None)  # type: ignore[arg-type]
    named = tuple(Group(each.group_name, each.size()) for each in groups if each.size() > 1)
    picked, entropies = _Sharded.apply(asked.x, asked.ids, asked.factors, rest, start, named)
    return (picked, entropies) if asked.entropy else picked


class _Whole(NamedTuple):
    """Numbers of whole rows, [n_rows], and of their ids, [n_ids, n_rows]."""

    first: torch.Tensor
    second: torch.Tensor
    entropies: torch.Tensor
    picked: torch.Tensor
    found: torch.Tensor


class _Sharded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, ids: torch.Tensor, factors: torch.Tensor | None, rest: Asked, start: int, groups: Groups
    ) -> tuple[torch.Tensor, torch.Tensor]:
        asked = rest._replace(x=x, ids=ids, factors=factors)
        whole = _combined(gathered(_numbers(asked, start), groups), asked)
        by_id = ids.reshape(-1, asked.n_ids)
        ignored, found = by_id == asked.ignore_index, whole.found.t()
        picked = torch.where(ignored, 0.0, torch.where(found, whole.picked.t(), float("nan")))
        local = torch.where(found & ~ignored, by_id - start, NONE).view(ids.shape)
        numbers = (whole.first, whole.second, whole.entropies)[: 2 + asked.entropy]
        ctx.save_for_backward(x, local, torch.stack(numbers).view(asked.statistics_shape), factors)
        ctx.rest = rest
        entropies = whole.entropies.clone().view(asked.rows)
        if not asked.entropy:
            ctx.mark_non_differentiable(entropies)
        return picked.view(ids.shape), entropies

    @staticmethod
    def backward(ctx: Any, dpicked: torch.Tensor, dentropies: torch.Tensor) -> tuple[Any, ...]:
        x, ids, statistics, factors = ctx.saved_tensors
        rest = ctx.rest
        dentropy = dentropies if rest.entropy else None
        by = rest.dim, factors, rest.factor, rest.divides
        dx = backward_operator(*AskedGradient(x, ids, statistics, dpicked, dentropy, *by, NONE, True))
        return dx, None, None, None, None, None


def _numbers(asked: Asked, start: int) -> torch.Tensor:
    """Returns the numbers of this rank's part: [1, 2 or 3, and one for each id, n_rows].

    They are maximum, sum, with the entropy the mean of x - maximum, and for each id x - maximum, or ELSEWHERE.
    """
    x, ids = asked.x, asked.ids
    n_cols = x.shape[asked.own_dim]
    here = (ids != asked.ignore_index) & (ids >= start) & (ids < start + n_cols)
    if n_cols:
        local = asked._replace(ids=torch.where(here, ids - start, NONE), ignore_index=NONE)
        picked, statistics, _ = operator(*local)
    else:
        picked, statistics = (
            x.new_zeros(ids.shape, dtype=asked.compute),
            x.new_zeros(asked.statistics_shape, dtype=asked.compute),
        )
        statistics[0] = -torch.inf
    first, second, *entropies = statistics.flatten(1)
    log = second.log()
    chosen = picked.reshape(-1, asked.n_ids) + log.unsqueeze(1)
    chosen = torch.where(second.unsqueeze(1) == 0, -torch.inf, chosen)  # a part that is all -inf
    falls = torch.where(here.reshape(-1, asked.n_ids), chosen, ELSEWHERE)
    means = [torch.where(second > 0, log - each, 0.0) for each in entropies]
    return torch.stack([first, second, *means, *falls.unbind(1)]).unsqueeze(0)


def _combined(numbers: torch.Tensor, asked: Asked) -> _Whole:
    """Returns the numbers of whole rows from those of all ranks' parts: [ranks, ..., n_rows]."""
    firsts, seconds, falls = numbers[:, 0], numbers[:, 1], numbers[:, 2 + asked.entropy :]
    first = firsts.amax(0)
    flat = asked if asked.factors is None else asked._replace(factors=asked.factors.flatten())
    lower = by_torch.steep(firsts - torch.where(first == -torch.inf, 0.0, first), flat)
    weights = seconds * lower.exp()
    second = weights.sum(0)
    entropies = second
    if asked.entropy:
        means = torch.where(weights == 0, 0.0, weights * (numbers[:, 2] + lower))
        entropies = second.log() - means.sum(0) / second
    here = falls != ELSEWHERE
    found = here.any(0)
    shifted = by_torch.steep(falls + by_torch.steep(firsts - first, flat).unsqueeze(1), flat)
    picked = torch.where(here, shifted, 0.0).sum(0) - second.log()
    return _Whole(first, second, entropies, picked, found)
