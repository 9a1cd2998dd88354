"""The torch operators portable_softmax::softmax, ::log_softmax, ::softmin, and ::*_backward.

They are opaque to compilers: a launch is planned from the compiled kernel's own registers, which is no work for tracing.
Everything that a dispatcher can ask of an operator is registered here, but gradients, which are in autograd.py.
"""

from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import interpreting
from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_gradient, check_layout, wrap_dim
from portable_softmax.operators.autograd import register_gradients
from portable_softmax.operators.compute import backward, forward
from portable_softmax.planning.problem import FORMS


def _dispatch_key(device_type: str) -> str:
    try:
        return str(torch._C._dispatch_key_for_device(device_type))
    except RuntimeError:  # until a vendor's extension of torch names it
        return "PrivateUse1"


# The dispatcher's keys of devices that this package computes. The interpreter stands in for an accelerator.
DISPATCH_KEYS = {
    vendor.torch_device_type: _dispatch_key(vendor.torch_device_type)
    for vendor in BACKENDS.values()
    if vendor.torch_device_type != "cpu" or interpreting()
}
_library = torch.library.Library("portable_softmax", "DEF")


def _define(form: str) -> None:
    tag = torch.Tag.pt2_compliant_tag
    _library.define(f"{form}(Tensor input, int dim=-1, ScalarType? dtype=None) -> Tensor", tags=tag)
    _library.define(f"{form}_backward(Tensor dy, Tensor y, int dim, ScalarType x_dtype) -> Tensor", tags=tag)
    _define_forward(form)
    _define_backward(form)


def _define_forward(form: str) -> None:
    def compute(x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
        check_layout(form, x)
        return forward(x, dim, dtype, form, is_batch_invariant())

    def fake(x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
        check_layout(form, x)
        wrap_dim(dim, x.dim())
        if not (dtype or x.dtype).is_floating_point:
            raise DtypeError(f"{form} of {dtype or x.dtype} was asked for; name a floating-point dtype")
        return x.new_empty(x.shape, dtype=dtype)

    def batched(info: Any, in_dims: Any, x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> Any:
        dim = wrap_dim(dim, x.dim() - 1)
        x = x.movedim(in_dims[0], 0)
        whole = x if x.dim() > 1 else x.unsqueeze(1)  # a number is a row of one
        return operator(form)(whole, dim + 1, dtype).view(x.shape), 0

    _library.impl(form, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"portable_softmax::{form}", fake, lib=_library)
    torch.library.register_vmap(f"portable_softmax::{form}", batched, lib=_library)
    for key in (f"Autocast{key}" for key in DISPATCH_KEYS.values()):
        _library.impl(form, _autocast(form, key), key)


def _autocast(form: str, key: str) -> Callable[..., torch.Tensor]:
    """Applies torch's rule for softmax: float32 unless another dtype is named, but float64 stays (fp32_set_opt_dtype)."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def compute(x: torch.Tensor, dim: int = -1, dtype: torch.dtype | None = None) -> torch.Tensor:
        if x.dtype.is_floating_point and x.dtype != torch.float64:
            dtype = dtype or torch.float32
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(form)(x, dim, dtype)

    return compute


def _define_backward(form: str) -> None:
    def check(dy: torch.Tensor, y: torch.Tensor, dim: int) -> None:
        for each in (dy, y):
            check_layout(form, each)
        check_gradient(dy, y, dim)

    def compute(dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> torch.Tensor:
        check(dy, y, dim)
        return backward(dy, y, dim, x_dtype, form, is_batch_invariant())

    def fake(dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> torch.Tensor:
        check(dy, y, dim)
        return y.new_empty(y.shape, dtype=x_dtype)

    def batched(info: Any, in_dims: Any, dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype) -> Any:
        rank = (y if in_dims[1] is None else y.select(in_dims[1], 0)).dim()
        dy, y = (
            each.expand(info.batch_size, *each.shape) if at is None else each.movedim(at, 0)
            for each, at in zip((dy, y), in_dims[:2], strict=True)
        )
        whole = (dy, y) if rank else (dy.unsqueeze(1), y.unsqueeze(1))
        return operator(f"{form}_backward")(*whole, wrap_dim(dim, rank) + 1, x_dtype).view(y.shape), 0

    name = f"{form}_backward"
    _library.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"portable_softmax::{name}", fake, lib=_library)
    torch.library.register_vmap(f"portable_softmax::{name}", batched, lib=_library)


def operator(name: str) -> Any:
    """Returns the operator portable_softmax::`name`."""
    return getattr(torch.ops.portable_softmax, name).default


for _form in FORMS:
    _define(_form)
    register_gradients(_library, _form)
