"""The softmax of a tensor and its gradient, by one launch, or by torch for tensors on the CPU."""

from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.devices.detect import interpreting
from portable_softmax.devices.device import Device
from portable_softmax.operators.arguments import KERNEL_DTYPES, check_gradient, device_of, wrap_dim
from portable_softmax.operators.kept import Call, find, keep
from portable_softmax.operators.layout import AS_THEY_LIE, Operands, arranged, on_copies
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.guard import Guard, guard_of
from portable_softmax.runtime.launch import bind

BY_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "softmin": torch.nn.functional.softmin,
}


def forward(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> torch.Tensor:
    """Computes the softmax of x along dim; copies x only if its strides or `batch_invariant` need it.

    Args:
        x: any shape and strides; of one of the kernel's types, or with `dtype` of any that torch converts.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
        form: softmax, log_softmax or softmin.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        A new contiguous tensor of the shape of x.

    Raises:
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
    """
    if x.is_cpu and not interpreting():
        return BY_TORCH[form](x, dim, dtype=dtype)
    if dtype is not None and x.dtype not in KERNEL_DTYPES:
        x, form = (-x, "softmax") if form == "softmin" else (x, form)  # unsigned integers wrap around, as in torch
        x = x.to(dtype)
    key = _key(x, dim, dtype, form, batch_invariant)
    kept: Call | None = find(key)
    if kept:
        return kept(x)
    dtype = dtype or x.dtype
    dim = wrap_dim(dim, x.dim())
    device = device_of(x, x.dtype, dtype)
    if not x.numel():
        return x.new_empty(x.shape, dtype=dtype)
    return _planned(key, (x,), dim, dtype, form, device, batch_invariant)(x)


def backward(
    dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, batch_invariant: bool
) -> torch.Tensor:
    """Computes the gradient of x from dy, the gradient of y, and y.

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
    if y.is_cpu and not interpreting():
        return _backward_by_torch(dy, y, dim, x_dtype, form)
    if x_dtype not in KERNEL_DTYPES:
        return backward(dy, y, dim, y.dtype, form, batch_invariant).to(x_dtype)
    aligned = dy.data_ptr() % VECTOR_BYTES == y.data_ptr() % VECTOR_BYTES == 0
    layouts = dy.dtype, dy.shape, dy.stride(), y.dtype, y.shape, y.stride(), y.get_device()
    key = form, dim, x_dtype, layouts, aligned, batch_invariant
    kept: Call | None = find(key)
    if kept:
        return kept(dy, y)
    dim = check_gradient(dy, y, dim)
    device = device_of(y, y.dtype, x_dtype)
    if not y.numel():
        return y.new_empty(y.shape, dtype=x_dtype)
    return _planned(key, (dy, y), dim, x_dtype, form, device, batch_invariant)(dy, y)


def _backward_by_torch(dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str) -> torch.Tensor:
    by_torch = torch.ops.aten._log_softmax_backward_data if form == "log_softmax" else torch.ops.aten._softmax_backward_data
    dx: torch.Tensor = by_torch(dy, y, dim, y.dtype).to(x_dtype)
    return -dx if form == "softmin" else dx


def kept_like(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> Call | None:
    """Returns the call that `forward` keeps for tensors like x; None before the first."""
    return find(_key(x, dim, dtype, form, batch_invariant))


def _key(x: torch.Tensor, dim: int, dtype: torch.dtype | None, form: str, batch_invariant: bool) -> tuple[Any, ...]:
    aligned = x.data_ptr() % VECTOR_BYTES == 0  # torch allocates y so
    return form, dim, dtype, x.dtype, x.shape, x.stride(), x.get_device(), aligned, batch_invariant


def _planned(
    key: tuple[Any, ...],
    inputs: Operands,
    dim: int,
    dtype: torch.dtype,
    form: str,
    device: Device,
    batch_invariant: bool,
) -> Call:
    """Plans and compiles a call, and keeps it; but none on copies of tensors of which some may be aligned in one call only."""
    operands = inputs[-1].new_empty(inputs[-1].shape, dtype=dtype), *inputs  # each call allocates a result of its own
    way, taken, lines = arranged(operands, dim, device, batch_invariant, n_read=len(operands))
    guard = guard_of(device)
    launch = bind(taken, lines, form, len(inputs) == 2, device, batch_invariant)
    if way is not AS_THEY_LIE:
        launch = on_copies(launch, way, dim)
    call = _call(launch, operands, guard)
    if way is AS_THEY_LIE or all(each.data_ptr() % VECTOR_BYTES == 0 for each in operands):
        keep(key, call)
    return call


def _call(launch: Callable[..., None], operands: Operands, guard: Guard) -> Call:
    """Returns call(x), or call(dy, y), which allocates the result and launches on the current stream of its device.

    Args:
        launch: takes the operands while the device is the current one.
        operands: result and input, or result and both inputs, like those of each call.
        guard: makes the operands' device the current one.
    """
    result = operands[0]
    shape, strides, dtype, empty = tuple(result.shape), result.stride(), result.dtype, allocator(result.device)
    current, number, made_current = guard

    def softmax(x: torch.Tensor) -> torch.Tensor:
        if current() != number:
            with made_current():
                return softmax(x)
        y = empty(shape, strides, dtype)
        launch(y, x)
        return y

    def gradient(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if current() != number:
            with made_current():
                return gradient(dy, y)
        dx = empty(shape, strides, dtype)
        launch(dx, dy, y)
        return dx

    return softmax if len(operands) == 2 else gradient
