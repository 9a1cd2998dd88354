"""Launches on tensors of any shape and strides: as they lie, if they are lines (planning/lines.py), or copies of them."""

import math
from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, DtypeError, LayoutError
from portable_softmax.planning.lines import Lines, lines_of
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.planning.request import check_dtype
from portable_softmax.runtime.guard import on_device
from portable_softmax.runtime.launch import bind, name_of
from portable_softmax.torch_api.kept import Kept, find, keep, kept_call


def wrap_dim(dim: int, rank: int) -> int:
    """Returns the same dim, counted from 0.

    Raises:
        IndexError: there is no such dim; in torch's words.
        ValueError: it has more than 64 bits; so too.
    """
    limit = max(rank, 1)
    if not -limit <= dim < limit:
        if not -(2**63) <= dim < 2**63:
            raise ValueError("Overflow when unpacking long long")
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim % limit


def check_gradient(dy: torch.Tensor, y: torch.Tensor, dim: int) -> int:
    """Returns the dim of a gradient, counted from 0, of tensors on any device, or on none.

    Raises:
        DtypeError, ValueError: dy and y differ in type, or in shape.
        IndexError: there is no such dim.
    """
    if dy.dtype != y.dtype:
        raise DtypeError(f"a gradient of {dy.dtype} was given for an output of {y.dtype}")
    if dy.shape != y.shape:
        raise ValueError(f"a gradient of shape {tuple(dy.shape)} was given for an output of shape {tuple(y.shape)}")
    return wrap_dim(dim, y.dim())


def kept_like(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> Kept | None:
    """Returns what softmax_of keeps for tensors like x; None before the first."""
    return find(_key(x, dim, dtype, form, batch_invariant))


def _key(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> tuple[Any, ...]:
    aligned = x.data_ptr() % VECTOR_BYTES == 0  # torch allocates y so
    return form, dim, dtype, x.dtype, x.shape, x.stride(), x.get_device(), aligned, batch_invariant


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
    key = _key(x, dim, dtype, form, batch_invariant)
    if kept := find(key):
        return kept.call(x)
    dtype = dtype or x.dtype
    dim = wrap_dim(dim, x.dim())
    device = device_of(x, x.dtype, dtype)
    y = x.new_empty(x.shape, dtype=dtype)
    if x.numel():
        _launch(key, (y, x), dim, form, False, device, batch_invariant)
    return y


def gradient_of(
    dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, batch_invariant: bool
) -> torch.Tensor:
    """Computes the gradient of x from dy, the gradient of y, and y, in one launch.

    Args:
        dy, y: of one shape and type, any strides; a y that is not contiguous is copied.
        dim: the axis along which y sums to 1.
        x_dtype: type of the result.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        A new contiguous tensor of the shape of y.

    Raises:
        IndexError, DtypeError, ValueError: the cases of check_gradient.
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    aligned = dy.data_ptr() % VECTOR_BYTES == y.data_ptr() % VECTOR_BYTES == 0
    layouts = dy.dtype, dy.shape, dy.stride(), y.dtype, y.shape, y.stride(), y.get_device()
    key = form, dim, x_dtype, layouts, aligned, batch_invariant
    if kept := find(key):
        return kept.call(dy, y)
    dim = check_gradient(dy, y, dim)
    device = device_of(y, y.dtype, x_dtype)
    dx = y.new_empty(y.shape, dtype=x_dtype)
    if y.numel():
        _launch(key, (dx, dy, y), dim, form, True, device, batch_invariant)
    return dx


def _launch(
    key: tuple[Any, ...],
    operands: tuple[torch.Tensor, ...],
    dim: int,
    form: str,
    backward: bool,
    device: Device,
    batch_invariant: bool,
) -> None:
    """Launches, and keeps the launch; but not one on copies of tensors of which some may be aligned in one call only."""
    launch, copied = _bound(operands, dim, form, backward, device, batch_invariant)
    on_device(launch, device)(*operands)
    if not copied or all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands):
        keep(key, kept_call(launch, operands, device))


def _bound(
    operands: tuple[torch.Tensor, ...], dim: int, form: str, backward: bool, device: Device, batch_invariant: bool
) -> tuple[Callable[..., None], bool]:
    """Returns launch(*operands), and whether it copies some first, where no kernel takes them as they lie."""
    how = form, backward, device, batch_invariant
    if lines := lines_as_they_lie(operands, dim, device, batch_invariant):
        return bind(operands, lines, *how), False
    result, *inputs = operands
    contiguous = result, *(each.contiguous() for each in inputs)
    if lines := lines_as_they_lie(contiguous, dim, device, batch_invariant):
        launch = bind(contiguous, lines, *how)
        return lambda result, *inputs: launch(result, *(each.contiguous() for each in inputs)), True
    rows = tuple(_in_rows(each, dim) for each in operands)
    lines = lines_as_they_lie(rows, result.dim() - 1, device, batch_invariant)
    if lines is None:
        raise LayoutError(f"contiguous rows of {tuple(rows[0].shape)} are refused, which is an error of this package")
    launch_rows = bind(rows, lines, *how)

    def on_rows(result: torch.Tensor, *inputs: torch.Tensor) -> None:
        rows = torch.empty_like(result.movedim(dim, -1), memory_format=torch.contiguous_format)
        launch_rows(rows, *(_in_rows(each, dim) for each in inputs))
        result.copy_(rows.movedim(-1, dim))

    return on_rows, True


def _in_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Copies a tensor so that its rows follow each other."""
    return x.movedim(dim, -1).clone(memory_format=torch.contiguous_format)


def lines_as_they_lie(operands: tuple[torch.Tensor, ...], dim: int, device: Device, batch_invariant: bool) -> Lines | None:
    """Returns how the kernel takes the operands without a copy; None if it does not."""
    lines = lines_of(operands[0].shape, dim, [each.stride() for each in operands], device.vendor.scattered_rows)
    if lines and batch_invariant and not _as_if_contiguous(operands, lines):
        return None
    return lines


def _as_if_contiguous(operands: tuple[torch.Tensor, ...], lines: Lines) -> bool:
    """Tells whether rows start on the multiple that their length alone implies, so that all are read alike."""
    if lines.across or lines.turned or lines.depth > 1:
        return False
    vector = math.gcd(lines.length, VECTOR_BYTES // max(each.element_size() for each in operands))
    aligned = all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands)
    return aligned and all(stride % vector == 0 for stride in lines.strides)


def device_of(x: torch.Tensor, *dtypes: torch.dtype) -> Device:
    """Returns the device of a tensor.

    Raises:
        DeviceError: kernels run on devices of another type.
        DtypeError: it does not compute one of the types.
    """
    device = current_device(x.device.index)
    if device.vendor.torch_device_type != x.device.type:
        raise DeviceError(f"a tensor on {x.device} was given; {device} computes tensors on {device.vendor.torch_device_type}")
    for dtype in dtypes:
        check_dtype(name_of(dtype), device)
    return device
