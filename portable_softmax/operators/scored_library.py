"""The torch operators portable_softmax::scored and ::scored_backward: the softmax of scores in every form, and its gradient.

A number for each row comes as a tensor of x's shape without dim: torch expands small ones ahead, and sums their gradients.
"""

from typing import Any

import torch

from portable_softmax.devices.detect import interpreting
from portable_softmax.errors import DtypeError
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import composite, compute, scored
from portable_softmax.operators.arguments import check_gradient, check_layout, wrap_dim
from portable_softmax.operators.asked import BACKWARD_SCHEMA, SCHEMA, Asked, AskedGradient
from portable_softmax.operators.scored_autograd import register_gradients

_library = torch.library.Library("portable_softmax", "FRAGMENT")
_library.define(f"scored{SCHEMA}", tags=torch.Tag.pt2_compliant_tag)
_library.define(f"scored_backward{BACKWARD_SCHEMA}", tags=torch.Tag.pt2_compliant_tag)


def forward(*arguments: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """Computes portable_softmax::scored of the arguments that Asked has, past torch's dispatcher; into `out` by a kernel.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
    """
    asked = Asked(*arguments)
    check_layout(asked.form, asked.x)
    dim = wrap_dim(asked.dim, asked.x.dim())
    given = asked.x, dim, asked.dtype, asked.form, is_batch_invariant(), asked.scores, asked.mask, asked.by, asked.sinks
    if asked.x.is_cpu and not interpreting():
        return composite.forward(*given)
    return scored.forward(*given, out)


def backward(*arguments: Any) -> torch.Tensor:
    """Computes portable_softmax::scored_backward of the arguments that AskedGradient has, past torch's dispatcher.

    Raises:
        IndexError, DtypeError, ValueError: the cases of check_gradient.
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    asked = AskedGradient(*arguments)
    dim, invariant = _checked(asked), is_batch_invariant()
    if not asked.scores:
        return compute.backward(asked.dy, asked.y, dim, asked.x_dtype, asked.form, invariant)
    by = composite if asked.y.is_cpu and not interpreting() else scored
    return by.backward(asked.dy, asked.y, dim, asked.x_dtype, asked.form, invariant, asked.scores, asked.by)


def _checked(asked: AskedGradient) -> int:
    for each in (asked.dy, asked.y):
        check_layout(asked.form, each)
    return check_gradient(asked.dy, asked.y, asked.dim)


def _forward_fake(*arguments: Any) -> torch.Tensor:
    asked = Asked(*arguments)
    check_layout(asked.form, asked.x)
    wrap_dim(asked.dim, asked.x.dim())
    if not asked.dtype.is_floating_point:
        raise DtypeError(f"{asked.form} of {asked.dtype} was asked for; name a floating-point dtype")
    return asked.x.new_empty(asked.x.shape, dtype=asked.dtype)


def _backward_fake(*arguments: Any) -> torch.Tensor:
    asked = AskedGradient(*arguments)
    _checked(asked)
    return asked.y.new_empty(asked.y.shape, dtype=asked.x_dtype)


def _batched_forward(info: Any, in_dims: Any, *arguments: Any) -> Any:
    asked, at = Asked(*arguments), Asked(*in_dims)
    whole = asked._replace(
        x=_whole(asked.x, at.x, info.batch_size),
        dim=wrap_dim(asked.dim, asked.x.dim() - (at.x is not None)) + 1,
        mask=None if asked.mask is None else _whole(asked.mask, at.mask, 1),
        factors=_rows(asked.factors, at.factors, info.batch_size),
        sinks=_rows(asked.sinks, at.sinks, info.batch_size),
    )
    return torch.ops.portable_softmax.scored(*whole), 0


def _batched_backward(info: Any, in_dims: Any, *arguments: Any) -> Any:
    asked, at = AskedGradient(*arguments), AskedGradient(*in_dims)
    whole = asked._replace(
        dy=_whole(asked.dy, at.dy, info.batch_size),
        y=_whole(asked.y, at.y, info.batch_size),
        dim=wrap_dim(asked.dim, asked.y.dim() - (at.y is not None)) + 1,
        factors=_rows(asked.factors, at.factors, info.batch_size),
    )
    return torch.ops.portable_softmax.scored_backward(*whole), 0


def _whole(each: torch.Tensor, at: Any, size: int) -> torch.Tensor:
    """Returns a tensor of vmap with its batch as the first dimension; of a size if it has none."""
    return each.expand(size, *each.shape) if at is None else each.movedim(at, 0)


def _rows(numbers: torch.Tensor | None, at: Any, size: int) -> torch.Tensor | None:
    return None if numbers is None else _whole(numbers, at, size).contiguous()


for _name, _function, _fake, _batched in (
    ("scored", forward, _forward_fake, _batched_forward),
    ("scored_backward", backward, _backward_fake, _batched_backward),
):
    _library.impl(_name, _function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"portable_softmax::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"portable_softmax::{_name}", _batched, lib=_library)
register_gradients(_library)
