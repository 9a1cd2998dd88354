"""Launches of calls with plain tensors, and the cache of calls: a launch is bound once for all calls with the same key."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.operators.arguments import DTYPES, HUGE, TINY, is_recorded, overlaps, overwrites
from portable_softmax.operators.checks import FACTORS, INTEGERS, with_size
from portable_softmax.planning.problem import MAX_COLS, Scores
from portable_softmax.runtime.bind import allocator, guarded
from portable_softmax.runtime.layout import NAMES, bind_call

MASKS = {torch.bool: "bool", torch.int32: "bits"} | NAMES  # that kernels read
CONTIGUOUS = dict.fromkeys((*FACTORS, "statistics", "d_out", "d_lse", "d_entropy"), torch.float32)  # read without strides
CONTIGUOUS |= dict.fromkeys((*INTEGERS, "ids"), torch.int64)
MAX_CALLS = 8192  # a process makes few kinds of calls, or so many that planning anew does not matter
calls: dict[tuple[Any, ...], Any] = {}
_DEVICE_TYPES = {vendor.torch_device_type for vendor in BACKENDS.values()}


class NoKernel(Exception):
    """There is no kernel for what the message names; the reference computes the call."""


def device_of(x: Tensor) -> Device:
    """Returns the device that a tensor is on."""
    if x.is_cpu:
        return current_device()
    return current_device(x.get_device())


def has_kernels(x: Tensor) -> bool:
    """True if kernels run on the device of x; raises DeviceError on an accelerator that Triton does not drive."""
    if x.device.type not in _DEVICE_TYPES or (x.is_cpu and not interpreting()):
        return False
    return device_of(x).vendor.torch_device_type == x.device.type


def check_supported(x: Tensor, dim: int, *dtypes: torch.dtype) -> None:
    """Raises NoKernel unless there is a kernel for rows of x along dim, and for results of these dtypes."""
    if not x.numel() or not x.dim():
        raise NoKernel("tensors without elements or dims")
    if not DTYPES.issuperset((x.dtype, *dtypes)):
        raise NoKernel(" to ".join(str(dtype) for dtype in (x.dtype, *dtypes)))
    if max(x.shape[dim], math.prod(x.shape[dim + 1 :])) > MAX_COLS:
        raise NoKernel(f"rows of more than {MAX_COLS} elements")


def scores_of(args: Any, softcap: float | None, **fields: Any) -> Scores:
    """Returns the scores that a kernel computes from x, with more fields of Scores; raises NoKernel if none does."""
    named = args._asdict()
    is_double = any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in args)
    if is_double or not (softcap is None or TINY < softcap < HUGE):
        raise NoKernel("these options")
    if named.get("mask") is not None:
        if args.mask.dtype not in MASKS:
            raise NoKernel(f"a mask of {args.mask.dtype}")
        fields["mask"] = MASKS[args.mask.dtype]
    kinds = {name: kind_of(named.get(name)) for name in ("scale", "temperature")}
    return Scores(cap=softcap, sink=named.get("sink") is not None, **kinds, **fields)


def kind_of(factor: Any) -> Any:
    """Returns how a kernel reads a factor or an integer: "number", "integer", "rows", or None for none."""
    if factor is None:
        return None
    if type(factor) is int:
        return "integer"
    if type(factor) is float and TINY < factor < HUGE:
        return "number"
    return "rows"


def bound(operator: Any, args: Any, options: Any, about: dict[str, Any], out: Tensor | None) -> Callable[..., Any]:
    """Returns run(args), or run(args, out) if there is one, which launches calls like this one.

    Raises NoKernel, DeviceError, PlanError or CompileError.
    """
    named, whole, made = args._asdict(), [t for t in args[: operator.whole] if t is not None], operator.empty(args, options)
    x = whole[-1]  # or y of a gradient
    if not has_kernels(x):
        raise NoKernel(f"tensors on {x.device.type}")
    if out is not None:
        _check_out(out, made[0], args)
        made = (out,)
    if operator.has_one_result:  # of the shape of x
        whole = [*made, *whole]
    dim, device, target = getattr(options, "dim", x.dim() - 1), x.device, device_of(x)
    operands, launch = bind_call(tuple(whole), dim, target, named.get("mask"), **about)
    names = [name.removesuffix("_ptr") for name in operands[len(made) :]]
    order = [(*named, name).index(name) for name in names]  # an absent one is behind those that are known
    converted: list[Any] = [(at, name) for at, name in enumerate(named) if name in CONTIGUOUS and kind_of(args[at]) == "rows"]
    if converted:
        shapes = dict.fromkeys(FACTORS, with_size(x, dim, 1)) | dict.fromkeys(INTEGERS, x.shape[:-1])
        converted = [(at, shapes.get(name) or args[at].shape, CONTIGUOUS[name]) for at, name in converted]
    is_plain = not converted and order == [*range(len(args))]
    empty, layouts = allocator(device), [(tuple(t.shape), t.stride(), t.dtype) for t in made]

    def run(args: Any, *made: Tensor) -> Any:
        results = made or [empty(*layout) for layout in layouts]
        if not is_plain:
            values = [*args, None]
            for at, shape, dtype in converted:
                values[at] = _contiguous(values[at], shape, dtype, device)
            args = [values[at] for at in order]
        launch(*results, *args)
        return operator.returned(results)

    return guarded(run, target)


def _check_out(out: Tensor, like: Tensor, args: Any) -> None:
    """Raises NoKernel unless a launch may write a result to out."""
    is_alike = (out.dtype, out.device, out.shape) == (like.dtype, like.device, like.shape)
    if overwrites(out, args[0]):
        is_alike = is_alike and out.stride() == args[0].stride()
    if not is_alike or overlaps(out) or is_recorded((out, *args)):
        raise NoKernel("this tensor for the result")


def _contiguous(value: Any, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns a number or a tensor as a contiguous tensor of this shape and dtype."""
    if not isinstance(value, Tensor):
        return torch.full(shape, value, dtype=dtype, device=device)
    if value.dtype is dtype and value.shape == shape and value.is_contiguous():
        return value
    return value.to(dtype).expand(shape).contiguous()
