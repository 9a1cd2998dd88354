"""Turns tensors of any shape and strides into matrices of contiguous lines, which the kernels take (kernels/__init__.py)."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, DtypeError
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.planning.request import check_dtype
from portable_softmax.runtime.launch import bind, name_of

MOST_CALLS = 4096  # kept; a process sees few shapes, or so many that planning anew does not matter
SHORTEST_LINE = 16  # neighbouring rows below which rows are copied together: half of what memory moves would be unused


_again: dict[tuple[Any, ...], Callable[..., torch.Tensor]] = {}  # calls like one before, by all that they depend on


def wrap_dim(dim: int, rank: int) -> int:
    """Returns the same dim, counted from 0.

    Raises:
        IndexError: there is no such dim; in torch's words.
    """
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim % limit


def softmax_of(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> torch.Tensor:
    """Computes the softmax of x along dim in one launch; copies x only if its strides or `batch_invariant` need it.

    Args:
        x: any shape and strides, of one of the kernel's types.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        A new contiguous tensor of the shape of x.

    Raises:
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of functional.softmax.
    """
    aligned = x.data_ptr() % VECTOR_BYTES == 0  # torch allocates y so
    key = form, dim, dtype, x.dtype, x.shape, x.stride(), x.get_device(), aligned, batch_invariant
    if again := _again.get(key):
        return again(x)
    dtype = dtype or x.dtype
    dim = wrap_dim(dim, x.dim())
    device = _device_of(x, x.dtype, dtype)
    y = x.new_empty(x.shape, dtype=dtype)
    if x.numel():
        shape = _matrices(x.shape, dim)
        lines, x_lines = _new_lines(y, shape, batch_invariant), _lines(x, shape, batch_invariant)
        call = bind((lines, x_lines), x_lines, lines, form, False, device, batch_invariant)
        call(lines, x_lines)
        _put_back(lines, y, shape)
        _keep(key, call, (y, x), (lines, x_lines))
    return y


def gradient_of(
    dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, batch_invariant: bool
) -> torch.Tensor:
    """Computes the gradient of x from dy, the gradient of y, and y, in one launch.

    Args:
        dy, y: of one shape and type, any strides.
        dim: the axis along which y sums to 1.
        x_dtype: type of the result.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        A new contiguous tensor of the shape of y.

    Raises:
        DtypeError: dy and y differ in type, or no kernel computes it.
        ValueError: dy and y differ in shape.
    """
    aligned = dy.data_ptr() % VECTOR_BYTES == y.data_ptr() % VECTOR_BYTES == 0
    layouts = dy.dtype, dy.shape, dy.stride(), y.dtype, y.shape, y.stride(), y.get_device()
    key = form, dim, x_dtype, layouts, aligned, batch_invariant
    if again := _again.get(key):
        return again(dy, y)
    if dy.dtype != y.dtype:
        raise DtypeError(f"a gradient of {dy.dtype} was given for an output of {y.dtype}")
    if dy.shape != y.shape:
        raise ValueError(f"a gradient of shape {tuple(dy.shape)} was given for an output of shape {tuple(y.shape)}")
    dim = wrap_dim(dim, y.dim())
    device = _device_of(y, y.dtype, x_dtype)
    dx = y.new_empty(y.shape, dtype=x_dtype)
    if y.numel():
        shape = _matrices(y.shape, dim)
        lines = _new_lines(dx, shape, batch_invariant)
        dy_lines, y_lines = _lines(dy, shape, batch_invariant), _lines(y, shape, batch_invariant)
        call = bind((lines, dy_lines, y_lines), lines, y_lines, form, True, device, batch_invariant)
        call(lines, dy_lines, y_lines)
        _put_back(lines, dx, shape)
        _keep(key, call, (dx, dy, y), (lines, dy_lines, y_lines))
    return dx


def _keep(
    key: tuple[Any, ...],
    launch: Callable[..., None],
    tensors: tuple[torch.Tensor, ...],
    lines: tuple[torch.Tensor, ...],
) -> None:
    """Keeps a launch for the next tensors like these, unless something had to be copied.

    Args:
        key: everything that the launch depends on.
        launch: of the operands.
        tensors: the result, and the operands; the last of them has the result's shape.
        lines: what was launched for each of them.
    """
    if any(each.data_ptr() != line.data_ptr() for each, line in zip(tensors, lines, strict=True)):
        return
    result, model = tensors[0], tensors[-1]
    new_like: Callable[[torch.Tensor], torch.Tensor] = torch.empty_like  # quicker than empty, and quickest without arguments
    if (result.dtype, result.stride()) != (model.dtype, model.stride()):
        new_like = functools.partial(torch.empty_like, dtype=result.dtype, memory_format=torch.contiguous_format)

    def again(*operands: torch.Tensor) -> torch.Tensor:
        result = new_like(operands[-1])
        launch(result, *operands)
        return result

    if len(_again) >= MOST_CALLS:
        _again.clear()
    _again[key] = again


def _matrices(shape: torch.Size, dim: int) -> tuple[int, int, int]:
    """Returns (outer, n_cols, inner): the numbers of elements before dim, along it, and after it."""
    return math.prod(shape[:dim]), shape[dim] if shape else 1, math.prod(shape[dim + 1 :])


def _by_lines(shape: tuple[int, int, int], batch_invariant: bool) -> bool:
    """Tells whether the softmax is taken across lines of neighbouring rows, without copying rows together."""
    return shape[2] >= SHORTEST_LINE and not batch_invariant


def _lines(x: torch.Tensor, shape: tuple[int, int, int], batch_invariant: bool) -> torch.Tensor:
    """Returns x as [rows, n_cols], or [outer, n_cols, inner] to go across lines; a copy if strides or alignment need it."""
    outer, n_cols, inner = shape
    if inner == 1:
        lines = x.reshape(outer, n_cols)
    elif _by_lines(shape, batch_invariant):
        lines = x.reshape(shape)
    else:
        lines = x.reshape(shape).transpose(1, 2).reshape(outer * inner, n_cols)
    if lines.shape[-1] > 1 and lines.stride(-1) != 1:
        lines = lines.contiguous()
    if batch_invariant and not _aligned_by_length(lines):
        lines = lines.clone(memory_format=torch.contiguous_format)
    return lines


def _aligned_by_length(rows: torch.Tensor) -> bool:
    """Tells whether rows start on the multiple that their length alone implies, so that all are read alike."""
    vector = math.gcd(rows.shape[1], VECTOR_BYTES // rows.element_size())
    return rows.data_ptr() % VECTOR_BYTES == 0 and rows.stride(0) % vector == 0


def _new_lines(y: torch.Tensor, shape: tuple[int, int, int], batch_invariant: bool) -> torch.Tensor:
    """Returns the lines that the kernel writes for a contiguous y: y itself, or rows that `_put_back` copies into it."""
    outer, n_cols, inner = shape
    if inner == 1:
        return y.view(outer, n_cols)
    return y.view(shape) if _by_lines(shape, batch_invariant) else y.new_empty(outer * inner, n_cols)


def _put_back(lines: torch.Tensor, y: torch.Tensor, shape: tuple[int, int, int]) -> None:
    outer, n_cols, inner = shape
    if inner > 1 and lines.dim() == 2:
        y.view(shape).copy_(lines.view(outer, inner, n_cols).transpose(1, 2))


def _device_of(x: torch.Tensor, *dtypes: torch.dtype) -> Device:
    device = current_device(x.device.index)
    if device.vendor.torch_device_type != x.device.type:
        raise DeviceError(f"a tensor on {x.device} was given; {device} computes tensors on {device.vendor.torch_device_type}")
    for dtype in dtypes:
        check_dtype(name_of(dtype), device)
    return device
