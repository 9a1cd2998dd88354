"""Launches of calls with plain tensors, and the cache of calls: a launch is bound once for all calls with the same key."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.operators.arguments import DTYPES, HUGE, TINY
from portable_softmax.operators.checks import FACTORS, INTEGERS
from portable_softmax.planning.problem import MAX_COLS, Scores
from portable_softmax.runtime.bind import allocator, guarded
from portable_softmax.runtime.layout import NAMES, bind_call

MASKS = {torch.bool: "bool", torch.int32: "bits"} | NAMES  # that kernels read
MAX_CALLS = 8192  # a process makes few kinds of calls, or so many that planning anew does not matter
calls: dict[tuple[Any, ...], Any] = {}
_DEVICE_TYPES = {vendor.torch_device_type for vendor in BACKENDS.values()}


def device_of(x: Tensor) -> Device:
    """Returns the device that a tensor is on."""
    return current_device(None if x.is_cpu else x.get_device())


def has_kernels(x: Tensor) -> bool:
    """True if kernels run on the device of x; raises DeviceError on an accelerator that Triton does not drive."""
    if x.device.type not in _DEVICE_TYPES or (x.is_cpu and not interpreting()):
        return False
    return device_of(x).vendor.torch_device_type == x.device.type


def describe(x: Tensor, dim: int, scores: Scores | None, *dtypes: torch.dtype, **fields: Any) -> tuple[str, dict[str, Any]]:
    """Returns (what no kernel supports of a call with these scores and dtypes, or "", fields of Problem)."""
    reason = "these options" if scores is None else ""
    if not x.numel() or not x.dim():
        reason = "tensors without elements or dims"
    elif not DTYPES.issuperset((x.dtype, *dtypes)):
        reason = " to ".join(str(dtype) for dtype in (x.dtype, *dtypes))
    elif max(x.shape[dim], math.prod(x.shape[dim + 1 :])) > MAX_COLS:
        reason = f"rows of more than {MAX_COLS} elements"
    return reason, {"scores": scores, **fields}


def scores_of(args: Any, softcap: float | None, **fields: Any) -> Scores | None:
    """Returns the scores that a kernel computes from x, with more fields of Scores; None if no kernel does."""
    named = args._asdict()
    mask, scale, temperature, sink = (named.get(name) for name in ("mask", "scale", "temperature", "sink"))
    is_double = any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in args)
    if is_double or not (softcap is None or TINY < softcap < HUGE) or (mask is not None and mask.dtype not in MASKS):
        return None
    if mask is not None:
        fields["mask"] = MASKS[mask.dtype]
    kinds = {"scale": kind_of(scale), "temperature": kind_of(temperature)}
    return Scores(cap=softcap, sink=sink is not None, **kinds, **fields)


def kind_of(factor: Any) -> Any:
    """Returns how a kernel reads a factor or an integer: "number", "integer", "rows", or None for none."""
    if factor is None:
        return None
    if type(factor) is int:
        return "integer"
    return "number" if type(factor) is float and TINY < factor < HUGE else "rows"


def bound(operator: Any, args: Any, options: Any, about: dict[str, Any], out: Tensor | None) -> Callable[..., Any]:
    """Returns run(args, out), which launches calls like this one; raises DeviceError, PlanError or CompileError."""
    named, alike = args._asdict(), [t for t in args[: operator.whole] if t is not None]
    results = operator.empty(args, options) if out is None else out
    like_x, has_one = alike[-1], isinstance(results, Tensor)  # x, or y of a gradient; a result like it, or numbers per row
    made = (results,) if has_one else results
    dim, device, target = getattr(options, "dim", like_x.dim() - 1), like_x.device, device_of(like_x)
    operands, launch = bind_call((*made, *alike) if has_one else tuple(alike), dim, target, named.get("mask"), **about)
    empty, layouts = allocator(device), [(tuple(t.shape), t.stride(), t.dtype) for t in made]
    fields, known = [name.removesuffix("_ptr") for name in operands[len(made) :]], operator.operands
    order = [known.index(field) if field in known else len(known) for field in fields]
    row_shape = torch.Size([1 if at == dim else size for at, size in enumerate(like_x.shape)])
    in_rows = [(at, name) for at, name in enumerate(known) if kind_of(named.get(name)) == "rows"]
    of_rows = [(at, row_shape, torch.float32) for at, name in in_rows if name in FACTORS]
    of_rows += [(at, like_x.shape[:-1], torch.int64) for at, name in in_rows if name in INTEGERS]
    converted, is_plain = operator.converted, order == [*range(len(args))] and not of_rows and not operator.converted

    def run(args: Any, out: Tensor | None = None) -> Any:
        made = [empty(*layout) for layout in layouts] if out is None else [out]
        if not is_plain:
            values = [*(converted(args) if converted else args), None]
            for at, shape, dtype in of_rows:
                values[at] = _by_row(values[at], shape, dtype, device)
            args = [values[at] for at in order]
        launch(*made, *args)
        return made[0] if has_one else tuple(made)

    return guarded(run, target)


def _by_row(factor: Any, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns one number per row, contiguous."""
    if not isinstance(factor, Tensor):
        return torch.full(shape, factor, dtype=dtype, device=device)
    if factor.dtype is dtype and factor.shape == shape and factor.is_contiguous():
        return factor
    return factor.to(dtype).expand(shape).contiguous()
