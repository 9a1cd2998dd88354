"""Every result of the kernels in float64, with the error that each element may have.

A float32 result may be 3.2 units of 2**-23 off, and one of 16 bits is that number rounded once. A difference of scores
is rounded before it is an exponent, so its size comes on top, unless differences are exact (`loose` is 0 for such rows).
"""

import torch

from portable_probe.closeness import worst_error

INF = float("inf")
EPS = 2.0**-23
UNITS = 3.2
TINY = 4 * torch.finfo(torch.float32).tiny  # smaller numbers may be flushed to 0, ahead of a last factor too
IGNORED = -7


def assert_close(result, exact, terms=0.0):
    worst = worst_error(result, exact, terms)
    assert worst <= 1, f"an error of {worst:.3g} of what is allowed"


def logits(form, x, dim=-1, *, scale=None, temperature=None, mask=None, causal=False, softcap=None, compute=torch.float64):
    """Returns (what the softmax is of, along the last dim, -inf where it is hidden; which rows are greedy), differentiable.

    Each step rounds to the type that is computed in. Of a greedy row, the largest are 0 and all others -inf.
    """

    def along(factor):
        factor = torch.as_tensor(factor, dtype=None if isinstance(factor, torch.Tensor) else compute, device=x.device)
        factor = factor.to(compute) if factor.is_floating_point() else factor
        return factor.reshape((1,) * (x.dim() - factor.dim()) + factor.shape).movedim(dim, -1)

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
    z, zero = logits(form, x, dim, **steps)
    every = z if sink is None else torch.cat((z, torch.where(zero, -INF, sinks_of(sink, x, dim)).expand(*z.shape[:-1], 1)), -1)
    y = (torch.log_softmax if form == "log_softmax" else torch.softmax)(every, -1)[..., : z.shape[-1]]
    if sink is not None or masked_rows == "zero":
        y = torch.where((z == -INF).all(-1, keepdim=True), -INF if form == "log_softmax" else 0.0, y)
    return y.movedim(-1, dim)


def sinks_of(sink, x, dim):
    """Returns sinks in float64, of a shape that has 1 as the last; one number per head precedes two dims."""
    sink = torch.as_tensor(sink, dtype=torch.float64, device=x.device)
    sink = sink.view(-1, 1, 1) if sink.dim() == 1 and x.dim() > 2 else sink
    return sink.reshape((1,) * (x.dim() - sink.dim()) + sink.shape).movedim(dim, -1)


def assert_right(result, exact, error, what=""):
    """Asserts that each element is within `error` of the exact one, which is then rounded once to its type."""
    result, exact = result.cpu(), exact.cpu()
    assert result.shape == exact.shape
    error = (error.nan_to_num(INF) + TINY).expand(exact.shape)
    low, high = exact - error, exact + error
    if result.dtype.itemsize == 2:
        low, high = low.to(result.dtype).double(), high.to(result.dtype).double()
    value = result.double()
    right = (value.isnan() & exact.isnan()) | (value == exact.to(result.dtype).double()) | ((low <= value) & (value <= high))
    if not right.all():
        at = tuple((~right).nonzero()[0].tolist())
        parts = ((value - exact).abs() / error)[~right]
        wrong = f"{(~right).sum()} of {right.numel()} wrong, up to {parts.max():.2f} of what is allowed"
        raise AssertionError(f"{what} {wrong}; at {at}: {value[at]:.9g}, exact {exact[at]:.9g}, error {error[at]:.3g}")


def size_of(t):
    """Returns sizes of finite numbers; 0 for others."""
    return t.nan_to_num(0, 0, 0).abs()


def rounded(x, loose, sink=None, **scores):
    """Returns (scores in float64, error of their exponentials in EPS, from roundings of scores and of their differences)."""
    z, _ = logits("softmax", x, compute=torch.float32, **scores)
    peak = z.amax(-1, keepdim=True)
    if sink is not None:
        peak = torch.maximum(peak, sinks_of(sink, x, -1))
    steps = sum(count for name, count in {"softcap": 6.0, "temperature": 1.0}.items() if scores.get(name) is not None)
    return z, loose * (size_of(z - peak) + steps * (size_of(z) + size_of(peak)))


def softmax(x, log, loose, *, sink=None, masked_rows="nan", **scores):
    """Returns (softmax of scores or its logarithm, error)."""
    form = "log_softmax" if log else "softmax"
    exact = expected(form, x, sink=sink, masked_rows=masked_rows, compute=torch.float32, **scores)
    _, more = rounded(x, loose, sink, **scores)
    if log:
        return exact, EPS * (UNITS * size_of(exact).clamp_min(1) + more)
    error = EPS * (UNITS + more)
    return exact, torch.where(error < 0.1, error * size_of(exact), INF)  # anything, where an exponent may be off by as much


def gradient(dy, y, log, hides=False, **scores):
    """Returns (gradient of x from those of y, and y, error); `hides` is KernelConfig.MASKED_GRADIENT."""
    d, p = dy.double(), y.double().exp() if log else y.double()
    p = torch.where(p < 2.0**-150, 0.0, p)  # as in float32: beside an inf it counts whether there is a weight
    terms = d if log else d * p
    total, size = terms.sum(-1, keepdim=True), terms.abs().sum(-1, keepdim=True)
    exact = d - p * total if log else p * (d - total)
    size = d.abs() + p * (1 + size_of(y.double())) * size if log else p * (d.abs() + size)
    slope, more = derivative(**scores)
    exact, nothing = torch.where(greedy_of(scores), 0.0, exact * slope), y.double() == (-INF if log else 0.0)
    if hides:
        exact = torch.where(nothing | y.isnan(), 0.0, exact)
    flushed = TINY * total.abs().nan_to_num(0, 0, 0) * log  # exp(y) of the gradient of a logarithm
    return exact, (EPS * (4 + more) * size_of(size) + flushed) * slope.abs()


def greedy_of(scores):
    """Returns which rows have a temperature of 0."""
    return torch.as_tensor(scores.get("temperature", 1.0)) == 0


def derivative(x=None, scale=1.0, temperature=1.0, softcap=None, **_):
    """Returns (derivative of a score by x, 0 in greedy rows; its error in EPS)."""
    scale, t = (torch.as_tensor(factor).double() for factor in (scale, temperature))
    slope = torch.where(t == 0, 0.0, scale / torch.where(t == 0, 1.0, t))
    if softcap is None:
        return slope, 0.0
    u = x.double() * scale / softcap
    return slope / torch.cosh(u) ** 2, 4 + 4 * size_of(u)


def log_probs(x, ids, masked_rows="nan", **scores):
    """Returns three pairs (exact, error): log-probabilities of ids, which have one more dimension; logsumexp; entropies."""
    z, more = rounded(x, 1.0, **scores)
    logs = z.log_softmax(-1)
    if masked_rows == "zero":
        logs = torch.where((z == -INF).all(-1, keepdim=True), -INF, logs)
    inside = (ids >= 0) & (ids < x.shape[-1])
    at = torch.where(inside, ids, 0)
    picked = torch.where(ids == IGNORED, 0.0, torch.where(inside, logs.gather(-1, at), torch.nan))
    lse, p = z.logsumexp(-1), logs.exp()
    greedy, undivided = greedy_of(scores), logits("softmax", x, compute=torch.float32, **(scores | {"temperature": None}))[0]
    lse = torch.where(greedy.squeeze(-1), lse + undivided.amax(-1), lse)  # scores of greedy rows are not divided
    lse = torch.where((torch.where(greedy, undivided, z) == INF).any(-1), INF, lse)
    falls = z - z.amax(-1, keepdim=True)
    entropies = -(p * logs.clamp(min=-1e300)).sum(-1)
    size = size_of(p * size_of(falls) * (1 + more)).sum(-1) + size_of(lse - z.amax(-1)) + 1
    return (
        (picked, EPS * (UNITS * size_of(picked).clamp_min(1) + more.gather(-1, at))),
        (lse, EPS * (UNITS * (1 + size_of(lse)))),
        (entropies, EPS * 4 * size),
    )


def log_probs_gradient(x, ids, dpicked, dlse=None, dentropy=None, masked_rows="nan", **scores):
    """Returns (gradient of x, error) from those of the numbers of its rows."""
    z, more = rounded(x, 1.0, **scores)
    logs = z.log_softmax(-1)
    p, at = logs.exp(), torch.where((ids >= 0) & (ids < x.shape[-1]), ids, 0)
    there = (ids >= 0) & (ids < x.shape[-1]) & (ids != IGNORED)
    dpicked = torch.where(there, dpicked.double(), 0.0)
    chosen, sizes = (torch.zeros_like(logs).scatter_add(-1, at, d) for d in (dpicked, dpicked.abs()))
    total, size = dpicked.sum(-1, keepdim=True), dpicked.abs().sum(-1, keepdim=True)
    if dlse is not None:
        total, size = total - dlse.double().unsqueeze(-1), size + dlse.double().abs().unsqueeze(-1)
    slope = torch.zeros_like(total) if dentropy is None else dentropy.double().unsqueeze(-1)
    logs = logs.clamp(min=-1e300)
    entropies = -(p * logs).sum(-1, keepdim=True)
    exact = chosen - torch.where((total == 0) & (slope == 0), 0.0, p * (total + slope * (logs + entropies)))
    log = size_of(z.logsumexp(-1, keepdim=True) - z.amax(-1, keepdim=True)) / 8  # half a unit of the sum's logarithm, of 4 EPS
    weight = (size + slope.abs() * (logs.abs().clamp(max=110) + entropies)) * (1 + more + log)  # of an exponential
    (slope, _), (error, _) = derivative(x, **scores), derivative(**(scores | {"softcap": None}))  # 1 - tanh**2 cancels
    error = (EPS * 4 * size_of(sizes + p * weight) + TINY * size_of(weight)) * error.abs()
    if "mask" in scores:  # what it hides has no gradient, nor have rows without a finite logsumexp
        exact = torch.where((z == -INF) | ~z.logsumexp(-1, keepdim=True).isfinite(), 0.0, exact)
    return torch.where((exact == 0) | greedy_of(scores), 0.0, exact * slope), error


# ---------------------------------------------------------------- a tensor, and options of each kind
X = torch.randn(2, 3, 5, dtype=torch.float64)
ROWS, BIAS, SEEN = torch.rand(2, 3, 1).double() + 0.5, torch.randn(3, 5).double(), torch.rand(3, 5) < 0.6
OPTIONS = [
    {}, {"scale": -2.0}, {"scale": ROWS, "softcap": 1.5}, {"softcap": 2.0, "temperature": 0.7, "scale": 3.0},
    {"mask": SEEN, "masked_rows": "zero"}, {"mask": BIAS, "temperature": ROWS, "softcap": 2.0},
    {"mask": SEEN, "masked_rows": "zero", "causal": True}, {"causal": "lower_right", "sink": torch.randn(2).double()},
    {"temperature": torch.where(ROWS < 1, 0.0, ROWS), "mask": BIAS}, {"temperature": -0.5, "sink": 0.25},
    {"temperature": 0.0, "softcap": 1.0, "mask": SEEN, "sink": 1.0},
]  # fmt: skip
