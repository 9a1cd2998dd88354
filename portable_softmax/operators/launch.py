"""Launches: one dictionary of what calls became, and how a call of plain tensors becomes one launch.

A launch is bound once for all calls with the same key: planned, compiled, with all sizes. Calls hand over tensors and numbers.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.operators.arguments import DTYPES
from portable_softmax.planning.problem import MAX_COLS

MAX_CALLS = 8192  # a process makes few kinds of calls, or so many that planning anew does not matter
calls: dict[tuple[Any, ...], Any] = {}
_DEVICE_TYPES = {vendor.torch_device_type for vendor in BACKENDS.values()}


def keep(key: tuple[Any, ...], call: Any) -> Any:
    """Keeps what a call became, and returns it; as soon as there are too many, all others are forgotten."""
    if len(calls) >= MAX_CALLS:
        calls.clear()
    calls[key] = call
    return call


def device_of(x: Tensor) -> Device:
    """Returns the device that a tensor is on."""
    return current_device(None if x.is_cpu else x.get_device())


def is_launched(x: Tensor, dim: int, *dtypes: torch.dtype) -> bool:
    """True if kernels run on the device of x, compute these types, and address its rows.

    Raises:
        DeviceError: x is on an accelerator that Triton does not drive.
    """
    if not x.dim() or not DTYPES.issuperset((x.dtype, *dtypes)):
        return False
    if (x.is_cpu and not interpreting()) or x.device.type not in _DEVICE_TYPES:
        return False
    if max(x.shape[dim], math.prod(x.shape[dim + 1 :])) > MAX_COLS:
        return False
    return device_of(x).vendor.torch_device_type == x.device.type


def row_shape(x: Tensor, dim: int) -> torch.Size:
    """Returns the shape of one number for each row, which broadcasts against x."""
    return torch.Size([1 if at == dim else size for at, size in enumerate(x.shape)])


def by_row(factor: Any, shape: torch.Size, x: Tensor) -> Tensor:
    """Returns one number for each row, contiguous, in float32."""
    if isinstance(factor, Tensor):
        if factor.dtype is torch.float32 and factor.shape == shape and factor.is_contiguous():
            return factor
        return factor.to(torch.float32).expand(shape).contiguous()
    return torch.full(shape, factor, dtype=torch.float32, device=x.device)


def allocation(shape: torch.Size, dtype: torch.dtype, like: Tensor) -> Callable[[Tensor], Tensor]:
    """Returns what allocates a contiguous tensor, in the quickest public way."""
    if like.shape == shape and like.dtype == dtype and like.is_contiguous():
        return torch.empty_like
    strides, device = torch.empty(shape, device="meta").stride(), like.device
    return lambda x: torch.empty_strided(shape, strides, dtype=dtype, device=device)
