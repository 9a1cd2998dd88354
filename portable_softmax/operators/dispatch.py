"""One call of softmax, log_softmax or softmin: a repetition, past torch's dispatcher, or through it.

The dispatcher takes as long as everything else, so it is left out where only autograd needs to see a call.
"""

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.overrides import has_torch_function_unary

from portable_softmax.devices.detect import interpreting
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_layout, dtype_of, int_of, wrap_dim
from portable_softmax.operators.autograd import recording
from portable_softmax.operators.compute import BY_TORCH, forward, kept_like
from portable_softmax.operators.kept import Call, Kind, nobody_listens, remember, repeated
from portable_softmax.operators.library import operator


def call(form: str, x: Any, dim: Any, dtype: Any) -> torch.Tensor:
    """Computes a form of softmax of a tensor that holds whole rows; arguments and errors are those of api.functional.softmax.

    Args:
        form: softmax, log_softmax or softmin.
        x: a tensor, or what has __torch_function__; no DTensor.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
    """
    if type(dim) is int and (dtype is None or type(dtype) is torch.dtype) and not is_dynamo_compiling():
        kind = form, dim, dtype, is_batch_invariant()
        if (again := repeated(kind, x)) is not None:
            return again
        if nobody_listens(x) and (directly := _directly(x, kind)):
            return directly(x)
    if isinstance(x, torch.Tensor):
        if x.device.type == "cpu" and not interpreting():
            return BY_TORCH[form](x, dim, dtype=dtype)
        check_layout(form, x)
        dim, dtype = wrap_dim(int_of(form, dim), x.dim()), dtype_of(form, dtype)
    elif not has_torch_function_unary(x):
        raise TypeError(f"{form}(): argument 'input' must be Tensor, not {type(x).__name__}")
    result: torch.Tensor = operator(form)(x, dim, dtype)
    return result


def _directly(x: torch.Tensor, kind: Kind) -> Call | None:
    """Returns a call past the dispatcher, for a tensor to which nobody but autograd listens; None if torch must record it."""
    form, dim, dtype, batch_invariant = kind
    by_torch = x.is_cpu and not interpreting()
    if by_torch and x.requires_grad:
        return None
    if not by_torch and (kept := kept_like(x, dim, dtype, form, batch_invariant)):
        return remember(kind, x, kept, recording)
    first = lambda x: forward(x, dim, dtype, form, batch_invariant)  # noqa: E731
    return recording(first, x.dtype, kind) if x.requires_grad else first
