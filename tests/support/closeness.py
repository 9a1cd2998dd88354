"""Results in float64 of each form, with all that a call is given, and of gradients; portable_probe says what is close."""

import torch

from portable_probe.closeness import worst_error

INF = float("inf")


def assert_close(result, exact, terms=0.0):
    worst = worst_error(result, exact, terms)
    assert worst <= 1, f"an error of {worst:.3g} of what is allowed"


def logits(form, x, dim=-1, *, scale=None, temperature=None, mask=None, causal=False, softcap=None, compute=torch.float64):
    """Returns (what the softmax is of, along the last dim, -inf where it is hidden; which rows are greedy), differentiable.

    Each step rounds to the type that is computed in. Of a greedy row, the largest are 0 and all others -inf.
    """

    def along(given):
        given = torch.as_tensor(given, dtype=None if isinstance(given, torch.Tensor) else compute, device=x.device)
        given = given.to(compute) if given.is_floating_point() else given
        return given.reshape((1,) * (x.dim() - given.dim()) + given.shape).movedim(dim, -1)

    u = along(x.to(compute)) * (-1 if form == "softmin" else 1)
    u = u if scale is None else u * along(scale)
    zero = torch.zeros((), dtype=torch.bool, device=x.device) if temperature is None else along(temperature) == 0
    v = u if softcap is None else (softcap * torch.tanh(u.double() / softcap)).to(compute)  # a greedy row is not capped
    u = u if softcap is None else u.clamp(-3e38, 3e38)  # but its infinities are finite
    z = v if temperature is None else v / torch.where(zero, 1.0, along(temperature))
    hidden = torch.zeros_like(u, dtype=torch.bool)
    if causal:
        ahead = u.shape[-1] - u.shape[-2] if causal == "lower_right" else 0
        hidden = ~torch.ones_like(hidden).tril(ahead)
    if mask is not None and mask.dtype == torch.bool:
        hidden = hidden | ~along(mask)
    elif mask is not None:
        z, out = z + along(mask), along(mask) == -INF
        z, u = z.masked_fill(out & ~z.isnan(), -INF), u.masked_fill(out, -INF)  # so that no gradient comes from there
    z = z.double().masked_fill(hidden, -INF)
    if not zero.any():
        return z, zero
    u = u.detach().masked_fill(hidden, -INF)
    top = u.amax(-1, keepdim=True)
    winners = torch.where(u == top, 0.0, -INF).masked_fill(top.isnan() | (top == INF), torch.nan).masked_fill(u == -INF, -INF)
    return torch.where(zero, winners.double(), z), zero


def expected(form, x, dim=-1, *, sink=None, masked_rows="nan", **steps):
    """Returns the result in float64, differentiable; arguments are those of a call, and `compute` of `logits`."""
    if sink is None and masked_rows == "nan" and not steps:
        exact = -x.double() if form == "softmin" else x.double()
        return (torch.log_softmax if form == "log_softmax" else torch.softmax)(exact, dim)
    z, zero = logits(form, x, dim, **steps)
    every = z if sink is None else torch.cat((z, torch.where(zero, -INF, sinks_of(sink, x, dim)).expand(*z.shape[:-1], 1)), -1)
    y = (torch.log_softmax if form == "log_softmax" else torch.softmax)(every, -1)[..., : z.shape[-1]]
    if sink is not None or masked_rows == "zero":
        y = torch.where((z == -INF).all(-1, keepdim=True), -INF if form == "log_softmax" else 0.0, y)
    return y.movedim(-1, dim)


def sinks_of(sink, x, dim):
    """Returns sinks in float64, of a shape that has 1 as the last; one number for each head stands ahead of two dims."""
    sink = torch.as_tensor(sink, dtype=torch.float64, device=x.device)
    sink = sink.view(-1, 1, 1) if sink.dim() == 1 and x.dim() > 2 else sink
    return sink.reshape((1,) * (x.dim() - sink.dim()) + sink.shape).movedim(dim, -1)
