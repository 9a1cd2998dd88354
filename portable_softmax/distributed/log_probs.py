"""Log-probabilities of tokens where each rank of a process group holds a part of the vocabulary.

Each rank reads its part once, and gathers a few numbers of each row from the others. What it gets is of whole rows, the same on
all ranks; so a loss is computed alike on each, and each has the gradient of its own part without another collective.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.distributed import get_rank

from portable_softmax.distributed.entry import named as named_groups
from portable_softmax.distributed.exchange import SUM, Groups, gathered, over
from portable_softmax.operators.log_probs import by_torch
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient
from portable_softmax.operators.log_probs.call import Found, Given, check_out, named, read
from portable_softmax.operators.log_probs.launching import backward
from portable_softmax.operators.log_probs.library import backward_operator, contiguous, operator

NAME = "token_log_probs"
NONE = -(2**62)  # stands for an id that no part holds
ELSEWHERE = 1.0  # in place of a score less its maximum, which is never above 0


def sharded(x: Any, ids: Any, given: Given, out: Any, groups: Sequence[Any], vocab_start: int | None) -> Found:
    """Computes log-probabilities, or a tuple of them, entropies and ranks, of logits that are this rank's part.

    Every rank calls it with the same arguments but for logits, and with ids of the whole vocabulary.

    Args:
        x, ids, given, out: as api.log_probs.token_log_probs takes them.
        groups: process groups whose ranks together hold each row.
        vocab_start: the id of this rank's first column; None where all ranks of a single group have as many.

    Raises:
        TypeError: a group is something else.
        RuntimeError: the cases of `out`; a temperature needs a gradient; or a rank is lost, as torch.distributed finds it.
        ValueError: calls differ, in the cases of entry.sharded.
    """
    asked = read(x, ids, given)
    if any(each.requires_grad for each in asked.numbers):
        raise RuntimeError(f"{NAME}() of a shard has no gradient of its scale or temperature; give them detached")
    if out is not None:
        check_out(out, asked)
    told = f"{NAME} of {asked.x.dtype} along dim {asked.own_dim}, ids {[*ids.shape]}, {given.entropy=}, {given.rank=}"
    several = named_groups(groups, told, asked.x, asked.own_dim)
    start = get_rank(groups[0]) * asked.x.shape[asked.own_dim] if vocab_start is None else vocab_start
    rest = asked._replace(x=None, ids=None, factors=None)  # type: ignore[arg-type]
    found: Found = _Sharded.apply(asked.x, asked.ids, asked.factors, rest, start, several, given.grad_inplace)
    if out is None:
        return found
    picked, *more = found if isinstance(found, tuple) else (found,)
    return (out.copy_(picked), *more) if more else out.copy_(picked)


class _Sharded(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, ids: torch.Tensor, factors: torch.Tensor | None, rest: Asked, start: int, groups: Groups,
        in_place: bool,
    ) -> Found:  # fmt: skip
        asked = rest._replace(x=x, ids=ids, factors=factors)
        statistics, picked, found, scores = _combined(gathered(_numbers(asked, start), groups), asked)
        by_id = ids.reshape(-1, asked.n_ids)
        ignored = by_id == asked.ignore_index
        picked = torch.where(ignored, 0.0, torch.where(found, picked, float("nan")))
        local = torch.where(found & ~ignored, by_id - start, NONE).view(ids.shape)
        statistics, ranks = statistics.view(asked.statistics_shape), None
        if asked.rank:
            above = by_torch.count_above(_scores(asked), scores.reshape(*asked.rows, asked.n_ids))
            ranks = torch.where(local == NONE, 0, over(SUM, above.view(ids.shape), groups))
            ctx.mark_non_differentiable(ranks)
        ctx.save_for_backward(x, local, statistics, factors)
        ctx.rest, ctx.in_place = rest, in_place
        return named(asked, picked.view(ids.shape), statistics.clone(), ranks)

    @staticmethod
    def backward(ctx: Any, dpicked: torch.Tensor, *more: torch.Tensor) -> tuple[Any, ...]:
        x, ids, statistics, factors = ctx.saved_tensors
        rest = ctx.rest
        dentropy = more[0] if rest.entropy else None
        given = AskedGradient(
            x, ids, statistics, dpicked, dentropy, rest.dim, factors, rest.factor, rest.divides, NONE, shard=True
        )
        traced = is_dynamo_compiling() or torch.is_grad_enabled()
        dx = backward_operator(*given) if traced else backward(contiguous(given), ctx.in_place)
        return dx, *[None] * 6


def _numbers(asked: Asked, start: int) -> torch.Tensor:
    """Returns the numbers of this rank's part: [1, 2 or 3, and one or two for each id, n_rows].

    They are maximum, sum, with the entropy the mean of x - maximum; for each id x - maximum, or ELSEWHERE; for ranks x, or 0.
    """
    x, ids = asked.x, asked.ids
    n_cols = x.shape[asked.own_dim]
    here = (ids != asked.ignore_index) & (ids >= start) & (ids < start + n_cols)
    if n_cols:
        local = asked._replace(ids=torch.where(here, ids - start, NONE), ignore_index=NONE, rank=False)
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
    here = here.reshape(-1, asked.n_ids)
    falls = torch.where(here, chosen, ELSEWHERE)
    means = [torch.where(second > 0, log - each, 0.0) for each in entropies]
    scores = torch.zeros_like(falls)
    if asked.rank and n_cols:
        at = torch.where(here, ids.reshape(-1, asked.n_ids) - start, 0).view(*asked.rows, asked.n_ids)
        scores = torch.where(here, _scores(asked).gather(-1, at).reshape(-1, asked.n_ids).to(falls.dtype), scores)
    by_id = [*falls.unbind(1), *(scores.unbind(1) if asked.rank else ())]
    return torch.stack([first, second, *means, *by_id]).unsqueeze(0)


def _scores(asked: Asked) -> torch.Tensor:
    """Returns what ranks compare, its own axis last: logits themselves where nothing multiplies them, which are not copied."""
    return asked.x.movedim(asked.own_dim, -1) if asked.by is None else by_torch.scores_of(asked)


def _combined(numbers: torch.Tensor, asked: Asked) -> tuple[torch.Tensor, ...]:
    """Returns what rows come to, from the numbers of all ranks' parts: [ranks, ..., n_rows].

    These are statistics, [2 or 3, n_rows]; and of ids log-probabilities, whether a rank has them, and with ranks their scores,
    [n_rows, n_ids] each.
    """
    firsts, seconds, by_id = numbers[:, 0], numbers[:, 1], numbers[:, 2 + asked.entropy :]
    falls, scores = by_id[:, : asked.n_ids], by_id[:, asked.n_ids :]
    first = firsts.amax(0)
    flat = asked if asked.factors is None else asked._replace(factors=asked.factors.flatten())
    lower = by_torch.steep(firsts - torch.where(first == -torch.inf, 0.0, first), flat)
    weights = seconds * lower.exp()
    second = weights.sum(0)
    statistics = [first, second]
    if asked.entropy:
        means = torch.where(weights == 0, 0.0, weights * (numbers[:, 2] + lower))
        statistics.append(second.log() - means.sum(0) / second)
    here = falls != ELSEWHERE
    shifted = by_torch.steep(falls + by_torch.steep(firsts - first, flat).unsqueeze(1), flat)
    picked = torch.where(here, shifted, 0.0).sum(0) - second.log()
    return torch.stack(statistics), picked.t(), here.any(0).t(), scores.sum(0).t()
