"""Calls that are kept, because most calls are like one before: all is decided but the tensors.

A kept call is found by all that it depends on (layout.py), or, if a tensor is like the last one of its shape, by torch's own
guard of tensors. They are in every call, so they are plain: no call with `*arguments`, which is slow in CPython.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, strided
from torch._C import _len_torch_function_stack
from torch.autograd import forward_ad

from portable_softmax.devices.device import Device
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.runtime.guard import guard_of

MOST_CALLS = 4096  # kept; a process sees few shapes, or so many that planning anew does not matter

Call = Callable[..., torch.Tensor]
Kind = tuple[str, int, torch.dtype | None, bool]  # form, dim, dtype and batch_invariant
Repeat = tuple[Callable[[torch.Tensor], bool], Call]  # tells whether a tensor is like one before; a call for such


class Kept:
    """A call(x), or call(dy, y), and its repeats, by whether x needs a gradient."""

    __slots__ = ("call", "repeats")

    def __init__(self, call: Call) -> None:
        self.call, self.repeats = call, dict[bool, Repeat]()


_calls: dict[tuple[Any, ...], Kept] = {}
_last: dict[tuple[Kind, torch.Size], Repeat] = {}
find = _calls.get


def keep(key: tuple[Any, ...], call: Call) -> None:
    """Keeps a call by all that it depends on."""
    if len(_calls) >= MOST_CALLS:
        forget()
    _calls[key] = Kept(call)


def forget() -> None:
    """Forgets all calls."""
    _calls.clear()
    _last.clear()


def repeated(kind: Kind, x: torch.Tensor) -> torch.Tensor | None:
    """Repeats the last call of a kind and shape if x is like its tensor, and as few listen; returns None if not.

    The guard holds class, dispatch keys, type, device, sizes, strides, and whether a gradient is needed. Keys are those that
    the dispatcher would see in this thread: modes, torch.func, tracing and autocast add some.
    """
    if (
        type(x) is Tensor
        and x.layout is strided  # others have no sizes or strides, for want of which the guard would end the process
        and not x.is_nested
        and (last := _last.get((kind, x.shape)))
        and last[0](x)
        and not x.data_ptr() % VECTOR_BYTES
        and not _len_torch_function_stack()
        and forward_ad._current_level < 0
    ):
        return last[1](x)
    return None


def remember(kind: Kind, x: torch.Tensor, kept: Kept, recording: Callable[[Call], Call]) -> Call:
    """Returns the kept call for x, to which nobody but autograd listens, and makes it the last one of its kind and shape.

    Args:
        kind: what x is asked for.
        x: the tensor.
        kept: the call for tensors like x.
        recording: makes a call that autograd records, where it is enabled, of one that it does not see.
    """
    repeat = kept.repeats.get(x.requires_grad)
    if repeat is None:
        repeat = kept.repeats[x.requires_grad] = _guard(x), recording(kept.call) if x.requires_grad else kept.call
    if not x.data_ptr() % VECTOR_BYTES:
        _last[kind, x.shape] = repeat
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


def kept_call(launch: Callable[..., None], operands: Sequence[torch.Tensor], device: Device) -> Call:
    """Returns call(x), or call(dy, y), which allocates the result and launches on the current stream of the device.

    Args:
        launch: takes the operands while the device is the current one.
        operands: result and input, or result and both inputs, like those of each call.
        device: where they are.
    """
    new_like = _new_like(operands[0], operands[-1])
    is_current, made_current = guard_of(device)

    def softmax(x: torch.Tensor) -> torch.Tensor:
        if not is_current():
            with made_current():
                return softmax(x)
        y = new_like(x)
        launch(y, x)
        return y

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not is_current():
            with made_current():
                return gradient(dy, y)
        dx = new_like(y)
        launch(dx, dy, y)
        return dx

    return softmax if len(operands) == 2 else gradient


def _new_like(result: torch.Tensor, model: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns what makes tensors like `result` on the current device, from any like `model`, which has its shape."""
    shape, strides, dtype = tuple(result.shape), result.stride(), result.dtype
    # What torch.compile's programs allocate with, past the dispatcher, and so sooner than empty_like.
    empty_strided = getattr(torch._C._dynamo.guards, f"_empty_strided_{result.device.type}", None)
    if empty_strided and type(model) is torch.Tensor:
        return lambda _: empty_strided(shape, strides, dtype)
    if (dtype, strides) == (model.dtype, model.stride()):
        return torch.empty_like  # quicker than empty, and quickest without arguments
    return functools.partial(torch.empty_like, dtype=dtype, memory_format=torch.contiguous_format)
