"""Log-probabilities and their gradient by torch's operators: what tensors on the CPU get, and what defines every result."""

import torch

from portable_softmax.operators import composite
from portable_softmax.operators.call import Asked as AskedSoftmax
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient


def forward(asked: Asked) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes (log-probabilities, numbers of rows).

    Raises:
        IndexError: an id is out of range.
    """
    softmax = AskedSoftmax(
        asked.x, asked.own_dim, asked.compute, factors=asked.factors, factor=asked.factor, divides=asked.divides
    )
    logs, ids = composite.forward("log_softmax", softmax).movedim(asked.own_dim, -1), asked.ids.view(*asked.rows, asked.n_ids)
    ignored, n_cols = ids == asked.ignore_index, logs.shape[-1]
    outside = ~ignored & ((ids < 0) | (ids >= n_cols))
    if outside.any():
        raise IndexError(
            f"token_log_probs(): id {ids[outside][0]} is out of range of {n_cols} columns; give ids from 0 to {n_cols - 1}, "
            f"or ignore_index, {asked.ignore_index}"
        )
    statistics = logs.new_zeros(asked.statistics_shape)
    if n_cols:
        scores = scores_of(asked)
        first = scores.amax(-1)
        fall = steep(scores - torch.where(first == -torch.inf, 0.0, first).unsqueeze(-1), asked, -1)
        statistics[0], statistics[1] = first, fall.exp().sum(-1)
    if asked.entropy:
        statistics[2] = -_weighted(logs).sum(-1)
    if not n_cols:
        return logs.new_zeros(asked.ids.shape), statistics
    chosen = logs.gather(-1, torch.where(ignored, 0, ids))
    return torch.where(ignored, 0, chosen).view(asked.ids.shape), statistics


def backward(given: AskedGradient) -> torch.Tensor:
    """Computes the gradient of x, of its type."""
    asked = given.asked
    dx = composite.scaled(of_scores(given), asked.own_dim, asked.by, asked.divides)
    return dx.to(asked.x.dtype).contiguous()


def of_scores(given: AskedGradient) -> torch.Tensor:
    """Computes the gradient of scores, of x's shape, in the type that is computed in; 0 in greedy rows."""
    asked = given.asked
    (first, second), ids = given.statistics[:2].unsqueeze(-1), asked.ids.view(*asked.rows, asked.n_ids)
    logs = steep(scores_of(asked) - first, asked, -1) - second.log()
    there = (ids != asked.ignore_index) & (ids >= 0) & (ids < logs.shape[-1])
    dpicked = torch.where(there, given.dpicked.view(ids.shape), 0.0)
    by = dpicked.sum(-1, keepdim=True)
    is_constant, probabilities = by == 0, logs.exp()
    ds = -probabilities * by
    if given.dentropy is not None:
        slope = given.dentropy.unsqueeze(-1)
        is_constant = is_constant & (slope == 0)
        ds = ds - slope * (_weighted(logs) + probabilities * given.statistics[2].unsqueeze(-1))
    ds = torch.where(is_constant, 0.0, ds).scatter_add(-1, torch.where(there, ids, 0), dpicked).movedim(-1, asked.own_dim)
    if asked.divides:
        ds = torch.where(composite.along(_factor(asked), asked.own_dim, ds) == 0, 0.0, ds)
    return ds


def of_factors(given: AskedGradient) -> torch.Tensor:
    """Computes the gradient of the factors, of their shape."""
    asked, ds = given.asked, of_scores(given)
    x, factors = asked.x.to(ds.dtype), asked.factors
    assert factors is not None
    x = torch.where(ds == 0, 0.0, x)  # masked logits may be -inf
    if not asked.divides:
        return (ds * x).sum(asked.own_dim)
    divisor = torch.where(factors == 0, 1.0, factors)
    return -(ds * (x / divisor.unsqueeze(asked.own_dim))).sum(asked.own_dim) / divisor


def steep(fall: torch.Tensor, asked: Asked, dim: int | None = None) -> torch.Tensor:
    """Returns differences to a maximum, -inf in place of all below 0 in greedy rows; `dim` is another one than that of rows."""
    if not asked.divides:
        return fall
    greedy = torch.as_tensor(asked.by, device=fall.device) == 0
    greedy = greedy.unsqueeze(dim) if dim is not None and greedy.dim() else greedy
    return torch.where(greedy & (fall < 0), -torch.inf, fall)


def scores_of(asked: Asked) -> torch.Tensor:
    """Returns x, multiplied or divided, in the type that is computed in, its own axis last."""
    return composite.scaled(asked.x.to(asked.compute), asked.own_dim, asked.by, asked.divides).movedim(asked.own_dim, -1)


def _factor(asked: Asked) -> float | torch.Tensor:
    assert asked.by is not None
    return asked.by


def _weighted(logs: torch.Tensor) -> torch.Tensor:
    """Returns p * log(p); 0 where p is 0."""
    return logs.exp() * logs.clamp(min=torch.finfo(logs.dtype).min)
