"""Calls that autograd records where it alone listens: sooner than through the dispatcher, with the same gradients."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from portable_softmax.invariance import in_context
from portable_softmax.operators.compute import backward
from portable_softmax.operators.kept import Call, Kind, nobody_listens


def recording(call: Call, x_dtype: torch.dtype, kind: Kind) -> Call:
    """Returns `call`, which computes a kind of softmax of tensors of a type, as autograd records it."""
    return functools.partial(_apply_of(x_dtype, kind), call)


@functools.cache
def _apply_of(x_dtype: torch.dtype, kind: Kind) -> Callable[[Call, torch.Tensor], torch.Tensor]:
    """Returns apply(call, x). It is a function of its own for each kind: an attribute of each call's context costs time."""
    form, dim, _, batch_invariant = kind

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, call: Call, x: torch.Tensor) -> torch.Tensor:
            y = call(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[None, torch.Tensor]:
            (y,) = ctx.saved_tensors
            return None, gradient(dy, y, dim, x_dtype, form, batch_invariant)

    # Function.apply asks for torch.func's levels, and there are none.
    apply: Callable[[Call, torch.Tensor], torch.Tensor] = super(torch.autograd.Function, Recorded).apply
    return apply


def gradient(
    dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, batch_invariant: bool
) -> torch.Tensor:
    """Computes the gradient of x in autograd's backward, past the dispatcher if nobody listens; arguments as of `backward`."""
    if not torch.is_grad_enabled() and nobody_listens(dy) and nobody_listens(y):
        return backward(dy, y, dim, x_dtype, form, batch_invariant)
    return fused(dy, y, dim, x_dtype, form, batch_invariant)


def fused(dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, batch_invariant: bool) -> torch.Tensor:
    """Computes the gradient's operator; arguments as of `backward`, with the choice that was in force in the forward."""
    operator = getattr(torch.ops.portable_softmax, f"{form}_backward")
    # Compiled autograd traces this, and a graph reads the choice when it runs.
    with contextlib.nullcontext() if is_dynamo_compiling() else in_context(batch_invariant):
        result: torch.Tensor = operator(dy, y, dim, x_dtype)
    return result
