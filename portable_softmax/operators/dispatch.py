"""One call of softmax or log_softmax: past torch's dispatcher, or through it."""

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import arguments
from portable_softmax.operators.bypass import directly, kind_of, plainly
from portable_softmax.operators.composite import BY_TORCH
from portable_softmax.operators.launching import by_torch
from portable_softmax.operators.library import operator
from portable_softmax.operators.memory import repeated
from portable_softmax.operators.options import Options, read


def call(form: str, x: Any, dim: Any, dtype: Any) -> torch.Tensor:
    """Computes a form of softmax of a tensor; arguments and errors are those of api.functional.softmax.

    Args:
        form: softmax or log_softmax.
        x: a tensor.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
    """
    if type(dim) is int and (dtype is None or type(dtype) is torch.dtype) and not is_dynamo_compiling():
        batch_invariant = is_batch_invariant()
        y = repeated(form, dim, dtype, batch_invariant, x)
        if y is not None:
            return y
        y = plainly(form, x, dim, dtype, batch_invariant)
        if y is not None:
            return y
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{form}(): argument 'input' must be Tensor, not {type(x).__name__}")
    if by_torch(x) or hasattr(x, "device_mesh"):  # a DTensor
        return BY_TORCH[form](x, dim, dtype=dtype)
    dim, dtype = arguments.read(form, x, dim, dtype)
    result: torch.Tensor = operator(form)(x, dim, dtype)
    return result


def call_with(form: str, x: torch.Tensor, dim: Any, dtype: Any, options: Options) -> torch.Tensor:
    """Computes a form of softmax of the scores of a tensor; arguments and errors are those of api.functional.softmax."""
    kind = kind_of(form, x, dim, dtype, options)
    if kind and (repeat := kind.repeat):
        return repeat(x, options)
    dim, dtype = arguments.read(form, x, dim, dtype)
    if not x.dim():
        return call_with(form, x.unsqueeze(0), 0, dtype, options).squeeze(0)
    asked = read(form, x, dim, dtype, options)
    y = None if is_dynamo_compiling() else directly(form, asked, is_batch_invariant(), kind)
    if y is None:
        y = operator(form)(*asked)
    return y
