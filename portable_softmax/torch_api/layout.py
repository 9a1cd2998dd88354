"""Tensors of any shape and strides as what the kernels take: matrices of contiguous lines (see kernels.py)."""

import math
from typing import Any, NamedTuple

import torch

from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, DtypeError
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.planning.request import check_dtype
from portable_softmax.runtime.launch import Call, bind, name_of

MOST_CALLS = 4096  # kept; a process sees few shapes, or so many that planning anew does not matter
SHORTEST_LINE = 16  # neighbouring rows below which rows are copied together: half of what memory moves would be unused


class Kept(NamedTuple):
    """What the next tensors of the same types, shapes, strides and alignment need."""

    call: Call
    alike: bool  # the result is of the type and strides of its model

    def new_like(self, model: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        """The contiguous result. empty_like takes half the time of empty, and a third without arguments."""
        if self.alike:
            return torch.empty_like(model)
        return torch.empty_like(model, dtype=dtype, memory_format=torch.contiguous_format)


_calls: dict[tuple[Any, ...], Kept] = {}


def wrap_dim(dim: int, rank: int) -> int:
    """The same dim, counted from 0.

    Raises:
        IndexError: there is no such dim; in torch's words.
    """
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim % limit


def softmax_of(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> torch.Tensor:
    """A new contiguous tensor: one launch, and a copy of x only where its strides or `batch_invariant` need one.

    Raises:
        IndexError, DtypeError, DeviceError, PlanError, CompileError: as ops.softmax.
    """
    aligned = x.data_ptr() % VECTOR_BYTES == 0  # torch allocates y so
    key = form, dim, dtype, x.dtype, x.shape, x.stride(), x.device, aligned, batch_invariant
    if kept := _calls.get(key):
        y = kept.new_like(x, dtype)
        kept.call(y, x)
        return y
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
    """The gradient of x, a new contiguous tensor, from that of y, and y.

    Raises:
        DtypeError: dy and y differ in type, or no kernel computes it.
        ValueError: dy and y differ in shape.
    """
    aligned = dy.data_ptr() % VECTOR_BYTES == y.data_ptr() % VECTOR_BYTES == 0
    layouts = dy.dtype, dy.shape, dy.stride(), y.dtype, y.shape, y.stride(), y.device
    key = form, dim, x_dtype, layouts, aligned, batch_invariant
    if kept := _calls.get(key):
        dx = kept.new_like(y, x_dtype)
        kept.call(dx, dy, y)
        return dx
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
        _keep(key, call, (dx, y, dy), (lines, y_lines, dy_lines))
    return dx


def _keep(key: tuple[Any, ...], call: Call, tensors: tuple[torch.Tensor, ...], lines: tuple[torch.Tensor, ...]) -> None:
    """For the next tensors like these, where nothing has to be copied: one look-up from tensor to launch.

    `tensors` and the `lines` that were launched: the result, what it is like, and others.
    """
    if any(each.data_ptr() != line.data_ptr() for each, line in zip(tensors, lines, strict=True)):
        return
    if len(_calls) >= MOST_CALLS:
        _calls.clear()
    result, model = tensors[:2]
    _calls[key] = Kept(call, (result.dtype, result.stride()) == (model.dtype, model.stride()))


def _matrices(shape: torch.Size, dim: int) -> tuple[int, int, int]:
    """(outer, n_cols, inner): the elements before dim, along it, and after it."""
    return math.prod(shape[:dim]), shape[dim] if shape else 1, math.prod(shape[dim + 1 :])


def _by_lines(shape: tuple[int, int, int], batch_invariant: bool) -> bool:
    """Whether the softmax is taken across lines of neighbouring rows, without copying rows together."""
    return shape[2] >= SHORTEST_LINE and not batch_invariant


def _lines(x: torch.Tensor, shape: tuple[int, int, int], batch_invariant: bool) -> torch.Tensor:
    """[rows, n_cols], or [outer, n_cols, inner] to go across lines; a copy where strides or alignment need one."""
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
    """Whether rows start on what their length alone lets expect, so that all are read alike."""
    vector = math.gcd(rows.shape[1], VECTOR_BYTES // rows.element_size())
    return rows.data_ptr() % VECTOR_BYTES == 0 and rows.stride(0) % vector == 0


def _new_lines(y: torch.Tensor, shape: tuple[int, int, int], batch_invariant: bool) -> torch.Tensor:
    """Where the kernel writes a contiguous y: y itself, or rows that are to be put back."""
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
