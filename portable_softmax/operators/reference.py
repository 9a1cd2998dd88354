"""Definition of every result, by PyTorch operators that are differentiable in every mode; computes what no launch does.

Scores are c * tanh(scale * x / c) / temperature, then the mask. A row of temperature 0 is greedy: all its weight is on the
largest score that the mask leaves, shared among equals, and its gradients are 0.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators.arguments import Factor

INF = float("inf")
LOW = 0xFFFFFFFF
GROUP = 8  # columns that share noise, as in kernels


def softmax(args: Any, options: Any) -> Tensor:
    """Computes softmax or log_softmax of scores."""
    (x, mask, scale, temperature, sink), (softcap, log, dim, dtype, causal, zero_rows) = args, options
    if not x.dim():
        return softmax(args._replace(x=x[None]), options)[0]
    function, nothing = (torch.log_softmax, -INF) if log else (torch.softmax, 0.0)
    if mask is sink is scale is temperature is softcap is None and not causal and not zero_rows:
        return function(x, dim, dtype=dtype)
    x = x.to(dtype).to(torch.promote_types(dtype, torch.float32))
    values, unshared, greedy = weighted(x, args, softcap, dim, has_voids(args, options), causal)
    if zero_rows or sink is not None:
        empty = (unshared == -INF).all(dim, keepdim=True)
        values = torch.where(empty, 0.0, values)  # their gradients are 0, not 0 * nan
    if sink is None:
        y = function(values, dim)
    else:
        sink = sink.to(x.dtype) if greedy is None else torch.where(greedy, -INF, sink.to(x.dtype))
        shape = [1 if at == dim else size for at, size in enumerate(x.shape)]
        y = function(torch.cat((values, sink.expand(shape)), dim), dim).narrow(dim, 0, x.shape[dim])
    if zero_rows or sink is not None:
        y = torch.where(empty, nothing, y)
    return y.to(dtype).contiguous()


def softmax_gradient(args: Any, options: Any) -> Tensor:
    """Computes the gradient of x from that of y; with `voids` 0 where y has no weight."""
    (dy, y, x, scale, temperature), (softcap, log, dim, voids, dtype) = args, options
    compute = torch.promote_types(y.dtype, torch.float32)
    dy, y = dy.to(compute), y.to(compute)
    dx = dy - y.exp() * dy.sum(dim, keepdim=True) if log else y * (dy - (dy * y).sum(dim, keepdim=True))
    dx = _chained(dx, x, scale, temperature, softcap)
    if voids:
        dx = torch.where(y > (-INF if log else 0.0), dx, 0.0)
    return dx.to(dtype)


def _chained(d: Tensor, x: Tensor | None, scale: Factor, temperature: Factor, softcap: float | None) -> Tensor:
    """Returns the gradient of x from that of scores, which is 0 in greedy rows; x is read for a softcap alone."""
    if x is not None and softcap is not None:
        d = d * (1 - (scores(x.to(d.dtype), scale, None, softcap)[0] / softcap).square())
    if scale is not None:
        d = d * scale
    if temperature is not None:
        t = torch.as_tensor(temperature, dtype=d.dtype, device=d.device)
        d = torch.where(t == 0, 0.0, d / torch.where(t == 0, 1.0, t))
    return d


def has_voids(args: Any, options: Any) -> bool:
    """True if elements may have no weight; their gradients are 0, whatever the gradient of the result is."""
    hides = args.mask is not None and not args.mask.is_floating_point()  # an added mask leaves gradients to torch's rule
    shares = getattr(args, "sink", None) is not None
    return hides or shares or bool(getattr(options, "causal", None)) or options.zero_rows


def weighted(
    x: Tensor, args: Any, softcap: float | None, dim: int, voids: bool, causal: str | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns (what the softmax is of, scores behind the mask, which rows are greedy or None).

    With voids, gradients are 0 where elements have no weight, as in softmax_gradient.
    """
    if voids:
        x = torch.where(x.isnan(), torch.nan, x)  # without a gradient, as that of tanh would be 0 * nan
    values, greedy = scores(x, getattr(args, "scale", None), args.temperature, softcap)
    values = unshared = masked(values, args.mask, greedy, causal, dim)
    if (greedy is None and not voids) or not x.shape[dim]:
        return values, unshared, greedy
    peak = values.detach().amax(dim, keepdim=True)
    if greedy is not None:
        # The largest are 0 and all others -inf: a softmax of these shares the weight, and has no gradient.
        largest = torch.where((values == peak) & (peak.abs() < INF), 0.0, torch.where(values.isnan(), values, -INF))
        values = torch.where(greedy, largest.detach(), values)
    if voids:
        values = torch.where((values > -INF) & (peak.abs() < INF), values, values.detach())
    return values, unshared, greedy


def scores(x: Tensor, scale: Factor, temperature: Factor, softcap: float | None) -> tuple[Tensor, Tensor | None]:
    """Returns (scores ahead of the mask, which rows are greedy or None); those of greedy rows are not divided, nor capped."""
    if scale is not None:
        x = x * (scale.to(x.dtype) if isinstance(scale, Tensor) else scale)
    if temperature is None:
        return (x if softcap is None else softcap * torch.tanh(x / softcap)), None
    t = temperature.to(x.dtype) if isinstance(temperature, Tensor) else x.new_full((), temperature)
    t = t[(None,) * (x.dim() - t.dim())]
    greedy = t == 0
    if softcap is not None:  # not of greedy rows: it makes large ones alike, and their gradient would be 0 * nan
        capped = softcap * torch.tanh(torch.where(greedy, 0.0, x) / softcap)
        x = torch.where(greedy, x.nan_to_num(nan=torch.nan), capped)
    return x / torch.where(greedy, 1.0, t), greedy


def masked(values: Tensor, mask: Tensor | None, greedy: Tensor | None, causal: str | None, dim: int) -> Tensor:
    """Returns scores with a mask, and -inf where it is boolean or in bits, or causal, and hides them."""
    if mask is not None and mask.dtype.is_floating_point:
        added = mask.to(values.dtype)
        values = values + (added if greedy is None else torch.where(greedy & (added > -INF), 0.0, added))
    elif mask is not None:
        kept = mask if mask.dtype is torch.bool else unpacked(mask, values.shape[dim], dim - values.dim())
        values = torch.where(kept, values, -INF)
    if causal:
        n_rows, n_cols = values.shape[-2:]
        rows, columns = (values.new_ones(size, dtype=torch.int64).cumsum(0) for size in (n_rows, n_cols))  # of its class
        visible = columns <= rows.unsqueeze(1) + (n_cols - n_rows if causal == "lower_right" else 0)
        values = torch.where(visible, values, -INF)
    return values


def unpacked(words: Tensor, size: int, dim: int) -> Tensor:
    """Returns the bits of words of 32 along dim, the lowest first, as a boolean tensor with so many of them."""
    bits = (words.movedim(dim, -1).unsqueeze(-1) >> torch.arange(32, device=words.device)) & 1
    return bits.flatten(-2).narrow(-1, 0, size).bool().movedim(-1, dim)


def keeps(ids: Tensor, size: int) -> Tensor:
    """Returns a boolean mask [..., size] of ids [..., K]; those that are no element keep none."""
    at = torch.where((ids >= 0) & (ids < size), ids, size).to(torch.int64)
    none = torch.zeros((*ids.shape[:-1], size + 1), dtype=torch.bool, device=ids.device)
    return none.scatter(-1, at, True)[..., :-1]


def sample(args: Any, options: Any) -> tuple[Tensor, Tensor]:
    """Draws (ids, log-probabilities) by the noise of the kernels."""
    x, _, _, min_p, *keys = args
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    seed, position = (torch.as_tensor(key, dtype=torch.int64, device=x.device).expand(x.shape[:-1]) for key in keys)
    weights, values, greedy = weighted(x, args, options.softcap, x.dim() - 1, False)
    peak = values.amax(-1, keepdim=True)
    greedy = torch.zeros_like(peak, dtype=torch.bool) if greedy is None else greedy.expand(peak.shape)
    ids = _drawn(values, greedy, seed, position, 0)
    if min_p is not None:
        least = peak + torch.as_tensor(min_p, dtype=x.dtype, device=x.device).log()
        others = _drawn(torch.where(values < least, -INF, values), greedy, seed, position, 2)
        is_rejected = (values.gather(-1, ids.unsqueeze(-1)) < least) & (least <= peak)
        ids = torch.where(is_rejected.squeeze(-1), others, ids)
    none = (values.isnan().any(-1, keepdim=True) | (peak.abs() == INF)).squeeze(-1)
    picked = weights.log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    return torch.where(none, -1, ids), torch.where(none, torch.nan, picked)


def _drawn(values: Tensor, greedy: Tensor, seed: Tensor, position: Tensor, purpose: int) -> Tensor:
    """Returns ids: of the columns of the group with the largest noisy logsumexp, the one with the largest noisy score."""
    padded = torch.nn.functional.pad(values, (0, -values.shape[-1] % GROUP), value=-INF)
    groups = padded.unflatten(-1, (-1, GROUP))
    number = torch.arange(groups.shape[-2], device=values.device)
    noisy = torch.where(greedy, groups.amax(-1), groups.logsumexp(-1) + gumbel(number, seed, position, purpose, values.dtype))
    group = noisy.argmax(-1, keepdim=True)
    columns = group * GROUP + torch.arange(GROUP, device=values.device)
    own = padded.gather(-1, columns)
    noise = gumbel(columns, seed, position, purpose + 1, values.dtype)
    at = torch.where(greedy, own, own + noise).argmax(-1, keepdim=True)
    return columns.gather(-1, at).squeeze(-1).clamp(max=values.shape[-1] - 1)


def gumbel(number: Tensor, seed: Tensor, position: Tensor, purpose: int, dtype: torch.dtype) -> Tensor:
    """Returns Gumbel noise [..., n], by Philox4x32 with the counter (number, position, purpose) and the key seed."""
    seed, position = seed.unsqueeze(-1), position.unsqueeze(-1)
    counter = number, position & LOW, position >> 32 & LOW, number * 0 + purpose
    word = philox(counter, (seed & LOW, seed >> 32 & LOW))[0]
    v = (word.to(torch.float64) + 0.5) / 2**32
    return -(-torch.log1p(-v)).log().to(dtype)


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, ...], rounds: int = 7) -> tuple[Tensor, ...]:
    """Returns the four words of 32 bits of Philox4x32, all as int64, in which products wrap."""
    a, b, c, d = counter
    for turn in range(rounds):
        keys = [word + turn * step & LOW for word, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)]
        of_a, of_c = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (of_c >> 32 & LOW) ^ b ^ keys[0], of_c & LOW, (of_a >> 32 & LOW) ^ d ^ keys[1], of_a & LOW
    return a, b, c, d


def _tokens(args: Any, options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Returns ids as [..., K], which of them are tokens of the row, and which are ignored."""
    x, dim = args.x, options.dim
    ids = args.ids.to(torch.int64).reshape([*x.shape[:dim], *x.shape[dim + 1 :], *(args.ids.shape[x.dim() - 1 :] or (1,))])
    ignored = ids == options.ignore_index
    is_token = (ids >= 0) & (ids < x.shape[dim]) & ~ignored
    return torch.where(is_token, ids, 0), is_token, ignored


def _weighted_rows(args: Any, options: Any, ignored: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Returns results of `weighted` with tokens in the last dimension, and rows without a gradient, whatever they hold."""
    dim, frozen = options.dim, ignored.all(-1, keepdim=True) & (not options.entropy and not options.lse)
    x = args.x.to(torch.promote_types(args.x.dtype, torch.float32))
    x = torch.where(frozen.movedim(-1, dim), 0.0, x)
    values, unshared, greedy = weighted(x, args, options.softcap, dim, has_voids(args, options))
    values, unshared = values.movedim(dim, -1), unshared.movedim(dim, -1)
    if greedy is not None:
        greedy = greedy.movedim(dim, -1)
    if args.mask is not None:  # rows that it empties, as in kernels
        frozen = frozen | (unshared == -INF).all(-1, keepdim=True)
    return torch.where(frozen, values.detach(), values), unshared, greedy, frozen


def log_probs(args: Any, options: Any) -> tuple[Tensor, Tensor]:
    """Computes log-probabilities of ids, and statistics: logsumexp, its rounding error of 0, entropies if requested."""
    many, is_token, ignored = _tokens(args, options)
    values, unshared, greedy, _ = _weighted_rows(args, options, ignored)
    others = torch.where(ignored, 0.0, torch.nan)  # log-probabilities of ids that are no token
    if not values.shape[-1]:
        zeros = values.sum(-1)
        picked = zeros.unsqueeze(-1) + others
        return picked.to(values.dtype).reshape(args.ids.shape), torch.stack([zeros - INF, zeros, zeros][: 2 + options.entropy])
    logs, total = values.log_softmax(-1), values.logsumexp(-1)
    if greedy is not None:
        peak = scores(unshared.detach().amax(-1, keepdim=True), None, None, options.softcap)[0]
        total = total + torch.where(greedy, peak, 0.0).squeeze(-1)
    total = torch.where((unshared == INF).any(-1), INF, total)  # whatever else they hold
    if options.zero_rows:
        logs = torch.where((unshared == -INF).all(-1, keepdim=True), -INF, logs)
    picked = torch.where(is_token, logs.gather(-1, many), others).reshape(args.ids.shape)
    statistics = [total if options.lse else total.detach(), torch.zeros_like(total)]
    if options.entropy:
        statistics.append(-(logs.exp() * logs.clamp(min=-1000)).sum(-1))  # exp(-1000) is 0
    return picked.contiguous(), torch.stack(statistics)


def log_probs_gradient(args: Any, options: Any) -> Tensor:
    """Computes the gradient of x from those of log-probabilities and statistics; 0 where `log_probs` has none."""
    many, is_token, ignored = _tokens(args, options)
    values, _, _, frozen = _weighted_rows(args, options, ignored)
    logs = values.log_softmax(-1)
    p = logs.exp()
    d = torch.zeros_like(logs).scatter_add(-1, many, torch.where(is_token, args.d_out.reshape(many.shape), 0.0))
    if args.d_entropy is not None:
        d = d - args.d_entropy.unsqueeze(-1) * p * (logs.clamp(min=-1000) + 1)
    d = d - p * d.sum(-1, keepdim=True)
    if args.d_lse is not None:
        d = d + args.d_lse.unsqueeze(-1) * (values - values.logsumexp(-1, keepdim=True)).exp()
    if has_voids(args, options):
        frozen = frozen | ~(logs > -INF)
    dx = _chained(d.movedim(-1, options.dim), args.x, args.scale, args.temperature, options.softcap)
    return torch.where(frozen.movedim(-1, options.dim), 0.0, dx).to(args.x.dtype).contiguous()


def differentiate(
    function: Callable[..., Any], args: Any, options: Any, needs: tuple[bool, ...], dresults: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Returns gradients of function(args, options) for arguments that need one, differentiable where autograd records them."""
    leaves = {name: t for name, t, needs_gradient in zip(args._fields, args, needs, strict=True) if needs_gradient}

    def used(leaves: dict[str, Tensor]) -> tuple[Tensor, ...]:
        results = function(args._replace(**leaves), options)
        results = (results,) if isinstance(results, Tensor) else results
        return tuple(y for y, dy in zip(results, dresults, strict=True) if dy is not None)

    (gradients,) = torch.func.vjp(used, leaves)[1](tuple(dy for dy in dresults if dy is not None))
    return tuple(gradients.get(name) for name in args._fields)
