"""Keys of the arguments that a launch depends on, and the memory that it writes to."""

from typing import Any

import torch
from torch import Tensor

# True of tensors under dispatch modes and functorch, of subclasses, sparse and meta tensors, in one call of 60 ns; modes and
# functorch have no public name (2.6 to 2.13). torch.jit.is_tracing is _is_tracing behind two calls of Python (2.6 to 2.13).
from torch._C import _dispatch_isTensorSubclassLike, _is_tracing
from torch.autograd import forward_ad  # _current_level takes 8 ns, the public unpack_dual 200 for each tensor (2.6 to 2.13)
from torch.compiler import is_compiling
from torch.nn import Parameter

from portable_softmax.operators.checks import check_tensor
from portable_softmax.planning.problem import VECTOR_BYTES

# True under functorch, where Function.apply is refused, even of plain tensors that a transformed function closes over; it has
# no public name (2.6 to 2.13).
transforms_are_active = torch._C._are_functorch_transforms_active
DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32))  # of kernels
TINY, HUGE = 2.0**-60, 2.0**60  # kernels multiply by numbers between them, and by their quotients
Factor = Tensor | float | None


def key_of(arguments: Any) -> tuple[Any, ...] | None:
    """Returns the key of arguments: of a tensor everything but its elements, of a float its magnitude, of an integer nothing.

    None for a call that no launch computes: a tensor is not plain, in forward mode, or under torch.jit.trace.
    """
    if forward_ad._current_level >= 0 or _is_tracing():
        return None
    key: list[Any] = []
    for t in arguments:
        if t is None:
            key.append(None)
        elif (kind := type(t)) is Tensor or kind is Parameter:
            if _dispatch_isTensorSubclassLike(t) or t.is_nested or t.is_neg() or t.layout is not torch.strided:
                return None
            if not (start := t.data_ptr()):  # empty, or a zero tensor of autograd
                return None
            key += t.dtype, t.shape, t.stride(), start % VECTOR_BYTES == 0, t.get_device(), t.requires_grad
        elif kind is float:
            key += kind, TINY < t < HUGE
        elif kind is int:
            key.append(kind)
        else:  # a subclass, or a symbol of a compiler
            return None
    return tuple(key)


def is_plain(t: Any) -> bool:
    """True for a tensor with elements in strided memory of its own, that no mode, functorch level or subclass observes."""
    return isinstance(t, Tensor) and key_of((t,)) is not None


def is_recorded(arguments: Any) -> bool:
    """True if autograd records a call."""
    return torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in arguments)


def overwrites(out: Tensor, x: Tensor) -> bool:
    """True if elements of a result lie where those of x do, if their strides are equal."""
    return out.data_ptr() == x.data_ptr() and out.dtype is x.dtype


def share_memory(one: Tensor, other: Tensor) -> bool:
    """True if the memory from the first element to the last one overlaps that of another tensor."""
    distance = other.data_ptr() - one.data_ptr()
    return -_extent(other) < distance < _extent(one)


def _extent(t: Tensor) -> int:
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


def check_inplace(name: str, x: Any) -> None:
    """Raises RuntimeError unless the gradient of logits that autograd records may be written over them."""
    if is_compiling() or transforms_are_active() or not is_plain(x) or not is_recorded((x,)):
        return
    # No public name says why a view may not be written; torch's own compilers use this one (2.6 to 2.13).
    views, base = torch._C._autograd, x._base
    if x.is_leaf or (base is not None and base.is_leaf and base.requires_grad):
        reason = "are a leaf or a view of one, and its elements would be lost"
    elif x._is_view() and views._get_creation_meta(x) != views.CreationMeta.DEFAULT:
        reason = "are a view that autograd forbids to write to, such as a part of split() or unbind(); pass the whole tensor"
    elif overlaps(x):
        reason = f"share memory among themselves, by strides of {x.stride()}; use contiguous()"
    else:
        return
    raise RuntimeError(f"{name}(): grad_inplace=True would write over logits that {reason}")


def written(name: str, out: Any, y: Tensor) -> Tensor:
    """Writes a result to out and returns it, resized with torch's warning; raises torch's errors."""
    check_tensor(name, "out", out)
    for what, expected, actual in (("dtype", y.dtype, out.dtype), ("device", y.device, out.device)):
        if actual != expected:
            raise RuntimeError(f"Expected out tensor to have {what} {expected}, but got {actual} instead")
    return torch.mul(y, 1, out=out)
