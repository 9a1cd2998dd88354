"""Who computes a softmax in scripts/benchmark.py: each takes inputs and returns what is timed, where it can be imported."""

import importlib
import math
from collections.abc import Callable
from typing import Any

import torch

Timed = Callable[[], Any]
Maker = Callable[[torch.Tensor], Timed]


def forward_providers() -> dict[str, Maker]:
    """By name, the ceiling first; ours last."""
    makers: dict[str, Maker] = {"copy": _copy, "torch": _torch, "compile": _compiled(), "naive": _naive}
    for name, make in {"liger": _liger, "flaggems": _flaggems, "quack": _quack}.items():
        try:
            makers[name] = make()
        except ImportError:
            continue
    return makers | {"ours": _ours}


def _copy(x: torch.Tensor) -> Timed:
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def _torch(x: torch.Tensor) -> Timed:
    return lambda: torch.softmax(x, -1)


def _compiled() -> Maker:
    torch._dynamo.config.recompile_limit = 10_000
    compiled = torch.compile(lambda x: torch.softmax(x, -1), dynamic=False)
    return lambda x: lambda: compiled(x)


def _naive(x: torch.Tensor) -> Timed:
    """As the tutorials begin: five passes over memory."""

    def softmax() -> torch.Tensor:
        e = torch.exp(x - x.max(dim=-1, keepdim=True).values)
        return e / e.sum(dim=-1, keepdim=True)

    return softmax


def _liger() -> Maker:
    softmax = importlib.import_module("liger_kernel.ops.softmax")._softmax_forward
    return lambda x: lambda: softmax(x)[0]


def _flaggems() -> Maker:
    softmax = importlib.import_module("flag_gems").ops.softmax
    return lambda x: lambda: softmax(x, -1)


def _quack() -> Maker:
    softmax = importlib.import_module("quack.softmax").softmax_fwd
    return lambda x: lambda: softmax(x)


def _ours(x: torch.Tensor) -> Timed:
    from portable_softmax import softmax

    return lambda: softmax(x)


def worst_error(result: torch.Tensor, x: torch.Tensor) -> float:
    """The largest error in units of what is allowed, against float64; inf for nan. Rows in parts, to spare memory."""
    from portable_softmax.verify import allowed_error, softmax_in_float64

    rows_at_once = max(1, 2**26 // x.shape[-1])
    worst = 0.0
    for start in range(0, len(x), rows_at_once):
        part, given = result[start : start + rows_at_once], x[start : start + rows_at_once]
        reference = softmax_in_float64(given)
        excess = (part.double() - reference).abs() / allowed_error(reference, x.dtype)
        worst = max(worst, excess.nan_to_num(nan=math.inf).max().item())
    return worst
