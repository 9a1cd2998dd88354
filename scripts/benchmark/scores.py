"""Softmax of scores as attention and sampling call it: scale, masks, causal, temperature.

`copy` moves the bytes that must move: x where no mask hides it, the mask once, the result; of a gradient all three tensors.
`torch` takes an operator for each step, and `compile` fuses those. `plain` is this package's softmax of the same types.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch

from benchmark.problems import Problem
from benchmark.results import COPY, OURS
from benchmark.timing import Call, Timed
from portable_probe.closeness import worst_error
from portable_softmax import softmax
from portable_softmax.api.functional import GRADIENT

SCALE = 0.125
CHECKED = 4  # rows of a result


def timed(problem: Problem, where: str, names: Iterable[str]) -> Timed:
    """Makes a problem's operands and the calls of the providers that are named."""
    x = torch.randn(problem.shape, dtype=getattr(torch, problem.dtype), device=where)
    name = problem.direction.removeprefix("gradient, ")
    if problem.sweep == "sampling":
        calls, error_of = _sampling(name, x)
    else:
        calls, error_of = (_gradient if name != problem.direction else _attention)(name, x, *_masked(name, x))
    return Timed({provider: call for provider, call in calls.items() if provider in names}, error_of)


def _masked(name: str, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, Any]]:
    """Returns torch's mask, and this package's options: keys' padding, a bias of positions, or causal."""
    batch, _, n_rows, n_cols = x.shape
    if name == "causal":
        return torch.ones(n_rows, n_cols, dtype=torch.bool, device=x.device).tril(), {"causal": True}
    mask = (torch.arange(n_cols, device=x.device) < n_cols // 2).expand(batch, 1, 1, n_cols).contiguous()
    if name == "added mask":
        mask = torch.randn(batch, 1, n_rows, n_cols, device=x.device).to(x.dtype)
    return mask, {"mask": mask}


def _scores(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * SCALE).masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else x * SCALE + mask


def _attention(name: str, x: torch.Tensor, mask: torch.Tensor, mask_options: dict[str, Any]) -> Timed:
    def by_torch(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.softmax(_scores(x, mask), -1)

    def error_of(y: torch.Tensor) -> float:
        return max(worst_error(y[at], by_torch(x[at].double(), mask.expand(x.shape)[at])) for at in ((0, 0), (-1, -1)))

    hidden = x.numel() - int(mask.expand(x.shape).sum(dtype=torch.int64)) if mask.dtype == torch.bool else 0
    read = mask.numel() * mask.element_size() if name != "causal" else 0
    n_bytes = (2 * x.numel() - hidden) * x.element_size() + read
    compiled = torch.compile(by_torch, dynamic=False)
    return Timed(
        {
            COPY: _copy(n_bytes, x.device),
            "torch": lambda: by_torch(x, mask),
            "compile": lambda: compiled(x, mask),
            OURS: lambda: softmax(x, scale=SCALE, **mask_options),
        },
        error_of,
    )


def _gradient(name: str, dy: torch.Tensor, mask: torch.Tensor, mask_options: dict[str, Any]) -> Timed:
    y, out = torch.softmax(_scores(torch.randn_like(dy), mask), -1), torch.empty_like(dy)

    def error_of(dx: torch.Tensor) -> float:
        one, other = dy[0, 0].double(), y[0, 0].double()
        terms = other * (one.abs() + (one * other).abs().sum(-1, keepdim=True))
        return worst_error(dx[0, 0], SCALE * other * (one - (one * other).sum(-1, keepdim=True)), SCALE * terms)

    args, options = GRADIENT.Args(dy, y, scale=SCALE), GRADIENT.Options(None, False, y.dim() - 1, True, y.dtype)
    return Timed({COPY: lambda: torch.add(dy, y, out=out), OURS: lambda: GRADIENT.launched(args, options)}, error_of)


def _sampling(name: str, x: torch.Tensor) -> Timed:
    wide, out = torch.float32, torch.empty(x.shape, device=x.device)
    by = torch.rand(len(x), 1, device=x.device) + 0.5 if name == "temperature" else torch.ones(len(x), 1, device=x.device)

    def by_torch(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.to(wide) / by, -1)

    compiled = torch.compile(by_torch, dynamic=False)
    options: dict[str, Any] = {} if name == "plain" else {"temperature": by}
    peers: dict[str, Call] = {"torch": lambda: by_torch(x, by), "compile": lambda: compiled(x, by)} if options else {}
    calls = {COPY: lambda: out.copy_(x), **peers, OURS: lambda: softmax(x, -1, wide, **options)}
    return Timed(calls, lambda y: worst_error(y[:CHECKED], torch.softmax(x[:CHECKED].double() / by[:CHECKED], -1)))


def _copy(n_bytes: int, where: torch.device) -> Call:
    """Returns a copy that moves as many bytes, half of them read and half written."""
    one, other = (torch.empty(n_bytes // 2, dtype=torch.uint8, device=where) for _ in range(2))
    return lambda: other.copy_(one)
