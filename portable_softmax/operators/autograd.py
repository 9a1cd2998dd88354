"""Gradients of the operators, at the dispatcher's Autograd key: reverse mode, twice, and forward mode.

The gradient of x is one fused kernel where there is no softcap, and only the output is saved for it; torch's operators compute
the other gradients from that of the scores, and those of the gradient. Of scores, second derivatives and those in forward mode
are composed of torch's operators.
The choice of batch_invariant is read once, in the forward, and kept for the gradients, which autograd runs in other threads.

torch.library.register_autograd is not used: it lets torch.func go through all of its levels again at each of them, and does
not tell below which keys the operator is called.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from portable_softmax.invariance import in_context, is_batch_invariant
from portable_softmax.operators import composite
from portable_softmax.operators.bypass import fused, gradient_directly, plainly
from portable_softmax.operators.call import Asked, AskedGradient
from portable_softmax.operators.memory import repeated


def register_gradients(library: torch.library.Library, form: str) -> None:
    """Registers the gradients of portable_softmax::`form` and of its `_backward`, which must be defined."""
    recorded = at_autograd_key(form, form, _Softmax)
    recorded_gradient = at_autograd_key(f"{form}_backward", form, _SoftmaxBackward)
    below_gradient = _below_autograd(f"{form}_backward")

    def softmax(keyset: Any, *arguments: Any) -> torch.Tensor:
        asked = Asked(*arguments)
        if asked.is_plain:
            given = form, asked.x, asked.dim, asked.dtype, is_batch_invariant()
            y = repeated(given[0], *given[2:], asked.x)
            y = plainly(*given) if y is None else y
            return recorded(keyset, *arguments) if y is None else y
        if forward_ad._current_level < 0:
            return recorded(keyset, *arguments)
        return composite.forward(form, asked)

    def gradient(keyset: Any, *arguments: Any) -> torch.Tensor:
        asked = AskedGradient(*arguments)
        again = torch.is_grad_enabled() and any(each.requires_grad for each in asked.tensors)
        dx = None if again else gradient_directly(form, asked, is_batch_invariant())
        if dx is not None:
            return dx
        if not asked.scores:
            return recorded_gradient(keyset, *arguments)
        if again or forward_ad._current_level >= 0:
            return composite.backward(form, asked)
        return below_gradient(keyset, *arguments)

    library.impl(form, softmax, "Autograd", with_keyset=True)
    library.impl(f"{form}_backward", gradient, "Autograd", with_keyset=True)


def _below_autograd(name: str) -> Callable[..., torch.Tensor]:
    """Returns what calls portable_softmax::`name` from its kernel at the Autograd key, and records nothing."""
    operator = getattr(torch.ops.portable_softmax, name).default

    def below(keyset: Any, *arguments: Any) -> torch.Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            result: torch.Tensor = operator.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
        return result

    return below


def at_autograd_key(name: str, form: str, function: Any) -> Callable[..., torch.Tensor]:
    """Returns the kernel of portable_softmax::`name` at the Autograd key, which records an autograd.Function.

    The function's forward gets what computes the operator, `form`, the choice of batch_invariant, and the arguments.
    """
    below = _below_autograd(name)

    def compute(keyset: Any, *arguments: Any) -> torch.Tensor:
        tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
        recorded = torch.is_grad_enabled()
        if forward_ad._current_level < 0 and not (recorded and any(each.requires_grad for each in tensors)):
            return below(keyset, *arguments)

        invariant = is_batch_invariant()

        def below_levels(*given: Any, batch_invariant: bool) -> torch.Tensor:
            # Function.apply records nothing while it is in `forward`, but torch.func's outer levels go on.
            with torch.set_grad_enabled(recorded), forward_ad._set_fwd_grad_enabled(True), in_context(batch_invariant):
                return below(keyset, *given)

        # The dispatcher comes here once for each level of torch.func; Function.apply would go through all of them again.
        apply = super(torch.autograd.Function, function).apply
        with enable_single_level_autograd_function():
            result: torch.Tensor = apply(below_levels, form, invariant, *arguments)
        return result

    return compute


def _recorded_outside(jvp: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Lets torch.func's outer levels record the tangents that `jvp` computes; Function.apply itself records none.

    `jvp` gets the saved tensors, without their tangents of the level that is being computed.
    """

    def compute(ctx: Any, *tangents: Any) -> torch.Tensor:
        with forward_ad._set_fwd_grad_enabled(True):
            saved = [forward_ad.unpack_dual(each).primal for each in ctx.saved_tensors]
            return jvp(ctx, saved, *tangents)

    return compute


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, below: Any, form: str, batch_invariant: bool, *arguments: Any) -> torch.Tensor:
        asked, needs = Asked(*arguments), Asked(*ctx.needs_input_grad[3:])
        y: torch.Tensor = below(*arguments, batch_invariant=batch_invariant)
        again = asked.softcap is not None or needs.factors or needs.sinks  # whether gradients compute the scores again
        kept = asked.x if again else None, asked.mask if again else None, asked.factors, asked.sinks if needs.sinks else None
        ctx.save_for_backward(y, *kept)
        ctx.save_for_forward(y)
        ctx.form, ctx.batch_invariant, ctx.n_arguments = form, batch_invariant, len(arguments)
        ctx.asked, ctx.of_gradient = asked._replace(x=None, mask=None, factors=None, sinks=None), asked.of_gradient  # type: ignore[arg-type]
        ctx.scores, ctx.x_dtype = asked.scores, asked.x.dtype
        ctx.mask_like = None if asked.mask is None else (asked.mask.shape, asked.mask.dtype)
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        needs = Asked(*ctx.needs_input_grad[3:])
        # Compiled autograd traces this, and a graph reads the choice when it runs.
        with contextlib.nullcontext() if is_dynamo_compiling() else in_context(ctx.batch_invariant):
            gradients = _Gradients(ctx, dy)
            dx = dmask = dfactors = None
            if needs.mask or needs.factors:
                dx, dmask, dfactors = gradients.of_scores(needs)
            elif needs.x:
                dx = gradients.of_x()
            dsinks = gradients.of_sinks() if needs.sinks else None
        found = Asked(dx, dim=None, mask=dmask, factors=dfactors, sinks=dsinks, divides=None, zero_rows=None)  # type: ignore[arg-type]
        return None, None, None, *found[: ctx.n_arguments]

    @staticmethod
    @_recorded_outside
    def jvp(ctx: Any, saved: list[torch.Tensor], *tangents: Any) -> torch.Tensor:
        y, *_ = saved
        tangent = tangents[3].to(y.dtype)
        if ctx.form == "log_softmax":
            return _log_transposed(tangent, y, ctx.asked.dim)
        return _fused(ctx, ctx.form, tangent, y, ctx.asked.dim)  # this Jacobian is symmetric


class _SoftmaxBackward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, below: Any, form: str, batch_invariant: bool, dy: torch.Tensor, y: torch.Tensor, *arguments: Any
    ) -> torch.Tensor:
        dim, x_dtype, *_ = arguments
        ctx.save_for_backward(dy, y)
        ctx.save_for_forward(dy, y)
        ctx.form, ctx.batch_invariant, ctx.dim, ctx.x_dtype = form, batch_invariant, dim, x_dtype
        ctx.nothing = (None,) * len(arguments)
        result: torch.Tensor = below(dy, y, *arguments, batch_invariant=batch_invariant)
        return result

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> tuple[Any, ...]:
        dy, y = ctx.saved_tensors
        ddx = ddx.to(y.dtype)
        if ctx.form == "log_softmax":
            ddy = _log_transposed(ddx, y, ctx.dim)
            return None, None, None, ddy, -ddx * y.exp() * _sum(dy, ctx.dim), *ctx.nothing
        ddy = _fused(ctx, "softmax", ddx, y, ctx.dim)
        return None, None, None, ddy, ddx * (dy - _sum(dy * y, ctx.dim)) - dy * _sum(ddx * y, ctx.dim), *ctx.nothing

    @staticmethod
    @_recorded_outside
    def jvp(ctx: Any, saved: list[torch.Tensor], *tangents: Any) -> torch.Tensor:
        dy, y = saved
        dy_tangent, y_tangent = tangents[3:5]
        if ctx.form == "log_softmax":
            result = dy_tangent - y.exp() * (_sum(dy_tangent, ctx.dim) + y_tangent * _sum(dy, ctx.dim))
        else:
            result = y * (dy_tangent - _sum(dy_tangent * y + dy * y_tangent, ctx.dim))
            result = result + y_tangent * (dy - _sum(dy * y, ctx.dim))
        return result.to(ctx.x_dtype)


class _Gradients:
    """The gradients of what a call was given, from that of its result."""

    def __init__(self, ctx: Any, dy: torch.Tensor) -> None:
        self.y, self.x, self.mask, factors, self.sinks = ctx.saved_tensors
        self.form, self.of_gradient = ctx.form, ctx.of_gradient
        self.asked = ctx.asked._replace(factors=factors, dim=ctx.asked.dim % max(dy.dim(), 1))
        self.scores, self.x_dtype, self.mask_like = ctx.scores, ctx.x_dtype, ctx.mask_like
        self.dy, self.dim = dy, self.asked.dim
        self.compute = torch.promote_types(dy.dtype, torch.float32)

    def of_x(self) -> torch.Tensor:
        """Computes the gradient of x alone."""
        if self.asked.softcap is None:
            return self._launched(self.x_dtype)
        return (self._launched(self.compute) * self._slope()).to(self.x_dtype)

    def of_scores(self, needs: Asked) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Computes the gradients of x, an added mask and factors from that of the scores ahead of the mask."""
        asked, dim = self.asked, self.dim
        ds = self._launched_of_scores()
        if asked.divides:
            ds = torch.where(composite.along(asked.by, dim, ds) == 0, 0.0, ds)  # greedy rows
        dmask = _summed(ds, *self.mask_like) if needs.mask else None
        if asked.softcap is not None:
            ds = ds * self._slope()
        dfactors = self._of_factors(ds) if needs.factors else None
        dx = composite.scaled(ds, dim, asked.by, asked.divides)
        return dx.to(self.x_dtype), dmask, dfactors

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

    def _launched(self, dtype: torch.dtype) -> torch.Tensor:
        """Computes the gradient of x by its kernel, without the derivative of softcap."""
        return _operator(self.form, self.dy, self.y, self.dim, dtype, self.asked.factors, *self.of_gradient)

    def _launched_of_scores(self) -> torch.Tensor:
        """Computes the gradient of the scores, by the same kernel."""
        _, _, *masks = self.of_gradient
        form = "log_softmax" if self._log else "softmax"
        return _operator(form, self.dy, self.y, self.dim, self.compute, None, None, False, *masks)

    def _input(self) -> torch.Tensor:
        return composite.input_of(self.x, self.dy.dtype)

    @property
    def _log(self) -> bool:
        return bool(self.form == "log_softmax")


def _operator(form: str, *arguments: Any) -> torch.Tensor:
    result: torch.Tensor = getattr(torch.ops.portable_softmax, f"{form}_backward")(*arguments)
    return result


def _fused(ctx: Any, form: str, dy: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    return fused(form, AskedGradient(dy, y, dim, y.dtype), ctx.batch_invariant)


def _sum(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.sum(dim, keepdim=True)


def _log_transposed(tangent: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    """Multiplies a vector by the Jacobian of log_softmax, whose transpose the fused kernel computes."""
    return tangent - _sum(tangent * y.exp(), dim)


def _summed(gradient: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Returns the sum of a gradient over what was broadcast."""
    dims = [at for at, size in enumerate(shape) if size == 1 and gradient.shape[at] != 1]
    return (gradient.sum(dims, keepdim=True) if dims else gradient).to(dtype)
