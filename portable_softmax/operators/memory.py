"""Memory that a call writes to: out=, and gradients over logits."""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.operators.arguments import is_plain, needs_of, transforms_are_active
from portable_softmax.operators.checks import check_tensor


def extent(t: Tensor) -> int:
    """Returns the bytes from the start of a tensor's first element to the end of its last."""
    return (1 + sum((size - 1) * step for size, step in zip(t.shape, t.stride(), strict=True))) * t.element_size()


def overlaps(t: Tensor) -> bool:
    """True if elements may share memory: a stride is within what the smaller ones span."""
    span = 0
    for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
        if size > 1 and stride <= span:
            return True
        span += (size - 1) * stride
    return False


def fits(out: Tensor, args: Any, dtype: torch.dtype, over: bool) -> bool:
    """True if a launch may write its result to out, which is the first argument if `over`."""
    x = args[0]
    if out.dtype != dtype or out.device != x.device or out.shape != x.shape or needs_of((out, *args)):
        return False
    return not overlaps(out) and (not over or out.stride() == x.stride())


def check_inplace(name: str, x: Any) -> None:
    """Raises RuntimeError unless a gradient may be written over logits, as an in-place operation could be."""
    recorded = isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled() and not is_compiling()
    if not recorded or transforms_are_active() or not is_plain(x):
        return
    base = x if x._base is None else x._base
    # No public name says why a view may not be written; torch's own compilers use this one (2.6 to 2.13).
    views = torch._C._autograd
    if x.is_leaf or (base.is_leaf and base.requires_grad):
        reason = "are a leaf or a view of one, whose elements would be lost"
    elif x._is_view() and views._get_creation_meta(x) != views.CreationMeta.DEFAULT:
        reason = "are a view that autograd forbids to write to, such as a part of split() or unbind(); pass the whole tensor"
    elif overlaps(x):
        reason = f"share memory among themselves, by strides of {x.stride()}; use contiguous()"
    else:
        return
    raise RuntimeError(f"{name}(): grad_inplace=True would write over logits that {reason}")


def check_out(name: str, out: Any, x: Tensor, dtype: torch.dtype, inputs: Any) -> None:
    """Raises torch's errors for an out= of another type or device, or of a call that autograd would record."""
    check_tensor(name, "out", out)
    if needs_of((out, *inputs)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
            "requires grad."
        )
    for what, expected, actual in (("dtype", dtype, out.dtype), ("device", x.device, out.device)):
        if actual != expected:
            raise RuntimeError(f"Expected out tensor to have {what} {expected}, but got {actual} instead")
