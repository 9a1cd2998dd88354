"""The softmax of scores in float64, one plain operator of torch after the other, and tables of what may be asked together."""

import itertools

import torch

INF = float("inf")


def reference(form, x, dim=-1, *, scale=None, temperature=None, mask=None, causal=False, softcap=None, sink=None,
              masked_rows="nan"):  # fmt: skip
    """The result in float64; differentiable. Greedy rows are found one by one."""
    x = (-x if form == "softmin" else x).double().movedim(dim, -1)

    def moved(each):
        each = torch.as_tensor(each, dtype=torch.float64, device=x.device) if not isinstance(each, torch.Tensor) else each
        each = each.double() if each.is_floating_point() else each
        return each.reshape((1,) * (x.dim() - each.dim()) + each.shape).movedim(dim, -1) if x.dim() >= each.dim() else each

    allowed = torch.ones_like(x, dtype=torch.bool)
    if causal:
        n_rows, n_cols = x.shape[-2:]
        allowed = allowed & torch.ones_like(allowed).tril(n_cols - n_rows if causal == "lower_right" else 0)
    added, seen = None, allowed  # seen: not hidden, if maybe by a mask of -inf
    if mask is not None:
        mask = moved(mask)
        if mask.dtype == torch.bool:
            allowed = seen = allowed & mask
        else:
            added, seen, allowed = mask, allowed, allowed & (mask != -INF)
    x = x if scale is None else x * moved(scale)
    zero = None if temperature is None else (moved(temperature) == 0).expand(*x.shape[:-1], 1)[..., 0]
    z = x if temperature is None else x / torch.where(moved(temperature) == 0, 1.0, moved(temperature))
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    z = z if added is None else z + added
    z = torch.where(allowed | (seen & z.isnan()), z, -INF)
    logits = z
    if sink is not None:
        sink = sink.reshape(-1, 1, 1) if isinstance(sink, torch.Tensor) and sink.dim() == 1 and x.dim() > 2 else sink
        logits = torch.cat((z, moved(sink).expand(*x.shape[:-1], 1)), -1)
    log = form == "log_softmax"
    y = (torch.log_softmax if log else torch.softmax)(logits, -1)[..., : x.shape[-1]]
    if zero is not None:
        rows = [_greedy(*row) for row in zip(x.detach().flatten(0, -2), allowed.flatten(0, -2), strict=True)]
        greedy = torch.stack(rows).view(x.shape)
        y = torch.where(zero.unsqueeze(-1), greedy.log() if log else greedy, y)
    if sink is not None or masked_rows == "zero":
        y = torch.where((~allowed | (x == -INF)).all(-1, keepdim=True), -INF if log else 0.0, y)
    return y.movedim(-1, dim)


def _greedy(row, allowed):
    weights = torch.zeros_like(row)
    left = [float(each) for each, is_left in zip(row, allowed, strict=True) if is_left]
    if not left or any(each != each for each in left) or max(left) in (INF, -INF):
        return weights * torch.nan
    winners = allowed & (row == max(left))
    weights[winners] = 1 / winners.sum()
    return weights


def _normal(generator, *shape):
    return torch.randn(shape, generator=generator)


def _visible(generator, *shape):
    mask = torch.rand(shape, generator=generator) > 0.4
    mask[..., 0] = True
    return mask


def _holes(generator, *shape):
    return torch.where(_visible(generator, *shape), _normal(generator, *shape), -INF)


def _temperatures(generator, *shape):
    of = torch.tensor([0.0, 1e-30, 0.5, 1.0, -2.0, 1e30, -0.0])
    return of[torch.randint(len(of), shape, generator=generator)]


# Ways to give each argument for x of shape (batch, heads, rows, columns), softmax along the last.
WAYS = {
    "scale": {
        "number": lambda g, b, h, r, c: {"scale": -0.3},
        "heads": lambda g, b, h, r, c: {"scale": _normal(g, h, 1, 1)},
    },
    "temperature": {
        "number": lambda g, b, h, r, c: {"temperature": 0.7},
        "zero": lambda g, b, h, r, c: {"temperature": 0.0},
        "rows": lambda g, b, h, r, c: {"temperature": _temperatures(g, b, h, r, 1)},
    },
    "mask": {
        "boolean": lambda g, b, h, r, c: {"mask": _visible(g, b, 1, r, c)},
        "padding": lambda g, b, h, r, c: {"mask": _visible(g, b, 1, 1, c).expand(b, h, 1, c)},
        "added": lambda g, b, h, r, c: {"mask": _holes(g, h, r, c).transpose(1, 2).contiguous().transpose(1, 2)},
        "distances": lambda g, b, h, r, c: {"mask": _normal(g, r, 2 * c).bfloat16()[:, ::2]},
    },
    "causal": {
        "upper left": lambda g, b, h, r, c: {"causal": True},
        "lower right": lambda g, b, h, r, c: {"causal": "lower_right"},
    },
    "softcap": {"cap": lambda g, b, h, r, c: {"softcap": 1.5}},
    "sink": {
        "number": lambda g, b, h, r, c: {"sink": 0.5},
        "heads": lambda g, b, h, r, c: {"sink": _normal(g, h) * 3},
    },
    "masked_rows": {"zero": lambda g, b, h, r, c: {"masked_rows": "zero"}},
}
ALONE = [(name, way) for name, ways in WAYS.items() for way in ways]
TWO = [(a, b) for a, b in itertools.combinations(ALONE, 2) if a[0] != b[0]]


def together(ways, shape, seed=0):
    """The arguments that some ways of WAYS give."""
    generator = torch.Generator().manual_seed(seed)
    given = {}
    for name, way in ways:
        given |= WAYS[name][way](generator, *shape)
    return given


def on(device, given, dtype=None):
    """The same arguments with their tensors on a device; floating ones of a type."""

    def moved(each):
        each = each.to(device) if isinstance(each, torch.Tensor) else each
        return each.to(dtype) if dtype and isinstance(each, torch.Tensor) and each.is_floating_point() else each

    return {name: moved(each) for name, each in given.items()}


def names(ways):
    return "-".join(f"{name}:{way}".replace(" ", "_") for name, way in ways)
