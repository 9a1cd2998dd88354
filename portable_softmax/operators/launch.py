"""Launches of calls with plain tensors, and the cache of calls.

A launch is bound once for all calls with the same key: planned, compiled, with all sizes. A call passes tensors and numbers.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.operators.arguments import DTYPES, HUGE, TINY, Inputs, Options
from portable_softmax.planning.problem import MAX_COLS, LogProbs, Scores
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.bits import pack
from portable_softmax.runtime.guard import guarded
from portable_softmax.runtime.launch import name_of
from portable_softmax.runtime.layout import bind

FORMS = {False: "softmax", True: "log_softmax"}
MASKS = {torch.bool: "bool", torch.int32: "bits"} | {dtype: name_of(dtype) for dtype in DTYPES}  # that kernels read
MAX_CALLS = 8192  # a process makes few kinds of calls, or so many that planning anew does not matter
calls: dict[tuple[Any, ...], Any] = {}
NOTHING: tuple[Any, Any] = (), ()  # tensors of rows and numbers of a launch without factors
_DEVICE_TYPES = {vendor.torch_device_type for vendor in BACKENDS.values()}


class Call(NamedTuple):
    """Cached form of a call.

    Args:
        run: launches calls like it; None for one that the reference computes.
        options: what is computed: Options of a softmax; (dim, ignore_index, entropy, lse, zero_rows) of log-probabilities.
        needs: which inputs need a gradient; nothing if autograd does not record the call.
        voids: elements without weight have a gradient of 0, whatever that of the result is.
        x_dtype: type of the gradient of x.
        invariant: the choice of batch_invariant, which a gradient follows.
        apart: with out=, bytes between its address and those of tensors that it has no memory in common with.
        read_beside: with out=, which inputs are tensors, but for x where it is out itself.
    """

    run: Callable[..., Any] | None
    options: Any
    needs: tuple[bool, ...]
    voids: bool = False
    x_dtype: torch.dtype = torch.float32
    invariant: bool = False
    apart: int = 0
    read_beside: tuple[int, ...] = ()


def keep(key: tuple[Any, ...], call: Any) -> Any:
    """Caches a call, and returns it; a full cache is cleared first."""
    if len(calls) >= MAX_CALLS:
        calls.clear()
    return calls.setdefault(key, call)


def device_of(x: Tensor) -> Device:
    """Returns the device that a tensor is on."""
    return current_device(None if x.is_cpu else x.get_device())


def softmax(inputs: Inputs, options: Options, invariant: bool, out: Tensor | None = None) -> Callable[..., Tensor] | None:
    """Returns run(out, inputs), which launches calls like this one; None if no kernel computes them.

    Args:
        inputs: of plain tensors.
        options: what is computed.
        invariant: the bits of a row must not depend on other rows.
        out: what is written: x itself, or separate memory of its shape; None for a new contiguous tensor.

    Raises:
        DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    x, mask = inputs[:2]
    scores = scores_of(inputs, options)
    if scores is None or not _is_launched(x, options.dim, options.dtype):
        return None
    if torch.promote_types(x.dtype, options.dtype) != options.dtype:  # torch rounds x first, and kernels do not
        return None
    y = x.new_empty(x.shape, dtype=options.dtype) if out is None else out
    form, plain = FORMS[options.log], not scores
    launch, rows_of = _bound((y, x), 1, options.dim, mask, form=form, batch_invariant=invariant, scores=scores)
    empty, layout, shape = allocator(x.device), _layout(y), _row_shape(x, options.dim)

    def run(out: Tensor | None, inputs: Inputs) -> Tensor:
        x, mask, scale, temperature, sink, _ = inputs
        y = empty(*layout) if out is None else out
        if plain:
            launch(y, x)
            return y
        of_rows, numbers = rows_of(scale, temperature, x) if rows_of else NOTHING
        sinks = () if sink is None else (_by_row(sink, shape, x),)
        launch(*((y, x) if mask is None else (y, x, mask)), *of_rows, *sinks, *numbers)
        return y

    return guarded(run, device_of(x))


def gradient(
    dy: Tensor, y: Tensor, factors: Inputs, log: bool, dim: int, voids: bool, dtype: torch.dtype, invariant: bool
) -> Callable[..., Tensor] | None:
    """Returns run(dy, y, factors), which launches `reference.gradient` of plain tensors; None if no kernel computes it."""
    x, _, scale, temperature, _, softcap = factors
    fields, capped = _fields_of(scale, temperature, softcap), x is not None
    if fields is None or not _is_launched(y, dim, dtype):
        return None
    scores = Scores(**fields | {"mask": "bool" if voids else None})
    dx = y.new_empty(y.shape, dtype=dtype)
    tensors = (dx, dy, y, x) if capped else (dx, dy, y)
    launch, rows_of = _bound(tensors, 1, dim, form=FORMS[log], backward=True, batch_invariant=invariant, scores=scores)
    empty, layout, plain = allocator(y.device), _layout(dx), rows_of is None and not capped

    def run(dy: Tensor, y: Tensor, factors: Inputs) -> Tensor:
        dx = empty(*layout)
        if plain:
            launch(dx, dy, y)
            return dx
        of_rows, numbers = rows_of(factors.scale, factors.temperature, y) if rows_of else NOTHING
        launch(*((dx, dy, y, factors.x) if capped else (dx, dy, y)), *of_rows, *numbers)
        return dx

    return guarded(run, device_of(y))


def log_probs(inputs: Any, options: Any, invariant: bool) -> Callable[..., Any] | None:
    """Returns run(inputs), which launches calls like this one; None if no kernel computes them.

    `run` returns (log-probabilities, statistics of rows: the logsumexp first, and entropies last if they are requested).

    Args:
        inputs: (x, ids, mask, scale, temperature, softcap), of plain tensors.
        options: (dim, ignore_index, entropy, lse, zero_rows).
        invariant: the bits of a row must not depend on other rows.
    """
    (x, ids, mask), (dim, ignore_index, entropy, lse, zero_rows) = inputs[:3], options
    fields = problem_fields(inputs, x.dtype, invariant, zero_rows, entropy=entropy, lse=lse)
    if fields is None or not _is_launched(x, dim):
        return None
    sizes = {"n_ids": ids.shape[-1] if ids.dim() == x.dim() else 1, "ignored": ignore_index}
    launch, rows_of = _bound((x,), 0, dim, mask, sizes=sizes, **fields)
    empty, as_is, rows = (
        allocator(x.device),
        ids.dtype is torch.int64 and ids.is_contiguous(),
        (*x.shape[:dim], *x.shape[dim + 1 :]),
    )
    shapes = ids.shape, (fields["log_probs"].n_statistics, *rows)
    layout, of_statistics = (_layout(torch.empty(shape, dtype=torch.float32, device="meta")) for shape in shapes)

    def run(inputs: Any) -> tuple[Tensor, Tensor]:
        x, ids, mask, scale, temperature, _ = inputs
        picked, statistics = empty(*layout), empty(*of_statistics)
        ids = ids if as_is else ids.to(torch.int64).contiguous()
        of_rows, numbers = rows_of(scale, temperature, x) if rows_of else NOTHING
        launch(*((x,) if mask is None else (x, mask)), *of_rows, statistics, ids, picked, *numbers)
        return picked, statistics

    return guarded(run, device_of(x))


def log_probs_gradient(
    inputs: Any, options: Any, in_place: bool, results: tuple[Tensor, ...], lse: bool, entropy: bool
) -> Callable[..., Tensor] | None:
    """Returns run(inputs, results), which launches the gradient of x; None if no kernel computes it.

    Args:
        inputs: (x, ids, mask, scale, temperature, softcap), of plain tensors.
        options: (dim, ignore_index, zero_rows).
        in_place: the gradient is written over x.
        results: the statistics, and gradients of log-probabilities, entropies and logsumexp, those that there are.
        lse, entropy: logsumexp and entropies have a gradient.
    """
    (x, ids, mask), (dim, ignore_index, zero_rows) = inputs[:3], options
    sizes = {"n_ids": ids.shape[-1] if ids.dim() == x.dim() else 1, "ignored": ignore_index}
    many = sizes["n_ids"] != 1
    fields = problem_fields(inputs, None, False, zero_rows, gradient=True, many=many, entropy=entropy, lse=lse)
    # The derivative of a cap is that of the score ahead of an added mask, and the kernel has the score behind it.
    unknown = inputs[-1] is not None and mask is not None and mask.is_floating_point()
    if fields is None or unknown or not _is_launched(x, dim):
        return None
    dx = x if in_place else x.new_empty(x.shape)
    launch, rows_of = _bound((dx, x), 1, dim, mask, sizes=sizes, **fields)
    empty, layout = allocator(x.device), _layout(dx)
    as_is, contiguous = ids.dtype is torch.int64 and ids.is_contiguous(), all(t.is_contiguous() for t in results)

    def run(inputs: Any, results: tuple[Tensor, ...]) -> Tensor:
        x, ids, mask, scale, temperature, _ = inputs
        dx = x.detach() if in_place else empty(*layout)
        statistics, *dresults = results if contiguous else [t.contiguous() for t in results]
        ids = ids if as_is else ids.to(torch.int64).contiguous()
        of_rows, numbers = rows_of(scale, temperature, x) if rows_of else NOTHING
        launch(*((dx, x) if mask is None else (dx, x, mask)), *of_rows, statistics, ids, *dresults, *numbers)
        return dx

    return guarded(run, device_of(x))


def sample(inputs: Any, invariant: bool) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Returns run(inputs), which draws (ids, log-probabilities) of calls like this one; None if no kernel does.

    Args:
        inputs: sample.Inputs, of plain tensors.
        invariant: the bits of log-probabilities must not depend on other rows.
    """
    x, mask, temperature, min_p, softcap, *keys = inputs
    kinds = [_kind(min_p), *("rows" if isinstance(key, Tensor) else "number" for key in keys)]
    about = {"sample": True, **dict(zip(("min_p", "seed", "position"), kinds, strict=True))}
    fields = problem_fields((x, None, mask, None, temperature, softcap), x.dtype, invariant, **about)
    if fields is None or not _is_launched(x, x.dim() - 1):
        return None
    launch, rows_of = _bound((x,), 0, x.dim() - 1, mask, **fields)
    empty, shape, rows = allocator(x.device), _row_shape(x, x.dim() - 1), x.shape[:-1]
    layouts = [_layout(torch.empty(rows, dtype=dtype, device="meta")) for dtype in (torch.int64, torch.float32)]

    def run(inputs: Any) -> tuple[Tensor, Tensor]:
        x, mask, temperature, min_p, _, *keys = inputs
        ids, picked = empty(*layouts[0]), empty(*layouts[1])
        of_rows, numbers = rows_of(None, temperature, x) if rows_of else NOTHING
        factors = [_by_row(min_p, shape, x) if kinds[0] == "rows" else min_p]
        factors += [key.to(torch.int64).expand(rows).contiguous() if isinstance(key, Tensor) else key for key in keys]
        tensors = [factor for kind, factor in zip(kinds, factors, strict=True) if kind == "rows"]
        integers = [factor for kind, factor in zip(kinds, factors, strict=True) if kind == "number"]
        launch(*((x,) if mask is None else (x, mask)), *of_rows, *tensors, ids, picked, *numbers, *integers)
        return ids, picked

    return guarded(run, device_of(x))


def scores_of(inputs: Inputs, options: Options) -> Scores | None:
    """Returns the scores that a kernel computes from x before a softmax; None if no kernel does."""
    _, mask, scale, temperature, sink, softcap = inputs
    fields = _fields_of(scale, temperature, softcap, mask, options.zero_rows)
    if fields is None or (isinstance(sink, Tensor) and sink.dtype is torch.float64):
        return None
    return Scores(**fields, causal=options.causal or None, sink=sink is not None)  # type: ignore[arg-type]


def problem_fields(
    inputs: Any, y_dtype: torch.dtype | None, invariant: bool, zero_rows: bool = False, **about: Any
) -> dict[str, Any] | None:
    """Returns the fields of a Problem of log-probabilities, with LogProbs(**about); None if no kernel computes the scores."""
    _, _, mask, scale, temperature, softcap = inputs
    fields = _fields_of(scale, temperature, softcap, mask, zero_rows)
    if fields is None:
        return None
    scores, wanted = Scores(**fields), LogProbs(**about)
    return {"form": "log_softmax", "batch_invariant": invariant, "scores": scores, "log_probs": wanted, "y_dtype": y_dtype}


def _fields_of(
    scale: Any, temperature: Any, softcap: float | None, mask: Tensor | None = None, zero_rows: bool = False
) -> dict[str, Any] | None:
    """Returns the fields of Scores for factors, a cap and a mask; None if no kernel computes them."""
    if mask is not None and mask.dtype not in MASKS:
        return None
    if softcap is not None and not TINY < softcap < HUGE:
        return None
    if any(isinstance(t, Tensor) and t.dtype is torch.float64 for t in (scale, temperature)):
        return None
    of_mask = {"mask": None if mask is None else MASKS[mask.dtype], "zero_rows": zero_rows}
    return {"scale": _kind(scale), "temperature": _kind(temperature), "cap": softcap, **of_mask}


def _kind(factor: Any) -> Any:
    """Returns how a kernel reads a factor: "number", "rows", or None for none."""
    return None if factor is None else "number" if not isinstance(factor, Tensor) and TINY < factor < HUGE else "rows"


def packing(kept: Tensor) -> Callable[[Tensor, int], Tensor] | None:
    """Returns the launch that packs ids of kept elements into bits; None if no kernel does."""
    return guarded(pack, device_of(kept)) if kept.numel() and _has_kernels(kept) else None


def _has_kernels(x: Tensor) -> bool:
    """True if kernels run on the device of x."""
    return not (x.is_cpu and not interpreting()) and x.device.type in _DEVICE_TYPES


def _is_launched(x: Tensor, dim: int, *dtypes: torch.dtype) -> bool:
    """True if kernels run on the device of x, compute these types, and address its rows.

    Raises:
        DeviceError: x is on an accelerator that Triton does not drive.
    """
    if not x.dim() or not DTYPES.issuperset((x.dtype, *dtypes)):
        return False
    if not _has_kernels(x):
        return False
    if max(x.shape[dim], math.prod(x.shape[dim + 1 :])) > MAX_COLS:
        return False
    return device_of(x).vendor.torch_device_type == x.device.type


def _bound(
    tensors: tuple[Tensor, ...], n_results: int, dim: int, mask: Tensor | None = None, sizes: Any = None, **about: Any
) -> tuple[Callable[..., None], Callable[..., tuple[Any, Any]] | None]:
    """Returns (launch, rows_of): rows_of(scale, temperature, x) returns (tensors of rows, numbers); None without factors."""
    x, scores = tensors[-1], about["scores"]
    launch = bind(tensors, n_results, dim, device_of(x), mask, sizes, **about)
    kinds, shape = (scores.scale, scores.temperature), _row_shape(x, dim)

    def rows_of(scale: Any, temperature: Any, x: Tensor) -> tuple[Any, Any]:
        factors = tuple(zip(kinds, (scale, temperature), strict=True))
        of_rows = [_by_row(factor, shape, x) for kind, factor in factors if kind == "rows"]
        return of_rows, [float(factor) for kind, factor in factors if kind == "number"]

    return launch, None if kinds == (None, None) else rows_of


def _row_shape(x: Tensor, dim: int) -> torch.Size:
    """Returns the shape of one number for each row, which broadcasts against x."""
    return torch.Size([1 if at == dim else size for at, size in enumerate(x.shape)])


def _by_row(factor: Any, shape: torch.Size, x: Tensor) -> Tensor:
    """Returns one number for each row, contiguous, in float32."""
    if isinstance(factor, Tensor):
        if factor.dtype is torch.float32 and factor.shape == shape and factor.is_contiguous():
            return factor
        return factor.to(torch.float32).expand(shape).contiguous()
    return torch.full(shape, factor, dtype=torch.float32, device=x.device)


def _layout(t: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
    """Returns the arguments of an allocator for a tensor like this one."""
    return tuple(t.shape), t.stride(), t.dtype
