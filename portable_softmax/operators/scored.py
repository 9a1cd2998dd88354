"""The softmax of scores, and its gradient, by one launch each."""

from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.errors import LayoutError
from portable_softmax.operators.arguments import check_gradient, device_of, wrap_dim
from portable_softmax.operators.asked import Asked
from portable_softmax.operators.kept import find, keep
from portable_softmax.operators.layout import Operands
from portable_softmax.operators.scored_plan import Factor, Wanted, as_kernels_take, planned
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.guard import guard_of, launch_on

Kept = Callable[..., torch.Tensor]  # of (x, mask, factors, sinks), and out if there was one


def forward(
    x: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    mask: torch.Tensor | None = None,
    factor: Factor = None,
    sink: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes the softmax of the scores of x along dim.

    Args:
        x: any shape and strides, of one of the kernel's types.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.
        scores: what becomes of x first.
        mask: of x's rank, with sizes that are those of x or 1, and any strides.
        factor: a number, or one for each row: contiguous, of the type that is computed in, in the order of x's rows.
        sink: one for each row, as `factor`.
        out: what the result is written to: of its shape and type, and any strides; x itself, or memory of no operand.

    Returns:
        `out`, or a new contiguous tensor of the shape of x.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
    """
    dtype = dtype or x.dtype
    wanted = Wanted(wrap_dim(dim, x.dim()), form, batch_invariant, scores, device_of(x, x.dtype, dtype))
    y = x.new_empty(x.shape, dtype=dtype) if out is None else out
    if x.numel():
        mask = mask.expand(x.shape) if mask is not None else None  # by strides of 0
        _launch((y, x), wanted, mask, factor, sink)
    return y


def backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    dim: int,
    x_dtype: torch.dtype,
    form: str,
    batch_invariant: bool,
    scores: Scores,
    factor: Factor = None,
) -> torch.Tensor:
    """Computes the gradient of x, without the derivative of the cap, from that of y, and y.

    Args:
        dy, y: of one shape and type, any strides.
        dim, form, batch_invariant, scores, factor: as in `forward`.
        x_dtype: type of the result.

    Returns:
        A new contiguous tensor of the shape of y.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    wanted = Wanted(check_gradient(dy, y, dim), form, batch_invariant, scores, device_of(y, y.dtype, x_dtype))
    dx = y.new_empty(y.shape, dtype=x_dtype)
    if y.numel():
        _launch((dx, dy, y.contiguous()), wanted, None, factor, None)
    return dx


def kept_like(asked: Asked, batch_invariant: bool, out: torch.Tensor | None = None) -> Kept | None:
    """Returns call(x, mask, factors, sinks), with out if there was one: what `forward` did for an `asked`, if that is kept."""
    x, device = asked.x, device_of(asked.x, asked.x.dtype, asked.dtype)
    y = x.new_empty(x.shape, dtype=asked.dtype) if out is None else out
    mask = None if asked.mask is None else asked.mask.expand(x.shape)
    wanted = Wanted(wrap_dim(asked.dim, x.dim()), asked.form, batch_invariant, asked.scores, device)
    wanted, factor = as_kernels_take(wanted, asked.by, y)
    launch = find(_key((y, x), wanted, mask, factor))
    if launch is None or (asked.factors is None and isinstance(factor, torch.Tensor)):
        return None
    shape, strides, dtype, empty = tuple(y.shape), y.stride(), y.dtype, allocator(y.device)
    current, number, made_current = guard_of(device)

    def call(x: torch.Tensor, mask: Any, factors: Any, sinks: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        if current() != number:
            with made_current():
                return call(x, mask, factors, sinks, out)
        y = empty(shape, strides, dtype) if out is None else out
        launch(y, x, *_tensors(mask, factors, sinks))
        return y

    return call


def _launch(operands: Operands, wanted: Wanted, mask: torch.Tensor | None, factor: Factor, sink: torch.Tensor | None) -> None:
    """Launches, as once planned for all operands like these."""
    wanted, factor = as_kernels_take(wanted, factor, operands[-1 if len(operands) == 3 else 0])
    key = _key(operands, wanted, mask, factor)
    launch = find(key)
    if launch is None:
        try:
            launch = planned(operands, wanted, mask, _number(factor))
        except LayoutError:
            _launch_slices(operands, wanted, mask, factor, sink)
            return
        keep(key, launch)
    given = (factor,) if len(operands) == 3 else (mask, factor, sink)
    launch_on(guard_of(wanted.device), launch, *operands, *_tensors(*given))


def _tensors(*given: Any) -> Operands:
    """Returns those that are tensors, which are the operands that the kernel has."""
    return tuple(each for each in given if isinstance(each, torch.Tensor))


def _number(factor: Factor) -> float:
    return factor if isinstance(factor, float | int) else 1.0


def _key(operands: Operands, wanted: Wanted, mask: torch.Tensor | None, factor: Factor) -> tuple[Any, ...]:
    """Returns all that a launch depends on."""
    dim, form, batch_invariant, scores, device = wanted
    layouts = tuple((each.dtype, each.shape, each.stride(), each.data_ptr() % VECTOR_BYTES == 0) for each in operands)
    masked = None if mask is None else (mask.stride(), mask.data_ptr() % VECTOR_BYTES == 0)
    in_place = operands[0].data_ptr() == operands[1].data_ptr()
    return "scores", form, dim, batch_invariant, scores, layouts, in_place, masked, _number(factor), device.index


def _launch_slices(
    operands: Operands, wanted: Wanted, mask: torch.Tensor | None, factor: Factor, sink: torch.Tensor | None
) -> None:
    """Launches once for each index of the outermost dimension: x and its mask together have more levels than a kernel."""
    shape = operands[0].shape
    own = len(shape) - 2 if wanted.scores.causal else wanted.dim
    outermost = next(at for at, size in enumerate(shape) if size > 1 and at not in (wanted.dim, own))

    def sliced(given: Factor, at: int) -> Any:
        """Returns the numbers of a slice's rows, which follow each other."""
        return given.view(shape[outermost], -1)[at] if isinstance(given, torch.Tensor) else given

    for at in range(shape[outermost]):
        taken = tuple(each.narrow(outermost, at, 1) for each in operands)
        part = None if mask is None else mask.narrow(outermost, at, 1)
        _launch(taken, wanted, part, sliced(factor, at), sliced(sink, at))
