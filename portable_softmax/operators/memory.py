"""Calls that are kept, because most calls are like one before: all is decided but the tensors.

One memory holds them. A call is found there by all that it depends on (launching.key_of); or, if its tensors are like the last
ones of its shape, by torch's own guard of tensors. That is in every call, so it is plain: no call with `*arguments`, which is
slow in CPython, for one tensor. Functions of torch are bound when this is imported, because a call asks them all.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, strided
from torch._C import (
    _are_functorch_transforms_active,
    _dispatch_isTensorSubclassLike,
    _is_any_autocast_enabled,
    _is_tracing,
    _len_torch_dispatch_stack,
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


class Repeat(NamedTuple):
    """A call that was made, and may be made again of tensors that are like its own.

    Args:
        are_aligned: for each tensor, the result last if the caller gave one: whether it starts on a multiple of 16 bytes.
        are_alike: tells whether tensors are like them.
        call: of the tensors, or of what they were made of.
        spans: bytes from the first to the last element, for each tensor; None where there was no result.
        in_place: whether the result lay at the first tensor.
    """

    are_aligned: list[bool]
    are_alike: Callable[..., bool]
    call: Call
    spans: list[int] | None = None
    in_place: bool = False


# By all that a call depends on, the call; by kind and shape, the Repeats.
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


def nobody_listens(x: torch.Tensor, autocast: bool = True) -> bool:
    """Tells whether the dispatcher would only pass x on to the kernel, and to autograd if x needs a gradient.

    That is so for a plain strided tensor, unless a mode, a transform, forward mode, autocast, tracing or dynamo is at work.
    `autocast` is False for what does not depend on it.
    """
    return (
        not is_dynamo_compiling()
        and type(x) is Tensor
        # A dispatch mode, or x is meta, sparse, or of functorch's or torch.autograd.grad(is_grads_batched=True)'s.
        and not _dispatch_isTensorSubclassLike(x)
        and not _len_torch_function_stack()
        and not _are_functorch_transforms_active()
        and not (autocast and _is_any_autocast_enabled())
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
        and not _len_torch_dispatch_stack()  # the guard passes under torch's own modes, as make_fx has them
        and forward_ad._current_level < 0
    ):
        for are_aligned, is_alike, call, _, _ in repeats:
            if is_alike(x) and (not x.data_ptr() % VECTOR_BYTES) is are_aligned[0]:
                result: torch.Tensor = call(x)
                return result
    return None


def repeated_into(form: str, dim: int, dtype: torch.dtype | None, batch_invariant: bool, x: Tensor, out: Tensor) -> bool:
    """Repeats a call that wrote to a tensor like out, as `repeat_of` does, without its loops; returns False if no call did."""
    if (
        type(x) is Tensor and type(out) is Tensor and x.layout is strided and out.layout is strided
        and not x.is_nested and not out.is_nested
        and (repeats := find((form, dim, dtype, batch_invariant, x.shape, out is x)))
        and not _len_torch_function_stack()
        and not _len_torch_dispatch_stack()
        and forward_ad._current_level < 0
    ):  # fmt: skip
        first, place = x.data_ptr(), out.data_ptr()
        for (x_aligned, out_aligned), are_alike, call, (x_span, out_span), in_place in repeats:
            if (
                (first == place if in_place else first >= place + out_span or place >= first + x_span)
                and (not first % VECTOR_BYTES) is x_aligned and (not place % VECTOR_BYTES) is out_aligned
                and (are_alike(x) if out is x else are_alike(x, out))
            ):  # fmt: skip
                call(out, x)
                increment_version(out)
                return True
    return False


def repeated_pair(key: tuple[Any, ...], x: Tensor, ids: Tensor) -> Any:
    """Repeats a call of two tensors of a kind and shape, as `repeat_of` does, without its loops; returns None if no call is."""
    if (
        type(x) is Tensor and type(ids) is Tensor and x.layout is strided and ids.layout is strided
        and not x.is_nested and not ids.is_nested
        and (repeats := find(key))
        and not _len_torch_function_stack()
        and not _len_torch_dispatch_stack()
        and forward_ad._current_level < 0
    ):  # fmt: skip
        for (x_aligned, ids_aligned), are_alike, call, _, _ in repeats:
            if (
                are_alike(x, ids)
                and (not x.data_ptr() % VECTOR_BYTES) is x_aligned
                and (not ids.data_ptr() % VECTOR_BYTES) is ids_aligned
            ):
                return call(x, ids)
    return None


def repeat_of(repeats: Sequence[Repeat] | None, tensors: list[Tensor], out: Tensor | None = None) -> Call | None:
    """Returns the call that was made of tensors like these, if as few listen, as in `repeated`; None if there is none.

    Args:
        repeats: calls of one kind, which depend on nothing else but tensors.
        tensors: what is read.
        out: the result's, where the caller gives one: it lies to the first of `tensors` as it did, and apart from all others.
            The guard fails where it is one of inference mode outside of it.
    """
    if not repeats or _len_torch_function_stack() or _len_torch_dispatch_stack() or forward_ad._current_level >= 0:
        return None
    given = tensors if out is None else [*tensors, out]
    for each in given:
        if type(each) is not Tensor or each.layout is not strided or each.is_nested:
            return None
    guarded = tensors if out is tensors[0] else given
    for repeat in repeats:
        if repeat.are_alike(*guarded):  # so they have addresses
            places = [each.data_ptr() for each in given]
            if [not each % VECTOR_BYTES for each in places] == repeat.are_aligned and (out is None or _lies(places, repeat)):
                return repeat.call
    return None


def repeat_like(tensors: Sequence[Tensor], call: Call, out: Tensor | None = None) -> Repeat:
    """Returns the Repeat of a call of these tensors."""
    given = [*tensors] if out is None else [*tensors, out]
    are_aligned = [not each.data_ptr() % VECTOR_BYTES for each in given]
    guard = _guard(*(tensors if out is tensors[0] else given))
    if out is None:
        return Repeat(are_aligned, guard, call)
    return Repeat(are_aligned, guard, call, [span_of(each) for each in given], out.data_ptr() == tensors[0].data_ptr())


def remember(key: tuple[Any, ...], repeat: Repeat) -> None:
    """Lets a call be found by its kind and shape, ahead of those before."""
    keep(key, (repeat, *find(key, ())[: MOST_REPEATS - 1]))


def _lies(places: list[int], repeat: Repeat) -> bool:
    """Tells whether a result lies at the first tensor as it did, or else apart from it, and apart from all others."""
    assert repeat.spans
    (*read, out), (*spans, span) = places, repeat.spans
    past = out + span
    if repeat.in_place:
        if read.pop(0) != out:
            return False
        del spans[0]
    return not [1 for place, length in zip(read, spans, strict=True) if place < past and out < place + length]


def _guard(*tensors: torch.Tensor) -> Callable[..., bool]:
    """Returns the check by which torch.compile tells whether a graph may be used again, in one call of C++.

    It fails where two of its tensors are one.
    """
    guards = getattr(torch._C._dynamo.guards, "TensorGuards", None)
    if guards is None:
        return lambda *tensors: False  # all checks, each time
    sizes, strides = [list(each.shape) for each in tensors], [list(each.stride()) for each in tensors]
    are_alike: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
    return are_alike
