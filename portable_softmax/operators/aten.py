"""Kernels for torch's own operators aten::_softmax, aten::_log_softmax and their gradients, at a device's dispatch key.

What is registered stays registered, and passes calls on to torch's kernels while no override is in force: torch frees a kernel
that is taken back although another thread may be on its way into it.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DisableTorchFunctionSubclass

from portable_softmax.errors import DeviceError, DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.compute import backward, forward
from portable_softmax.operators.library import DISPATCH_KEYS
from portable_softmax.operators.out import write
from portable_softmax.operators.overlap import is_apart
from portable_softmax.planning.problem import MAX_COLS

Kernel = Callable[..., torch.Tensor]

_CONVERTED = torch.float16, torch.float32  # the types that torch's half_to_float leads from and to
_libraries: dict[str, torch.library.Library] = {}  # by dispatch key
in_force = 0  # the number of overrides; kernels pass all calls on while it is 0


def register() -> None:
    """Registers kernels for each dispatch key that torch has kernels for, unless it is done.

    Raises:
        NotImplementedError: torch is older than 2.9.
        DeviceError: torch has no kernels of its own for any device that this package computes.
    """
    if not hasattr(torch.library, "get_kernel"):
        raise NotImplementedError(
            f"override_aten was called with torch {torch.__version__}; torch 2.9 is the first that hands out its own kernels, "
            "for what this package does not compute. Install a newer torch, or use patch_torch()"
        )
    for key in DISPATCH_KEYS.values():
        if key not in _libraries and torch._C._dispatch_has_kernel_for_dispatch_key("aten::_softmax", key):
            _libraries[key] = _registered(key)
    if not _libraries:
        raise DeviceError(
            f"this torch {torch.__version__} has no kernels for {', '.join(DISPATCH_KEYS)}, and so none to override; "
            "install torch for an accelerator, or set TRITON_INTERPRET=1 to compute tensors on the CPU in Triton's interpreter"
        )


def _registered(key: str) -> torch.library.Library:
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that kernels are overridden
        for form in ("softmax", "log_softmax"):
            kernels: dict[str, Kernel] = {f"_{form}": _forward, f"_{form}.out": _into, f"_{form}_backward_data": _backward}
            for name, ours in kernels.items():
                library.impl(name, _in_place_of(name, key, ours, form), key, with_keyset=True)
    return library


def _in_place_of(name: str, key: str, ours: Kernel, form: str) -> Kernel:
    """Returns the kernel that computes a form by `ours` while an override is in force, and by torch's what that refuses."""
    theirs = torch.library.get_kernel(f"aten::{name}", key).call_boxed

    def compute(keys: torch._C.DispatchKeySet, *given: Any, **out: torch.Tensor) -> torch.Tensor:
        if in_force:
            try:
                with DisableTorchFunctionSubclass():  # subclasses have been asked before the dispatcher was
                    return ours(form, *given, **out)
            except DtypeError:
                pass
        result: torch.Tensor = theirs(keys, *given, **out)
        return result

    return compute


def _forward(form: str, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    return forward(x, dim, _dtype_of(form, x, dim, half_to_float), form, is_batch_invariant())


def _into(form: str, x: torch.Tensor, dim: int, half_to_float: bool, *, out: torch.Tensor) -> torch.Tensor:
    dtype = _dtype_of(form, x, dim, half_to_float)
    alike = (out.dtype, out.shape, out.device) == (dtype or x.dtype, x.shape, x.device)
    if not alike or not is_apart(x, out):
        raise DtypeError(f"{form} into {tuple(out.shape)} in {out.dtype} is torch's")
    write(out, x, dim, dtype, form, is_batch_invariant())
    return out


def _dtype_of(form: str, x: torch.Tensor, dim: int, half_to_float: bool) -> torch.dtype | None:
    """Returns the type that x is converted to; None for its own.

    Raises:
        DtypeError: torch computes it.
    """
    if (half_to_float and x.dtype is not torch.float16) or not _is_addressed(x, dim):
        raise DtypeError(f"{form} of {tuple(x.shape)} in {x.dtype}, half_to_float {half_to_float}, is torch's")
    return torch.float32 if half_to_float else None


def _backward(form: str, dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> torch.Tensor:
    alike = (dy.dtype, dy.shape, dy.device) == (y.dtype, y.shape, y.device)
    converted = x_dtype is y.dtype or (x_dtype, y.dtype) == _CONVERTED
    if not alike or not converted or not _is_addressed(y, dim):
        raise DtypeError(f"a gradient in {x_dtype} from {dy.dtype} and {y.dtype} is torch's")
    return backward(dy, y, dim, x_dtype, form, is_batch_invariant())


def _is_addressed(x: torch.Tensor, dim: int) -> bool:
    """Tells whether kernels address the elements of rows, and rows that lie side by side."""
    if x.numel() <= MAX_COLS:
        return True
    return max(x.shape[dim], math.prod(x.shape[dim % x.dim() + 1 :])) <= MAX_COLS
