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
MOST_REPEATS = 8  # of one kind and shape, each a guard to ask: with and without a gradient, aligned or not, strides

Call = Callable[..., torch.Tensor]
Kind = tuple[str, int, torch.dtype | None, bool]  # form, dim, dtype and batch_invariant
Repeat = tuple[bool, Callable[[torch.Tensor], bool], Call]  # of aligned tensors; whether one is like a tensor before; its call

# By all that a call depends on, the call, or a step's launch (distributed/steps.py); by kind and shape, the Repeats.
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


def repeated(form: str, dim: int, dtype: torch.dtype | None, batch_invariant: bool, x: torch.Tensor) -> torch.Tensor | None:
    """Repeats a call of a kind and shape if x is like its tensor, and as few listen; returns None if no call is.

    The guard holds class, dispatch keys, type, device, sizes, strides, and whether a gradient is needed. Keys are those that
    the dispatcher would see in this thread: modes, torch.func, tracing and autocast add some.
    """
    if (
        type(x) is Tensor
        and x.layout is strided  # others have no sizes or strides, for want of which the guard would end the process
        and not x.is_nested
        and (repeats := find((form, dim, dtype, batch_invariant, x.shape)))
        and not _len_torch_function_stack()
        and forward_ad._current_level < 0
    ):
        for of_aligned, is_alike, call in repeats:
            if is_alike(x) and (not x.data_ptr() % VECTOR_BYTES) is of_aligned:
                result: torch.Tensor = call(x)
                return result
    return None


def remember(kind: Kind, x: torch.Tensor, call: Call) -> None:
    """Lets `repeated` find a call for tensors like x, to which nobody but autograd listens."""
    key = (*kind, x.shape)
    repeat = not x.data_ptr() % VECTOR_BYTES, _guard(x), call
    keep(key, (repeat, *find(key, ())[: MOST_REPEATS - 1]))


def _guard(x: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Returns the check by which torch.compile tells whether a graph may be used again, in one call of C++."""
    guards = getattr(torch._C._dynamo.guards, "TensorGuards", None)
    if guards is None:
        return lambda x: False  # all checks, each time
    is_alike: Callable[[torch.Tensor], bool] = guards(
        x, dynamic_dims_sizes=[list(x.shape)], dynamic_dims_strides=[list(x.stride())]
    ).check
    return is_alike
