"""Calls that are kept, because most calls are like one before: all is decided but the tensors.

One memory holds them. A call is found there by all that it depends on; or, if a tensor is like the last one of its shape, by
torch's own guard of tensors. They are in every call, so they are plain: no call with `*arguments`, which is slow in CPython.
Functions of torch are bound when this is imported, because a call asks them all.
"""

from collections.abc import Callable
from typing import Any

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

from portable_softmax.planning.problem import VECTOR_BYTES

MOST_CALLS = 8192  # kept, two of most shapes; a process sees few, or so many that planning anew does not matter

Call = Callable[..., torch.Tensor]
Kind = tuple[str, int, torch.dtype | None, bool]  # form, dim, dtype and batch_invariant
Repeat = tuple[Callable[[torch.Tensor], bool], Call]  # tells whether a tensor is like one before; a call for such


class Kept:
    """A call(x), or call(dy, y), and its repeats, by whether x needs a gradient."""

    __slots__ = ("call", "repeats")

    def __init__(self, call: Call) -> None:
        self.call, self.repeats = call, dict[bool, Repeat]()


# By all that a call depends on, a Kept, or a step's launch (distributed/steps.py); by kind and shape, the last Repeat.
_calls: dict[tuple[Any, ...], Any] = {}
find = _calls.get


def keep(key: tuple[Any, ...], call: Any) -> None:
    """Keeps a call; as soon as there are too many, all others are forgotten."""
    if len(_calls) >= MOST_CALLS:
        forget()
    _calls[key] = call


def forget() -> None:
    """Forgets all calls."""
    _calls.clear()


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


def repeated(kind: Kind, x: torch.Tensor) -> torch.Tensor | None:
    """Repeats the last call of a kind and shape if x is like its tensor, and as few listen; returns None if not.

    The guard holds class, dispatch keys, type, device, sizes, strides, and whether a gradient is needed. Keys are those that
    the dispatcher would see in this thread: modes, torch.func, tracing and autocast add some.
    """
    if (
        type(x) is Tensor
        and x.layout is strided  # others have no sizes or strides, for want of which the guard would end the process
        and not x.is_nested
        and (last := find((kind, x.shape)))
        and last[0](x)
        and not x.data_ptr() % VECTOR_BYTES
        and not _len_torch_function_stack()
        and forward_ad._current_level < 0
    ):
        result: torch.Tensor = last[1](x)
        return result
    return None


def remember(kind: Kind, x: torch.Tensor, kept: Kept, recording: Callable[[Call, torch.dtype, Kind], Call]) -> Call:
    """Returns the kept call for x, to which nobody but autograd listens, and makes it the last one of its kind and shape.

    Args:
        kind: what x is asked for.
        x: the tensor.
        kept: the call for tensors like x.
        recording: makes a call that autograd records, where it is enabled, of one that it does not see.
    """
    repeat = kept.repeats.get(x.requires_grad)
    if repeat is None:
        call = recording(kept.call, x.dtype, kind) if x.requires_grad else kept.call
        repeat = kept.repeats[x.requires_grad] = _guard(x), call
    if not x.data_ptr() % VECTOR_BYTES:
        keep((kind, x.shape), repeat)
    return repeat[1]


def _guard(x: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Returns the check by which torch.compile tells whether a graph may be used again, in one call of C++."""
    guards = getattr(torch._C._dynamo.guards, "TensorGuards", None)
    if guards is None:
        return lambda x: False  # all checks, each time
    is_alike: Callable[[torch.Tensor], bool] = guards(
        x, dynamic_dims_sizes=[list(x.shape)], dynamic_dims_strides=[list(x.stride())]
    ).check
    return is_alike
