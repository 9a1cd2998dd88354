"""Calls that are kept, because most calls are like one before: all is decided but the tensors.

One memory holds them. A call is found there by all that it depends on; or, if a tensor is like the last one of its shape, by
torch's own guard of tensors. They are in every call, so they are plain: no call with `*arguments`, which is slow in CPython.
Functions of torch are bound when this is imported, because a call asks them all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from portable_softmax.operators.overlap import span_of
from portable_softmax.planning.problem import VECTOR_BYTES

MOST_CALLS = 8192  # kept, two of most shapes; a process sees few, or so many that planning anew does not matter
MOST_REPEATS = 8  # of one kind and shape, each a guard to ask: with and without a gradient, aligned or not, strides

Call = Callable[..., torch.Tensor]
Kind = tuple[str, int, torch.dtype | None, bool]  # form, dim, dtype and batch_invariant
Repeat = tuple[bool, Callable[[torch.Tensor], bool], Call]  # of aligned tensors; whether one is like a tensor before; its call


class Written(NamedTuple):
    """A call that wrote to a tensor of its caller.

    Args:
        aligned: whether x and out start on a multiple of 16 bytes.
        spans: bytes from the first to the last element of x and of out.
        in_place: whether out is x.
        are_alike: tell whether tensors are like x and out.
        call: call(out, x).
    """

    aligned: tuple[bool, bool]
    spans: tuple[int, int]
    in_place: bool
    are_alike: tuple[Callable[[torch.Tensor], bool], Callable[[torch.Tensor], bool]]
    call: Callable[[torch.Tensor, torch.Tensor], None]


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


def repeated_into(form: str, dim: int, dtype: torch.dtype | None, batch_invariant: bool, x: Tensor, out: Tensor) -> bool:
    """Repeats a call that wrote to a tensor like out, where it lies to x as it did; returns False if no call did.

    The guards are those of `repeated`: they fail where autograd would follow a tensor, and where out is one of inference mode
    outside of it.
    """
    if (
        type(x) is Tensor and type(out) is Tensor and x.layout is strided and out.layout is strided
        and not x.is_nested and not out.is_nested
        and (written := find(("into", form, dim, dtype, batch_invariant, x.shape, out.shape)))
        and not _len_torch_function_stack()
        and forward_ad._current_level < 0
    ):  # fmt: skip
        first, out_first = x.data_ptr(), out.data_ptr()
        aligned = not first % VECTOR_BYTES, not out_first % VECTOR_BYTES
        for each in written:
            lies_so = first == out_first if each.in_place else _are_apart(first, out_first, each.spans)
            if lies_so and each.aligned == aligned and each.are_alike[0](x) and each.are_alike[1](out):
                each.call(out, x)
                increment_version(out)
                return True
    return False


def remember_into(kind: Kind, x: Tensor, out: Tensor, call: Callable[[Tensor, Tensor], None]) -> None:
    """Lets `repeated_into` find a call that writes to tensors like out, if that is x or all of it lies ahead of x or behind."""
    key, first, out_first, spans = ("into", *kind, x.shape, out.shape), x.data_ptr(), out.data_ptr(), (span_of(x), span_of(out))
    if first != out_first and not _are_apart(first, out_first, spans):
        return
    aligned = first % VECTOR_BYTES == 0, out_first % VECTOR_BYTES == 0
    written = Written(aligned, spans, first == out_first, (_guard(x), _guard(out)), call)
    keep(key, (written, *find(key, ())[: MOST_REPEATS - 1]))


def _are_apart(first: int, out_first: int, spans: tuple[int, int]) -> bool:
    """Tells whether all memory of a result lies ahead of that of the input, or behind it."""
    return first + spans[0] <= out_first or out_first + spans[1] <= first


def _guard(x: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Returns the check by which torch.compile tells whether a graph may be used again, in one call of C++."""
    guards = getattr(torch._C._dynamo.guards, "TensorGuards", None)
    if guards is None:
        return lambda x: False  # all checks, each time
    is_alike: Callable[[torch.Tensor], bool] = guards(
        x, dynamic_dims_sizes=[list(x.shape)], dynamic_dims_strides=[list(x.stride())]
    ).check
    return is_alike
