"""The softmax of scores written where a caller wants it: by the kernel itself where it can, or by a copy."""

from collections.abc import Sequence
from typing import Any

import torch
from torch._C import _dispatch_isTensorSubclassLike
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from portable_softmax.devices.detect import interpreting
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import dtype_of, int_of, wrap_dim
from portable_softmax.operators.kept import nobody_listens
from portable_softmax.operators.out import check_differentiable, check_out, check_writable, resize
from portable_softmax.operators.overlap import are_disjoint, overlap_of
from portable_softmax.operators.scored_arguments import Given, read
from portable_softmax.operators.scored_dispatch import call_scored
from portable_softmax.operators.scored_library import forward
from portable_softmax.operators.scored_repeat import key_of, remember, repeat_of


def scores_into(form: str, x: torch.Tensor, dim: Any, dtype: Any, given: Given, out: Any) -> torch.Tensor:
    """Writes the softmax of scores to `out`, which may be x or lie under what is read, and returns `out`.

    Arguments and errors are those of api.functional.softmax.
    """
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{form}(): argument 'out' must be Tensor, not {type(out).__name__}")
    key = key_of(form, x, dim, dtype, given, out)
    if key and (repeat := repeat_of(key)) and repeat(x, given, out) is not None:
        increment_version(out)
        return out
    read_too, y_dtype = [each for each in given if isinstance(each, torch.Tensor)], dtype_of(form, dtype)
    check_differentiable(form, x, out, *read_too)
    check_out(form, x, y_dtype, out)
    if not is_dynamo_compiling() and not any(_dispatch_isTensorSubclassLike(each) for each in (x, out)):
        check_writable(out)
        if x.numel() and out.shape == x.shape:
            overlap_of(x, out)
    if _takes(out, x, read_too):
        asked = read(form, x, wrap_dim(int_of(form, dim), x.dim()), y_dtype, given)
        forward(*asked, out=out)
        increment_version(out)
        if key:
            remember(key, x, given, asked, is_batch_invariant(), out)
        return out
    result = call_scored(form, x, dim, y_dtype or x.dtype, given)
    if out.shape != x.shape:
        resize(out, x.shape)
    return out.copy_(result)


def _takes(out: torch.Tensor, x: torch.Tensor, given: Sequence[torch.Tensor]) -> bool:
    """Tells whether a kernel can write to `out`, which is x itself or lies apart from all that is read, and nobody listens."""
    by_kernel = x.dim() > 0 and out.shape == x.shape and (not x.is_cpu or interpreting())
    unheard = by_kernel and all(nobody_listens(each) for each in (x, out, *given))
    return unheard and all(are_disjoint(each, out) for each in given if each.numel())
