"""Gradients of the softmax of scores, at the dispatcher's Autograd key.

The gradient of x is one launch where there is no softcap; torch's operators compute the other gradients from that of the
scores. Where a second derivative may follow, and in forward mode, all is composed of torch's operators.
"""

import contextlib
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from portable_softmax.invariance import in_context
from portable_softmax.operators import composite
from portable_softmax.operators.asked import Asked, AskedGradient
from portable_softmax.operators.autograd import at_autograd_key, below_autograd


def register_gradients(library: torch.library.Library) -> None:
    """Registers the derivatives of portable_softmax::scored and of ::scored_backward, which must be defined."""
    recorded, below = at_autograd_key("scored", "scored", _Scored), below_autograd("scored_backward")

    def forward(keyset: Any, *arguments: Any) -> torch.Tensor:
        if forward_ad._current_level < 0:
            return recorded(keyset, *arguments)
        asked = Asked(*arguments)
        dim = asked.dim % asked.x.dim()
        return composite.forward(asked.x, dim, asked.dtype, asked.form, False, asked.scores, asked.mask, asked.by, asked.sinks)

    def backward(keyset: Any, *arguments: Any) -> torch.Tensor:
        again = torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments)
        if forward_ad._current_level < 0 and not again:
            return below(keyset, *arguments)
        asked = AskedGradient(*arguments)
        return composite.backward(
            asked.dy, asked.y, asked.dim % asked.y.dim(), asked.x_dtype, asked.form, False, asked.scores, asked.by
        )

    library.impl("scored", forward, "Autograd", with_keyset=True)
    library.impl("scored_backward", backward, "Autograd", with_keyset=True)


class _Scored(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, below: Any, _: str, batch_invariant: bool, *arguments: Any) -> torch.Tensor:
        asked, needs = Asked(*arguments), Asked(*ctx.needs_input_grad[3:])
        y: torch.Tensor = below(*arguments, batch_invariant=batch_invariant)
        again = asked.softcap is not None or needs.factors or needs.sinks  # whether gradients compute the scores again
        kept = asked.x if again else None, asked.mask if again else None, asked.factors, asked.sinks if needs.sinks else None
        ctx.save_for_backward(y, *kept)
        ctx.asked = asked._replace(x=None, mask=None, factors=None, sinks=None)  # type: ignore[arg-type]
        ctx.scores, ctx.x_dtype, ctx.batch_invariant = asked.scores, asked.x.dtype, batch_invariant
        ctx.mask_like = None if asked.mask is None else (asked.mask.shape, asked.mask.dtype)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        # Compiled autograd traces this, and a graph reads the choice when it runs.
        with contextlib.nullcontext() if is_dynamo_compiling() else in_context(ctx.batch_invariant):
            needs = Asked(*ctx.needs_input_grad[3:])
            gradients = _Gradients(ctx, dy)
            dx = dmask = dfactors = None
            if needs.mask or needs.factors:
                dx, dmask, dfactors = gradients.of_scores(needs)
            elif needs.x:
                dx = gradients.of_x()
            dsinks = gradients.of_sinks() if needs.sinks else None
        return None, None, None, dx, None, None, None, dmask, dfactors, None, None, None, None, dsinks, None


class _Gradients:
    """The gradients of what a call was given, from that of its result."""

    def __init__(self, ctx: Any, dy: torch.Tensor) -> None:
        self.y, self.x, self.mask, factors, self.sinks = ctx.saved_tensors
        self.asked = ctx.asked._replace(factors=factors, dim=ctx.asked.dim % dy.dim())
        self.scores, self.x_dtype, self.mask_like = ctx.scores, ctx.x_dtype, ctx.mask_like
        self.dy, self.dim = dy, self.asked.dim
        self.compute = torch.promote_types(dy.dtype, torch.float32)

    def of_x(self) -> torch.Tensor:
        """Computes the gradient of x alone."""
        if self.asked.softcap is None:
            return self._launched(self.x_dtype, self.asked)
        return (self._launched(self.compute, self.asked) * self._slope()).to(self.x_dtype)

    def of_scores(self, needs: Asked) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Computes the gradients of x, an added mask and factors from that of the scores ahead of the mask."""
        asked, dim = self.asked, self.dim
        plain = asked._replace(form="log_softmax" if self._log else "softmax", factors=None, factor=None, divides=False)
        ds = self._launched(self.compute, plain)
        if asked.divides:
            ds = torch.where(composite.along(asked.by, dim, ds) == 0, 0.0, ds)  # greedy rows
        dmask = _summed(ds, *self.mask_like) if needs.mask else None
        if asked.softcap is not None:
            ds = ds * self._slope()
        dfactors = self._of_factors(ds) if needs.factors else None
        dx = composite.scaled(ds, dim, asked.by, asked.divides)
        return (-dx if asked.form == "softmin" else dx).to(self.x_dtype), dmask, dfactors

    def of_sinks(self) -> torch.Tensor:
        """Computes the gradient of sinks: from their weights, which the result does not hold."""
        dy, y = self.dy.to(self.compute), self.y.to(self.compute)
        scores = composite.scores_of(self._input(), self.dim, self.scores, self.mask, self.asked.by)
        total = scores.logsumexp(self.dim)
        dsinks = -torch.sigmoid(self.sinks - total) * (dy if self._log else dy * y).sum(self.dim)
        dsinks = torch.where(total == -torch.inf, 0.0, dsinks)
        if not self.asked.divides:
            return dsinks
        factors = dsinks.new_full((), self.asked.factor) if self.asked.factors is None else self.asked.factors
        return torch.where(factors == 0, 0.0, dsinks)

    def _of_factors(self, ds: torch.Tensor) -> torch.Tensor:
        x, factors = self._input(), self.asked.factors
        if (seen := composite.visible(x, self.scores, self.mask)) is not None:
            x = torch.where(seen, x, 0.0)
        if not self.asked.divides:
            return (ds * x).sum(self.dim)
        divisor = torch.where(factors == 0, 1.0, factors)
        return -(ds * (x / divisor.unsqueeze(self.dim))).sum(self.dim) / divisor

    def _slope(self) -> torch.Tensor:
        """Computes the derivative of softcap; 0 for what a mask hides."""
        x = self._input()
        slope = 1 - torch.tanh(composite.scaled(x, self.dim, self.asked.by, self.asked.divides) / self.asked.softcap).square()
        seen = composite.visible(x, self.scores, self.mask)
        return slope if seen is None else torch.where(seen, slope, 0.0)

    def _launched(self, dtype: torch.dtype, asked: Asked) -> torch.Tensor:
        scores = self.scores
        result: torch.Tensor = torch.ops.portable_softmax.scored_backward(
            self.dy, self.y, self.dim, dtype, asked.form, scores.mask, asked.factors, asked.factor, asked.divides,
            scores.causal, scores.sink, scores.zero_rows,
        )  # fmt: skip
        return result

    def _input(self) -> torch.Tensor:
        return composite.input_of(self.x, self.dy.dtype, self.asked.form)

    @property
    def _log(self) -> bool:
        return bool(self.asked.form == "log_softmax")


def _summed(gradient: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Returns the sum of a gradient over what was broadcast."""
    dims = [at for at, size in enumerate(shape) if size == 1 and gradient.shape[at] != 1]
    return (gradient.sum(dims, keepdim=True) if dims else gradient).to(dtype)
