"""Reads arguments as torch reads them, or refuses them with an error of torch's type."""

from numbers import Integral
from operator import index
from typing import Any

import torch

from portable_softmax.errors import LayoutError

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


def check_chunks(form: str, chunks: Any) -> None:
    """Raises a TypeError unless `chunks` is an int, and a ValueError unless it is positive."""
    if type(chunks) is not int:
        raise TypeError(f"{form}(): argument 'chunks' must be int, not {type(chunks).__name__}")
    if chunks < 1:
        raise ValueError(f"{form}(): argument 'chunks' must be at least 1, not {chunks}")


def check_layout(form: str, x: torch.Tensor) -> None:
    """Raises a LayoutError unless `x` is a strided tensor with one shape."""
    if x.is_nested:
        raise LayoutError(f"{form} of a nested tensor was asked for; use torch's own function, or x.to_padded_tensor() first")
    if x.layout is not torch.strided:
        raise LayoutError(f"{form} of a tensor of layout {x.layout} was asked for; use x.to_dense() first")
