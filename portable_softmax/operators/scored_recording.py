"""Calls of the softmax of scores that autograd records for x alone, where it alone listens: sooner than by the dispatcher."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from portable_softmax.invariance import in_context
from portable_softmax.operators.asked import Asked, AskedGradient
from portable_softmax.operators.kept import nobody_listens
from portable_softmax.operators.scored import Kept
from portable_softmax.operators.scored_library import backward


def recording(call: Kept, asked: Asked, batch_invariant: bool) -> Kept:
    """Returns `call`, which does what was asked for, without a softcap, as autograd records it for the gradient of x."""
    gradient = _gradient_of(asked, batch_invariant)

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, mask: Any, factors: Any, sinks: Any) -> torch.Tensor:
            y = call(x, mask, factors, sinks)
            ctx.save_for_backward(y, factors if isinstance(factors, torch.Tensor) else None)
            return y

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
            return gradient(dy, *ctx.saved_tensors), None, None, None

    # Function.apply asks for torch.func's levels, and there are none.
    apply: Kept = super(torch.autograd.Function, Recorded).apply
    return apply


def _gradient_of(asked: Asked, batch_invariant: bool) -> Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]:
    """Returns gradient(dy, y, factors), that of x. It goes past the dispatcher if nobody listens to dy and y."""
    mask = asked.scores.mask
    rest = asked.factor, asked.divides, asked.causal, asked.sinks is not None, asked.zero_rows
    x_dtype, dim, form = asked.x.dtype, asked.dim, asked.form

    def gradient(dy: torch.Tensor, y: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
        unheard = not torch.is_grad_enabled() and nobody_listens(dy) and nobody_listens(y)
        by = backward if unheard else torch.ops.portable_softmax.scored_backward
        # Compiled autograd traces this, and a graph reads the choice when it runs.
        with contextlib.nullcontext() if is_dynamo_compiling() else in_context(batch_invariant):
            dx: torch.Tensor = by(*AskedGradient(dy, y, dim, x_dtype, form, mask, factors, *rest))
        return dx

    return gradient
