"""The softmax of scores in float64, step by step, and cases of every step."""

import torch

from portable_softmax.operators import scored
from portable_softmax.planning.scores import Scores

INF = float("inf")


def scores_of(x, form, scores, mask=None, factor=None):
    """Returns (scores, which elements are hidden) in float64; the steps round as the kernel's do."""
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    x = x.to(compute) * (-1 if form == "softmin" else 1)
    z, greedy = x, torch.zeros((), dtype=torch.bool)
    if scores.factor:
        factor = torch.as_tensor(factor, dtype=compute, device=x.device)
        z = x / factor if scores.divides else x * factor
        greedy = (factor == 0) & scores.divides
    if scores.cap:
        z = (scores.cap * torch.tanh(z.double() / scores.cap)).to(compute)
    hidden = torch.zeros_like(x, dtype=torch.bool)
    if scores.mask == "bool":
        hidden = ~mask.expand(x.shape)
    elif scores.mask:
        added = mask.to(compute).expand(x.shape)
        z, x = z + added, torch.where(added == -INF, added, x)
    if scores.causal:
        rows, cols = x.shape[-2:]
        ahead = cols - rows if scores.causal == "lower_right" else 0
        hidden = hidden | ~torch.ones(rows, cols, dtype=torch.bool, device=x.device).tril(ahead)
    z = torch.where(greedy, x, z).double().masked_fill(hidden, -INF)
    top = z.amax(-1, keepdim=True)
    return torch.where(greedy & (z < top), -INF, z), hidden, greedy


def expected(x, form, scores, mask=None, factor=None, sink=None, dim=-1):
    """Returns (the softmax of scores in float64, the size of its terms); factor and sink are numbers, or have 1 along dim."""
    back = [
        each.movedim(dim, -1) if isinstance(each, torch.Tensor) and each.dim() else each for each in (x, mask, factor, sink)
    ]
    x, mask, factor, sink = back
    z, _, greedy = scores_of(x, form, scores, mask, factor)
    total = z.logsumexp(-1, keepdim=True)
    total = torch.where((z.isnan() | (z == INF)).any(-1, keepdim=True), torch.nan, total)  # inf - inf
    if scores.sink:
        total = torch.where(greedy, total, torch.logaddexp(total, sink.double()))
    log = z - total
    empty = (z == -INF).all(-1, keepdim=True)
    if scores.sink or scores.zero_rows:
        log = torch.where(empty, -INF, log)
    size = torch.where(z.isfinite(), z.abs() + total.nan_to_num(0, 0, 0).abs(), 0.0)
    exact = log if form == "log_softmax" else log.exp()
    terms = size + 1 if form == "log_softmax" else exact.nan_to_num(0) * size
    return exact.movedim(-1, dim), terms.movedim(-1, dim)


def per_row(numbers, x, dim=-1):
    """Returns numbers that have 1 along dim as a kernel takes them: one of each row; numbers of Python as they are."""
    if not isinstance(numbers, torch.Tensor):
        return numbers
    shape = list(x.shape)
    shape[dim] = 1
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    return numbers.to(compute).expand(shape).contiguous().flatten()


def computed(x, form, scores, mask=None, factor=None, sink=None, dim=-1, dtype=None, invariant=False):
    """Returns the kernel's softmax of scores; arguments are those of `expected`."""
    return scored.forward(x, dim, dtype, form, invariant, scores, mask, per_row(factor, x, dim), per_row(sink, x, dim))


def random(*shape, where="cpu", dtype=torch.float32, seed=0, size=3.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size).to(where, dtype)


def some(*shape, where="cpu", seed=1, share=0.6):
    """Returns a boolean mask of which a share takes part."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share).to(where)


def added(*shape, where="cpu", dtype=torch.float32, seed=2):
    """Returns a mask to add, of numbers and -inf."""
    return random(*shape, seed=seed, size=2.0).masked_fill(~some(*shape, seed=seed), -INF).to(where, dtype)


def steps(batch, heads, rows, cols, where):
    """Returns arguments for `expected` and `computed` of each step, for x of these sizes, by name."""
    temperature = random(batch, heads, rows, 1, seed=5).abs() + 0.3
    temperature[0, 0, 0] = 0.0
    return {
        "scale": ({"factor": "number"}, {"factor": 0.37}),
        "scales": ({"factor": "rows"}, {"factor": random(batch, heads, rows, 1, seed=4).to(where)}),
        "temperature": ({"factor": "number", "divides": True}, {"factor": 0.7}),
        "temperatures": ({"factor": "rows", "divides": True}, {"factor": temperature.to(where)}),
        "cap": ({"cap": 2.5}, {}),
        "bool": ({"mask": "bool"}, {"mask": some(batch, 1, 1, cols, where=where)}),
        "added": ({"mask": "float32"}, {"mask": added(batch, 1, rows, cols, where=where)}),
        "upper left": ({"causal": "upper_left"}, {}),
        "lower right": ({"causal": "lower_right"}, {}),
        "sink": ({"sink": True}, {"sink": random(1, heads, 1, 1, seed=6).to(where)}),
        "zero rows": ({"zero_rows": True}, {}),
    }


def joined(*chosen):
    """Returns (Scores, arguments) of several steps together; None if they exclude each other."""
    fields, arguments = {}, {}
    for field, argument in chosen:
        if fields.keys() & field.keys() or arguments.keys() & argument.keys():
            return None
        fields |= field
        arguments |= argument
    return Scores(**fields), arguments
