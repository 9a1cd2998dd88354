"""Definition of every result, by PyTorch operators that are differentiable in every mode; computes what no launch does.

Scores are c * tanh(scale * x / c) / temperature, then the mask. A row of temperature 0 is greedy: all its weight is on the
largest score that the mask leaves, shared among equals, and its gradients are 0.
"""

from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators.checks import Factor, with_size

INF = float("inf")
FUNCTIONS = {False: (torch.softmax, 0.0), True: (torch.log_softmax, -INF)}  # and the result of what has no weight
LOW = 0xFFFFFFFF
GROUP = 8  # columns that share noise, as in kernels


def softmax(args: Any, options: Any) -> Tensor:
    """Computes softmax or log_softmax of scores."""
    (x, mask, scale, temperature, sink), (softcap, log, dim, dtype, causal, zero_rows) = args, options
    if not x.dim():
        return softmax(args._replace(x=x[None]), options)[0]
    function, nothing = FUNCTIONS[log]
    if mask is sink is scale is temperature is softcap is None and not causal and not zero_rows:
        return function(x, dim, dtype=dtype).contiguous()
    x = x.to(dtype).to(torch.promote_types(dtype, torch.float32))
    values, unshared, greedy = weighted(x, args, softcap, dim, has_voids(args, options), causal)
    empty, hides = (unshared == -INF).all(dim, keepdim=True), zero_rows or sink is not None
    if hides:
        values = torch.where(empty, 0.0, values)  # gradients of empty rows are 0, not 0 * nan
    if sink is not None:
        sink = sink.to(x.dtype) if greedy is None else torch.where(greedy, -INF, sink.to(x.dtype))
        values = torch.cat((values, sink.expand(with_size(x, dim, 1))), dim)
    y = function(values, dim).narrow(dim, 0, x.shape[dim])
    if hides:
        y = torch.where(empty, nothing, y)
    return y.to(dtype).contiguous()


def softmax_gradient(args: Any, options: Any) -> Tensor:
    """Computes the gradient of x from that of y; with `voids` 0 where y has no weight."""
    (dy, y, x, scale, temperature), (softcap, log, dim, voids, dtype) = args, options
    compute = torch.promote_types(y.dtype, torch.float32)
    dy, y, nothing = dy.to(compute), y.to(compute), FUNCTIONS[log][1]
    d = dy - y.exp() * dy.sum(dim, keepdim=True) if log else y * (dy - (dy * y).sum(dim, keepdim=True))
    dx = _chained(d, x, scale, temperature, softcap)
    if voids:
        dx = torch.where(y > nothing, dx, 0.0)
    return dx.to(dtype).contiguous()


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
    has_sink, is_causal = getattr(args, "sink", None) is not None, bool(getattr(options, "causal", None))
    return hides or has_sink or is_causal or options.zero_rows


def weighted(
    x: Tensor, args: Any, softcap: float | None, dim: int, voids: bool, causal: str | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns (what the softmax is of, with gradients as in softmax_gradient; scores behind the mask; greedy rows or None)."""
    if voids:
        x = torch.where(x.isnan(), torch.nan, x)  # without a gradient, as that of tanh would be 0 * nan
    values, greedy = scores(x, getattr(args, "scale", None), args.temperature, softcap)
    mask = args.mask
    if mask is not None and mask.is_floating_point():
        added = values + mask.to(x.dtype)
        values = added if greedy is None else torch.where(greedy, torch.where(mask == -INF, -INF, values), added)
    elif mask is not None:
        values = torch.where(kept(mask, x.shape[dim], dim - x.dim()), values, -INF)
    if causal:
        n_rows, n_cols = x.shape[-2:]
        ahead = {"upper_left": 0, "lower_right": n_cols - n_rows}[causal]
        values = torch.where(x.new_ones((n_rows, n_cols), dtype=torch.bool).tril(ahead), values, -INF)
    unshared = values
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
    scale, temperature = (f.to(x.dtype) if isinstance(f, Tensor) else f for f in (scale, temperature))
    if scale is not None:
        x = x * scale
    if temperature is None:
        return (x if softcap is None else softcap * torch.tanh(x / softcap)), None
    t = torch.ones_like(x[(slice(1),) * x.dim()]) * temperature
    greedy = t == 0
    if softcap is not None:  # not of greedy rows: it makes large ones alike, and their gradient would be 0 * nan
        capped = softcap * torch.tanh(torch.where(greedy, 0.0, x) / softcap)
        x = torch.where(greedy, x.nan_to_num(nan=torch.nan), capped)
    return x / torch.where(greedy, 1.0, t), greedy


def kept(mask: Tensor, size: int, dim: int) -> Tensor:
    """Returns which elements along dim a mask keeps, which is boolean, or words with a bit for each of 32, the lowest first."""
    if mask.dtype is torch.bool:
        return mask
    bits = (mask.movedim(dim, -1).unsqueeze(-1) >> torch.arange(32, device=mask.device)) & 1
    return bits.flatten(-2).narrow(-1, 0, size).bool().movedim(-1, dim)


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


def _rows(args: Any, options: Any) -> tuple[Any, Any, Tensor]:
    """Returns ids as [..., K], which are tokens, which are ignored; results of `weighted`; which rows have no gradient."""
    x, dim = args.x, options.dim
    ids = args.ids.to(torch.int64).reshape([*with_size(x, dim), *(args.ids.shape[x.dim() - 1 :] or (1,))])
    ignored = ids == options.ignore_index
    is_token = (ids >= 0) & (ids < x.shape[dim]) & ~ignored
    frozen = ignored.all(-1, keepdim=True)
    if options.entropy or options.lse:
        frozen = torch.zeros_like(frozen)
    x = torch.where(frozen.movedim(-1, dim), 0.0, x.to(torch.promote_types(x.dtype, torch.float32)))  # whatever they hold
    values, unshared, greedy = weighted(x, args, options.softcap, dim, has_voids(args, options))
    values, unshared = values.movedim(dim, -1), unshared.movedim(dim, -1)
    if greedy is not None:
        greedy = greedy.movedim(dim, -1)
    if args.mask is not None:  # rows that it empties, as in kernels
        frozen = frozen | (unshared == -INF).all(-1, keepdim=True)
    values = torch.where(frozen, values.detach(), values)
    return (torch.where(is_token, ids, 0), is_token, ignored), (values, unshared, greedy), frozen


def log_probs(args: Any, options: Any) -> tuple[Tensor, Tensor]:
    """Computes log-probabilities of ids, and statistics: logsumexp, its rounding error of 0, entropies if requested."""
    (ids, is_token, ignored), (values, unshared, greedy), _ = _rows(args, options)
    logs, total = values.log_softmax(-1), values.logsumexp(-1)
    if greedy is not None:
        peak = scores(unshared.detach().amax(-1, keepdim=True), None, None, options.softcap)[0]
        total = total + torch.where(greedy, peak, 0.0).squeeze(-1)
    total = torch.where((unshared == INF).any(-1), INF, total)  # whatever else they hold
    if options.zero_rows:
        logs = torch.where((unshared == -INF).all(-1, keepdim=True), -INF, logs)
    picked = torch.where(is_token, logs.gather(-1, ids), torch.where(ignored, 0.0, torch.nan))
    statistics = [total, torch.zeros_like(total)]
    if not options.lse:
        statistics[0] = total.detach()
    if options.entropy:
        statistics.append(-(logs.exp() * logs.clamp(min=-1000)).sum(-1))  # exp(-1000) is 0
    return picked.reshape(args.ids.shape).contiguous(), torch.stack(statistics)


def log_probs_gradient(args: Any, options: Any) -> Tensor:
    """Computes the gradient of x from those of log-probabilities and statistics; 0 where `log_probs` has none."""
    (ids, is_token, _), (values, *_), frozen = _rows(args, options)
    logs = values.log_softmax(-1)
    p = logs.exp()
    d = torch.zeros_like(logs).scatter_add(-1, ids, torch.where(is_token, args.d_out.reshape(ids.shape), 0.0))
    if args.d_entropy is not None:
        d = d - args.d_entropy.unsqueeze(-1) * p * (logs.clamp(min=-1000) + 1)
    total = d.sum(-1, keepdim=True)
    if args.d_lse is not None:
        total = total - args.d_lse.unsqueeze(-1)
    if has_voids(args, options):
        frozen = frozen | ~(logs > -INF)
    d, frozen = (d - p * total).movedim(-1, options.dim), frozen.movedim(-1, options.dim)
    dx = _chained(d, args.x, args.scale, args.temperature, options.softcap)
    return torch.where(frozen, 0.0, dx).to(args.x.dtype).contiguous()


def differentiate(function: Any, args: Any, options: Any, needs: Any, dresults: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns gradients of function(args, options) for arguments that need one, differentiable where autograd records them."""
    leaves = {name: t for name, t, needs_gradient in zip(args._fields, args, needs, strict=False) if needs_gradient}

    def used(leaves: dict[str, Tensor]) -> tuple[Tensor, ...]:
        results = function(args._replace(**leaves), options)
        if isinstance(results, Tensor):
            results = (results,)
        return tuple(y for y, dy in zip(results, dresults, strict=True) if dy is not None)

    (gradients,) = torch.func.vjp(used, leaves)[1](tuple(dy for dy in dresults if dy is not None))
    return tuple(gradients.get(name) for name in args._fields)
