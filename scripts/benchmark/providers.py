"""Implementations of softmax for the benchmark: those that can be imported."""

import importlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

Function = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Provider:
    """Functions of one implementation, along the last dimension of a matrix; None if it has no such function.

    Args:
        forward: y from x, with no gradient recorded.
        backward: dx from dy and y, by its kernel alone.
        log_softmax: log_softmax of x, with no gradient recorded.
        differentiable: y from x, for torch.autograd.
    """

    forward: Function
    backward: Function | None = None
    log_softmax: Function | None = None
    differentiable: Function | None = None


def load(names: Iterable[str]) -> dict[str, Provider]:
    """Imports the providers with these names, in the order of NAMES; prints on stderr which cannot be imported."""
    found = {}
    for name in (name for name in NAMES if name in names):
        try:
            found[name] = _LOADERS[name]()
        except Exception as error:  # a package that does not suit this torch or device fails in its own way
            print(f"without {name}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def _ours() -> Provider:
    from portable_softmax import log_softmax, softmax

    gradient = torch.ops.portable_softmax.softmax_backward
    return Provider(softmax, lambda dy, y: gradient(dy, y, -1, y.dtype), log_softmax, softmax)


def _copy() -> Provider:
    """Returns the ceiling, which moves as many bytes and computes nothing."""
    return Provider(torch.clone, torch.add, torch.clone, _differentiable(torch.clone, torch.add))


def _torch() -> Provider:
    gradient = torch.ops.aten._softmax_backward_data

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    def log_softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, -1)

    return Provider(softmax, lambda dy, y: gradient(dy, y, -1, y.dtype), log_softmax, softmax)


def _compiled() -> Provider:
    """Returns torch.compile's softmax, compiled by Inductor for each shape."""
    compiled = partial(torch.compile, dynamic=False)
    softmax = compiled(lambda x: torch.softmax(x, -1))
    return Provider(softmax, compiled(_naive_gradient), compiled(lambda x: torch.log_softmax(x, -1)), softmax)


def _naive() -> Provider:
    """Returns a softmax with one operator for each step, like the beginning of the tutorials."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

    def log_softmax(x: torch.Tensor) -> torch.Tensor:
        shifted = x - x.amax(-1, keepdim=True)
        return shifted - shifted.exp().sum(-1, keepdim=True).log()

    return Provider(softmax, _naive_gradient, log_softmax, softmax)


def _naive_gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * (dy - (dy * y).sum(-1, keepdim=True))


def _textbook() -> Provider:
    return Provider(importlib.import_module("benchmark.textbook").softmax)


def _liger() -> Provider:
    ops = importlib.import_module("liger_kernel.ops.softmax")

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops._softmax_backward(dy, y, *ops.calculate_settings(y.shape[-1]), False)
        return result

    return Provider(lambda x: ops._softmax_forward(x)[0], gradient, differentiable=ops.LigerSoftmaxFunction.apply)


def _flaggems() -> Provider:
    """Returns FlagGems' operators, called directly. FlagGems means to install them in torch's dispatcher."""
    ops = importlib.import_module("flag_gems").ops

    def softmax(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops.softmax(x, -1)
        return result

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops.softmax_backward(dy, y, -1, y.dtype)
        return result

    return Provider(softmax, gradient, lambda x: ops.log_softmax(x, -1), _differentiable(softmax, gradient))


def _quack() -> Provider:
    module = importlib.import_module("quack.softmax")  # the attribute `quack.softmax` is the function with that name
    return Provider(module.softmax_fwd, module.softmax_bwd, differentiable=module.softmax)


def _differentiable(forward: Function, backward: Function) -> Function:
    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y = forward(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            return backward(dy, *ctx.saved_tensors)

    apply: Function = Softmax.apply
    return apply


_LOADERS: dict[str, Callable[[], Provider]] = {
    "copy": _copy,
    "torch": _torch,
    "compile": _compiled,
    "naive": _naive,
    "textbook": _textbook,
    "liger": _liger,
    "flaggems": _flaggems,
    "quack": _quack,
    "ours": _ours,
}
NAMES = tuple(_LOADERS)
