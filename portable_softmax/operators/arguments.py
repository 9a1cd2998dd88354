"""Reads arguments as torch reads them, or refuses them with an error of torch's type."""

from numbers import Integral
from operator import index
from typing import Any

import torch

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.errors import DeviceError, DtypeError, LayoutError
from portable_softmax.runtime.launch import name_of

KERNEL_DTYPES = frozenset(getattr(torch, name) for name in DTYPE_BYTES)
_DTYPES = {float: torch.float64, int: torch.int64, bool: torch.bool, complex: torch.complex128}


def int_of(form: str, dim: Any) -> int:
    """Reads `dim` as an int: integers of Python and of numpy, and tensors of one integer without dimensions.

    Raises:
        TypeError: it is something else: a bool, a float, None, ...
    """
    if isinstance(dim, torch.Tensor):
        integer = not (dim.dim() or dim.is_floating_point() or dim.is_complex() or dim.dtype is torch.bool)
    else:
        integer = isinstance(dim, (Integral, torch.SymInt)) and not isinstance(dim, bool)
    if not integer:
        raise TypeError(f"{form}(): argument 'dim' must be int, not {type(dim).__name__}")
    return index(dim)


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


def dtype_of(form: str, dtype: Any) -> torch.dtype | None:
    """Reads `dtype` as a torch.dtype: that of one of Python's types of numbers, as torch has them.

    Raises:
        TypeError: it is something else: the name of a dtype, one of numpy's, ...
    """
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if isinstance(dtype, type) and dtype in _DTYPES:
        return _DTYPES[dtype]
    raise TypeError(f"{form}(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")


def read(form: str, x: torch.Tensor, dim: Any, dtype: Any) -> tuple[int, torch.dtype | None]:
    """Returns (dim, counted from 0, dtype) of a call of a strided tensor.

    Raises:
        LayoutError, TypeError, IndexError, ValueError: the cases of `check_layout`, `int_of`, `wrap_dim` and `dtype_of`.
    """
    check_layout(form, x)
    return wrap_dim(int_of(form, dim), x.dim()), dtype_of(form, dtype)


def autocast_dtype(x: torch.Tensor) -> torch.dtype:
    """Returns the type of a softmax of x if none is named: that of x, but float32 for 16 bits under torch.autocast."""
    if x.is_meta or x.dtype not in (torch.float16, torch.bfloat16):  # torch has no autocast of meta
        return x.dtype
    return torch.float32 if torch.is_autocast_enabled(x.device.type) else x.dtype


def converted(x: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Returns x in a type that kernels read, if it is in another one and the result's type is named."""
    return x if dtype is None or x.dtype in KERNEL_DTYPES else x.to(dtype)


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
        device.check_dtype(name_of(dtype))
    return device


def check_layout(form: str, x: torch.Tensor) -> None:
    """Raises a LayoutError unless `x` is a strided tensor with one shape."""
    if x.is_nested:
        raise LayoutError(f"{form} of a nested tensor was asked for; use torch's own function, or x.to_padded_tensor() first")
    if x.layout is not torch.strided:
        raise LayoutError(f"{form} of a tensor of layout {x.layout} was asked for; use x.to_dense() first")


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
