"""The way past torch's dispatcher, which takes as long as everything else, for calls that only autograd needs to see.

Functions of torch are bound when this is imported, because a call asks them all.
"""

from collections.abc import Callable

import torch
from torch import Tensor, strided
from torch._C import (
    _are_functorch_transforms_active,
    _dispatch_isTensorSubclassLike,
    _is_any_autocast_enabled,
    _is_tracing,
    _len_torch_function_stack,
)
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.detect import interpreting
from portable_softmax.torch_api.layout import gradient_of, softmax_of

BY_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "softmin": torch.nn.functional.softmin,
}
KERNEL_DTYPES = frozenset(getattr(torch, name) for name in DTYPE_BYTES)


def nobody_listens(x: torch.Tensor) -> bool:
    """Tells whether the dispatcher would only pass x on to the kernel, and to autograd if x needs a gradient.

    That is so for a plain strided tensor, unless a mode, a transform, forward mode, autocast, tracing or dynamo is at work.
    """
    return (
        not is_dynamo_compiling()
        and type(x) is Tensor
        # A dispatch mode, or x is meta, sparse, or of functorch's or torch.autograd.grad(is_grads_batched=True)'s.
        and not _dispatch_isTensorSubclassLike(x)
        and not _len_torch_function_stack()
        and not _are_functorch_transforms_active()
        and not _is_any_autocast_enabled()
        and forward_ad._current_level < 0
        and not _is_tracing()
        and not x.is_neg()
        and x.layout is strided
        and not x.is_nested
    )


def forward(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> torch.Tensor:
    """Computes the softmax of x by one kernel, or by torch for a tensor on the CPU; see functional.softmax."""
    if x.is_cpu and not interpreting():
        return BY_TORCH[form](x, dim, dtype=dtype)
    if dtype is not None and x.dtype not in KERNEL_DTYPES:
        x, form = (-x, "softmax") if form == "softmin" else (x, form)  # unsigned integers wrap around, as in torch
        x = x.to(dtype)
    return softmax_of(x, dim, dtype, form, batch_invariant)


def backward(
    dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, batch_invariant: bool
) -> torch.Tensor:
    """Computes the gradient of x by one kernel, or by torch for tensors on the CPU; see layout.gradient_of."""
    if not y.is_cpu or interpreting():
        if x_dtype not in KERNEL_DTYPES:
            return gradient_of(dy, y, dim, y.dtype, form, batch_invariant).to(x_dtype)
        return gradient_of(dy, y, dim, x_dtype, form, batch_invariant)
    by_torch = torch.ops.aten._log_softmax_backward_data if form == "log_softmax" else torch.ops.aten._softmax_backward_data
    dx: torch.Tensor = by_torch(dy, y, dim, y.dtype).to(x_dtype)
    return -dx if form == "softmin" else dx
