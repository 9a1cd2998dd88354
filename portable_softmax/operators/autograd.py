"""Gradients of the operators, at the dispatcher's Autograd key: reverse mode, twice, and forward mode.

Only the output is saved. First derivatives are one fused kernel; those of the gradient are torch's own operators.
The choice of batch_invariant is read once, in the forward, and kept for the gradients, which autograd runs in other threads.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from portable_softmax.invariance import in_context, is_batch_invariant
from portable_softmax.operators.arguments import check_gradient
from portable_softmax.operators.compute import backward
from portable_softmax.operators.direct import directly
from portable_softmax.operators.kept import nobody_listens, repeated
from portable_softmax.operators.recording import fused, gradient


def register_gradients(library: torch.library.Library, form: str) -> None:
    """Registers the gradients of portable_softmax::`form` and of its `_backward`, which must be defined."""
    recorded = at_autograd_key(form, form, _Softmax)
    recorded_gradient = at_autograd_key(f"{form}_backward", form, _SoftmaxBackward)

    def softmax(keyset: Any, x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
        batch_invariant = is_batch_invariant()
        y = repeated(form, dim, dtype, batch_invariant, x)
        if y is None:
            y = directly(form, x, dim, dtype, batch_invariant)
        return recorded(keyset, x, dim, dtype) if y is None else y

    def softmax_gradient(keyset: Any, dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> torch.Tensor:
        is_recorded = torch.is_grad_enabled() and (dy.requires_grad or y.requires_grad)
        if not is_recorded and nobody_listens(dy) and nobody_listens(y):
            return backward(dy, y, check_gradient(dy, y, dim), x_dtype, form, is_batch_invariant())
        return recorded_gradient(keyset, dy, y, dim, x_dtype)

    library.impl(form, softmax, "Autograd", with_keyset=True)
    library.impl(f"{form}_backward", softmax_gradient, "Autograd", with_keyset=True)


def below_autograd(name: str) -> Callable[..., torch.Tensor]:
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
    below = below_autograd(name)

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
    def forward(
        ctx: Any, below: Any, form: str, batch_invariant: bool, x: torch.Tensor, dim: int = -1, dtype: Any = None
    ) -> torch.Tensor:
        y: torch.Tensor = below(x, dim, dtype, batch_invariant=batch_invariant)
        ctx.save_for_backward(y)
        ctx.save_for_forward(y)
        ctx.form, ctx.batch_invariant, ctx.dim, ctx.x_dtype = form, batch_invariant, dim, x.dtype
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        (y,) = ctx.saved_tensors
        dx = gradient(dy, y, ctx.dim, ctx.x_dtype, ctx.form, ctx.batch_invariant)
        return None, None, None, dx, None, None

    @staticmethod
    @_recorded_outside
    def jvp(ctx: Any, saved: list[torch.Tensor], *tangents: Any) -> torch.Tensor:
        (y,) = saved
        tangent = tangents[3].to(y.dtype)
        if ctx.form == "log_softmax":
            return _log_transposed(tangent, y, ctx.dim)
        return _fused(ctx, ctx.form, tangent, y, y.dtype)  # this Jacobian is symmetric


class _SoftmaxBackward(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        below: Any,
        form: str,
        batch_invariant: bool,
        dy: torch.Tensor,
        y: torch.Tensor,
        dim: int,
        x_dtype: torch.dtype,
    ) -> torch.Tensor:
        ctx.save_for_backward(dy, y)
        ctx.save_for_forward(dy, y)
        ctx.form, ctx.batch_invariant, ctx.dim, ctx.x_dtype = form, batch_invariant, dim, x_dtype
        result: torch.Tensor = below(dy, y, dim, x_dtype, batch_invariant=batch_invariant)
        return result

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> tuple[Any, ...]:
        dy, y = ctx.saved_tensors
        ddx = _signed(ddx.to(y.dtype), ctx.form)
        if ctx.form == "log_softmax":
            ddy = _log_transposed(ddx, y, ctx.dim)
            return None, None, None, ddy, -ddx * y.exp() * _sum(dy, ctx.dim), None, None
        ddy = _fused(ctx, "softmax", ddx, y, y.dtype)
        return None, None, None, ddy, ddx * (dy - _sum(dy * y, ctx.dim)) - dy * _sum(ddx * y, ctx.dim), None, None

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
        return _signed(result, ctx.form).to(ctx.x_dtype)


def _fused(ctx: Any, form: str, dy: torch.Tensor, y: torch.Tensor, x_dtype: torch.dtype) -> torch.Tensor:
    return fused(dy, y, ctx.dim, x_dtype, form, ctx.batch_invariant)


def _sum(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.sum(dim, keepdim=True)


def _signed(values: torch.Tensor, form: str) -> torch.Tensor:
    return -values if form == "softmin" else values


def _log_transposed(tangent: torch.Tensor, y: torch.Tensor, dim: int) -> torch.Tensor:
    """Multiplies a vector by the Jacobian of log_softmax, whose transpose the fused kernel computes."""
    return tangent - _sum(tangent * y.exp(), dim)
