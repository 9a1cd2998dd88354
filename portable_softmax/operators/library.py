"""The torch operators portable_softmax::softmax, ::log_softmax, and ::*_backward, of x or of scores made of it.

They are opaque to compilers: a launch is planned from the compiled kernel's own registers, which is no work for tracing.
Everything that a dispatcher can ask of an operator is registered here, but gradients, which are in autograd.py.
A number for each row comes as a tensor of x's shape without dim: torch expands small ones ahead, and sums their gradients.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import interpreting
from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import launching
from portable_softmax.operators.arguments import check_gradient, check_layout, wrap_dim
from portable_softmax.operators.autograd import register_gradients
from portable_softmax.operators.call import BACKWARD_SCHEMA, SCHEMA, Asked, AskedGradient
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


def operator(name: str) -> Any:
    """Returns the operator portable_softmax::`name`."""
    return getattr(torch.ops.portable_softmax, name).default


def _forward(form: str, *arguments: Any) -> torch.Tensor:
    asked = Asked(*arguments)
    check_layout(form, asked.x)
    return launching.forward(form, asked, is_batch_invariant())


def _forward_fake(form: str, *arguments: Any) -> torch.Tensor:
    asked = Asked(*arguments)
    check_layout(form, asked.x)
    wrap_dim(asked.dim, asked.x.dim())
    if not asked.y_dtype.is_floating_point:
        raise DtypeError(f"{form} of {asked.y_dtype} was asked for; name a floating-point dtype")
    return asked.x.new_empty(asked.x.shape, dtype=asked.dtype)


def _forward_batched(form: str, info: Any, in_dims: Any, *arguments: Any) -> Any:
    asked, at = Asked(*arguments), cast(Any, Asked(*in_dims))
    dim = wrap_dim(asked.dim, asked.x.dim() - (at.x is not None))
    x = batch_first(asked.x, at.x, info.batch_size)
    whole = asked._replace(
        x=x if x.dim() > 1 else x.unsqueeze(1),  # a number is a row of one
        dim=dim + 1,
        mask=None if asked.mask is None else batch_first(asked.mask, at.mask, 1),
        factors=rows_of_batch(asked.factors, at.factors, info.batch_size),
        sinks=rows_of_batch(asked.sinks, at.sinks, info.batch_size),
    )
    return operator(form)(*whole).view(x.shape), 0


def _autocast(form: str, key: str) -> Callable[..., torch.Tensor]:
    """Applies torch's rule for softmax: float32 unless another dtype is named, but float64 stays (fp32_set_opt_dtype)."""
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def compute(*arguments: Any) -> torch.Tensor:
        asked = Asked(*arguments)
        if asked.dtype is None and asked.x.dtype.is_floating_point and asked.x.dtype != torch.float64:
            asked = asked._replace(dtype=torch.float32)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(form)(*asked)

    return compute


def _backward(form: str, *arguments: Any) -> torch.Tensor:
    asked = AskedGradient(*arguments)
    _check(form, asked)
    return launching.backward(form, asked, is_batch_invariant())


def _backward_fake(form: str, *arguments: Any) -> torch.Tensor:
    asked = AskedGradient(*arguments)
    _check(form, asked)
    return asked.y.new_empty(asked.y.shape, dtype=asked.x_dtype)


def _check(form: str, asked: AskedGradient) -> None:
    for each in (asked.dy, asked.y):
        check_layout(form, each)
    check_gradient(asked.dy, asked.y, asked.dim)


def _backward_batched(form: str, info: Any, in_dims: Any, *arguments: Any) -> Any:
    asked, at = AskedGradient(*arguments), cast(Any, AskedGradient(*in_dims))
    dy, y = batch_first(asked.dy, at.dy, info.batch_size), batch_first(asked.y, at.y, info.batch_size)
    dim = wrap_dim(asked.dim, y.dim() - 1)
    whole = asked._replace(
        dy=dy if y.dim() > 1 else dy.unsqueeze(1),
        y=y if y.dim() > 1 else y.unsqueeze(1),
        dim=dim + 1,
        factors=rows_of_batch(asked.factors, at.factors, info.batch_size),
    )
    return operator(f"{form}_backward")(*whole).view(y.shape), 0


def batch_first(each: torch.Tensor, at: int | None, size: int) -> torch.Tensor:
    """Returns a tensor of vmap with its batch as the first dimension; of a size if it has none."""
    return each.expand(size, *each.shape) if at is None else each.movedim(at, 0)


def rows_of_batch(numbers: torch.Tensor | None, at: int | None, size: int) -> torch.Tensor | None:
    """Returns a number for each row the same way, contiguous; None of none."""
    return None if numbers is None else batch_first(numbers, at, size).contiguous()


def _define(form: str) -> None:
    for name, schema, compute, fake, batched in (
        (form, SCHEMA, _forward, _forward_fake, _forward_batched),
        (f"{form}_backward", BACKWARD_SCHEMA, _backward, _backward_fake, _backward_batched),
    ):
        _library.define(f"{name}{schema}", tags=torch.Tag.pt2_compliant_tag)
        _library.impl(name, partial(compute, form), "CompositeExplicitAutograd")
        torch.library.register_fake(f"portable_softmax::{name}", partial(fake, form), lib=_library)
        torch.library.register_vmap(f"portable_softmax::{name}", partial(batched, form), lib=_library)
    for key in (f"Autocast{key}" for key in DISPATCH_KEYS.values()):
        _library.impl(form, _autocast(form, key), key)


for _form in FORMS:
    _define(_form)
    register_gradients(_library, _form)
