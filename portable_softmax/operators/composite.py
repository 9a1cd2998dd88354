"""The softmax of scores and its gradient by torch's operators: what tensors on the CPU get, and what defines every result.

A row is greedy if it is divided by 0. It has all its weight on the largest of x among the elements that causal and a mask (-inf
where it is added) leave, shared among equals, whatever cap, sink and the mask's other values are; all its gradients are 0.
"""

from collections.abc import Callable

import torch

from portable_softmax.operators.arguments import wrap_dim
from portable_softmax.operators.call import Asked, AskedGradient
from portable_softmax.planning.scores import Scores

BY_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
}

Factor = float | torch.Tensor | None
INF = float("inf")


def forward(form: str, asked: Asked) -> torch.Tensor:
    """Computes a softmax: by torch's own, if it is that of x, else in a way that is differentiable in every mode."""
    x, mask, sinks, scores = asked.x, asked.mask, asked.sinks, asked.scores
    if not scores:
        return BY_TORCH[form](x, asked.dim, dtype=asked.dtype)
    dim, dtype = wrap_dim(asked.dim, x.dim()), asked.y_dtype
    if not x.numel():
        return x.new_empty(x.shape, dtype=dtype)
    log = form == "log_softmax"
    function, nothing = (torch.log_softmax, -INF) if log else (torch.softmax, 0.0)
    given = input_of(x, dtype)
    values = scores_of(given, dim, scores, mask, asked.by)
    if sinks is None:
        y = function(values, dim)
    else:
        y = function(torch.cat((values, sinks.unsqueeze(dim)), dim), dim).narrow(dim, 0, x.shape[dim])
    if scores.divides:
        greedy = _is_zero(asked.by, dim, given)
        values = torch.where(greedy, torch.where(_left(given, scores, mask), given, -INF), values)
    peak = values.amax(dim, keepdim=True)
    if scores.divides:
        largest = ((values == peak) & (peak.abs() < INF)).to(y.dtype)
        shared = largest / largest.sum(dim, keepdim=True)
        y = torch.where(greedy, shared.log() if log else shared, y)
    if scores.sink or scores.zero_rows:
        y = torch.where(peak == -INF, nothing, y)
    return y.to(dtype).contiguous()


def backward(form: str, asked: AskedGradient) -> torch.Tensor:
    """Computes the gradient of x, without the derivative of softcap: by torch's own, or differentiable in every mode."""
    dy, y, scores = asked.dy, asked.y, asked.scores
    log, dim = form == "log_softmax", wrap_dim(asked.dim, y.dim())
    if not scores:
        by_torch = torch.ops.aten._log_softmax_backward_data if log else torch.ops.aten._softmax_backward_data
        dx: torch.Tensor = by_torch(dy, y, dim, y.dtype).to(asked.x_dtype)
        return dx
    compute = torch.promote_types(y.dtype, torch.float32)
    dy, y = dy.to(compute), y.to(compute)
    dx = dy - y.exp() * dy.sum(dim, keepdim=True) if log else y * (dy - (dy * y).sum(dim, keepdim=True))
    if scores.divides:
        dx = torch.where(_is_zero(asked.by, dim, dx), 0.0, dx)
    dx = scaled(dx, dim, asked.by, scores.divides)
    nothing = -INF if log else 0.0
    if scores.voids:
        dx = torch.where(y > nothing, dx, 0.0)
    elif scores.hides:
        dx = torch.where(y == nothing, 0.0, dx)
    return dx.to(asked.x_dtype).contiguous()


def input_of(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns x rounded to the result's type, in the type that is computed in."""
    return x.to(dtype).to(torch.promote_types(dtype, torch.float32))


def scaled(x: torch.Tensor, dim: int, factor: Factor, divides: bool) -> torch.Tensor:
    """Returns x times the factor, or divided by it; greedy rows as they are."""
    if factor is None:
        return x
    factor = along(factor, dim, x)
    return x / torch.where(factor == 0, 1.0, factor) if divides else x * factor


def scores_of(x: torch.Tensor, dim: int, scores: Scores, mask: torch.Tensor | None, factor: Factor) -> torch.Tensor:
    """Returns the scores of `input_of` x, -inf where a mask hides x; of greedy rows as if these were divided by 1."""
    values = scaled(x, dim, factor, scores.divides)
    if scores.cap is not None:
        values = scores.cap * torch.tanh(values / scores.cap)
    if mask is not None and scores.mask != "bool":
        values = values + mask.to(x.dtype)
    seen = visible(x, scores, mask)
    return values if seen is None else torch.where(seen, values, -INF)


def visible(x: torch.Tensor, scores: Scores, mask: torch.Tensor | None) -> torch.Tensor | None:
    """Returns where a boolean mask and causal leave x, in a shape that broadcasts against it; None for everywhere."""
    seen = mask if scores.mask == "bool" else None
    if scores.causal:
        n_rows, n_cols = x.shape[-2:]
        last = torch.arange(n_rows, device=x.device).unsqueeze(1) + (n_cols - n_rows if scores.causal == "lower_right" else 0)
        below = torch.arange(n_cols, device=x.device) <= last
        seen = below if seen is None else seen & below
    return seen


def along(numbers: float | torch.Tensor, dim: int, x: torch.Tensor) -> torch.Tensor:
    """Returns one number for each row, or one for all, in a shape that broadcasts against x."""
    return numbers.unsqueeze(dim) if isinstance(numbers, torch.Tensor) else x.new_full((), numbers)


def _is_zero(factor: Factor, dim: int, x: torch.Tensor) -> torch.Tensor:
    assert factor is not None
    return along(factor, dim, x) == 0


def _left(x: torch.Tensor, scores: Scores, mask: torch.Tensor | None) -> torch.Tensor:
    """Returns where any mask leaves x."""
    seen = visible(x, scores, mask)
    if mask is not None and scores.mask != "bool":
        finite = mask.to(x.dtype) != -INF
        seen = finite if seen is None else seen & finite
    return torch.ones_like(x, dtype=torch.bool) if seen is None else seen
