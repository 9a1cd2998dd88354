"""Launches of calls with plain tensors, and the cache of calls.

A launch is bound once for all calls with the same key: planned, compiled, with all sizes. A call passes tensors and numbers.
"""

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
from portable_softmax.runtime.bind import allocator, guarded, pack
from portable_softmax.runtime.layout import bind_call, name_of

MASKS = {torch.bool: "bool", torch.int32: "bits"} | {dtype: name_of(dtype) for dtype in DTYPES}  # that kernels read
MAX_CALLS = 8192  # a process makes few kinds of calls, or so many that planning anew does not matter
calls: dict[tuple[Any, ...], Any] = {}
Run = Callable[..., Any]
FIELDS = {"d_out_ptr": "dpicked", "d_lse_ptr": "dlse", "d_entropy_ptr": "dentropy"}  # of arguments that kernels name otherwise
_DEVICE_TYPES = {vendor.torch_device_type for vendor in BACKENDS.values()}


def keep(key: tuple[Any, ...], call: Any) -> Any:
    """Caches a call, and returns it; a full cache is cleared first."""
    if len(calls) >= MAX_CALLS:
        calls.clear()
    return calls.setdefault(key, call)


def device_of(x: Tensor) -> Device:
    """Returns the device that a tensor is on."""
    return current_device(None if x.is_cpu else x.get_device())


def has_kernels(x: Tensor) -> bool:
    """True if kernels run on the device of x.

    Raises:
        DeviceError: x is on an accelerator that Triton does not drive.
    """
    if x.device.type not in _DEVICE_TYPES or (x.is_cpu and not interpreting()):
        return False
    return device_of(x).vendor.torch_device_type == x.device.type


def reason(x: Tensor, dim: int, scores: Scores | None, *dtypes: torch.dtype) -> str:
    """Returns what no kernel supports of a call, as text; "" for a call that one computes.

    Args:
        x: the largest input.
        dim: the dimension of rows.
        scores: as scores_of returns them.
        dtypes: of other tensors of that shape.
    """
    if not x.numel() or not x.dim():
        return "tensors without elements or dims"
    if not DTYPES.issuperset((x.dtype, *dtypes)):
        return " to ".join(str(dtype) for dtype in (x.dtype, *dtypes))
    if max(x.shape[dim], math.prod(x.shape[dim + 1 :])) > MAX_COLS:
        return f"rows of more than {MAX_COLS} elements"
    return "these options" if scores is None else ""


def scores_of(args: Any, softcap: float | None, **fields: Any) -> Scores | None:
    """Returns the scores that a kernel computes from x, with more fields of Scores; None if no kernel does."""
    named = args._asdict()
    mask, factors = named.get("mask"), [named.get(name) for name in ("scale", "temperature", "sink")]
    if mask is not None:
        if mask.dtype not in MASKS:
            return None
        fields["mask"] = MASKS[mask.dtype]
    if softcap is not None and not TINY < softcap < HUGE:
        return None
    if any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in factors):
        return None
    scale, temperature, sink = map(kind_of, factors)
    return Scores(scale=scale, temperature=temperature, cap=softcap, sink=sink is not None, **fields)


def kind_of(factor: Any) -> Any:
    """Returns how a kernel reads a factor or an integer: "number", "rows", or None for none."""
    if factor is None:
        return None
    return "number" if type(factor) is int or (type(factor) is float and TINY < factor < HUGE) else "rows"


def like_input(
    args: Any, n_inputs: int, dim: int, dtype: torch.dtype, about: dict[str, Any], out: Tensor | None,
    converted: Callable[[Any], Any] | None = None,
) -> Run:  # fmt: skip
    """Returns run(args, out) of a launch with one result of the shape of x.

    Args:
        args: of plain tensors, the first n_inputs of them of the shape of x.
        dim: the dimension of rows.
        dtype: of the result.
        about: what Problem describes of the computation.
        out: what is written: an input itself, or separate memory of its shape; None for a new contiguous tensor.
        converted: returns args with tensors as kernels read them.

    Raises:
        DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    inputs = args[:n_inputs]
    x = inputs[-1]
    y = x.new_empty(x.shape, dtype=dtype) if out is None else out
    launch, operands = _bound(args, (y, *inputs), 1, dim, about)
    empty, layout = allocator(x.device), _layout(y)

    def run(args: Any, out: Tensor | None = None) -> Tensor:
        y = empty(*layout) if out is None else out
        if converted is not None:
            args = converted(args)
        launch(y, *(args if operands is None else operands(args)))
        return y

    return guarded(run, device_of(x))


def per_row(
    args: Any,
    dim: int,
    about: dict[str, Any],
    results: tuple[Tensor, ...],
    converted: Callable[[Any], Any] | None = None,
) -> Run:
    """Returns run(args) of a launch with results of rows.

    Args:
        args, dim, about, converted: see `like_input`.
        results: contiguous tensors like them.
    """
    launch, operands = _bound(args, (args.x,), len(results), dim, about)
    empty, layouts = allocator(args.x.device), [_layout(result) for result in results]

    def run(args: Any, out: None = None) -> tuple[Tensor, ...]:
        made = tuple([empty(*layout) for layout in layouts])
        if converted is not None:
            args = converted(args)
        launch(*made, *(args if operands is None else operands(args)))
        return made

    return guarded(run, device_of(args.x))


def _bound(
    args: Any, tensors: tuple[Tensor, ...], n_results: int, dim: int, about: dict[str, Any]
) -> tuple[Callable[..., None], Callable[[Any], list[Any]] | None]:
    """Returns (launch, operands), where operands(args) are those behind the results; None if these are args as they are."""
    x, named = tensors[-1], args._asdict()
    launch = bind_call(tensors, dim, device_of(x), named.get("mask"), **about)
    fields = [FIELDS.get(name, name.removesuffix("_ptr")) for name in launch.operands[n_results:]]
    order = [args._fields.index(field) if field in named else len(named) for field in fields]
    shapes = [1 if at == dim else size for at, size in enumerate(x.shape)], x.shape[:-1]
    of_rows: list[Any] = []
    for at, (name, value) in enumerate(named.items()):
        if value is None or name not in (*FACTORS, *INTEGERS) or kind_of(value) == "number":
            continue
        of_rows.append((at, torch.Size(shapes[0]), torch.float32) if name in FACTORS else (at, shapes[1], torch.int64))
    device = x.device

    def operands(args: Any) -> list[Any]:
        values = [*args, None]
        for at, shape, dtype in of_rows:
            values[at] = _by_row(args[at], shape, dtype, device)
        return [values[at] for at in order]

    return launch, operands if of_rows or order != [*range(len(named))] else None


def _by_row(factor: Any, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns one number per row, contiguous."""
    if not isinstance(factor, Tensor):
        return torch.full(shape, factor, dtype=dtype, device=device)
    if factor.dtype is dtype and factor.shape == shape and factor.is_contiguous():
        return factor
    return factor.to(dtype).expand(shape).contiguous()


def _layout(t: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Returns the arguments of an allocator for a tensor like this one."""
    return tuple(t.shape), t.stride(), t.dtype


def packing(kept: Tensor) -> Callable[[Tensor, int], Tensor] | None:
    """Returns the launch that packs ids of kept elements into bits; None if no kernel does."""
    return guarded(pack, device_of(kept)) if kept.numel() and has_kernels(kept) else None
