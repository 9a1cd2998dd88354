"""The softmax of scores written where a caller wants it: by the kernel itself where it can, or by a copy."""

from collections.abc import Callable
from typing import Any

import torch
from torch._C import _dispatch_isTensorSubclassLike
from torch.autograd.graph import increment_version
from torch.compiler import is_dynamo_compiling

from portable_softmax.devices.detect import interpreting
from portable_softmax.operators.kept import nobody_listens
from portable_softmax.operators.out import check_differentiable, check_out, check_writable, resize
from portable_softmax.operators.overlap import are_disjoint, overlap_of


def scores_into(
    form: str,
    x: torch.Tensor,
    dtype: torch.dtype | None,
    out: Any,
    compute: Callable[[torch.Tensor | None], torch.Tensor],
    *given: torch.Tensor,
) -> torch.Tensor:
    """Writes the softmax of scores to `out`, which may be x or lie under `given`, and returns `out`.

    Args:
        form, x, dtype, out: as in `call_into`.
        compute: computes it into `out`, or, if that is None, gives a tensor of the shape of x.
        given: other tensors that it reads.

    Raises:
        RuntimeError: elements of `out` lie under each other, or under others of `x`.
    """
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"{form}(): argument 'out' must be Tensor, not {type(out).__name__}")
    check_differentiable(form, x, out, *given)
    check_out(form, x, dtype, out)
    if not is_dynamo_compiling() and not any(_dispatch_isTensorSubclassLike(each) for each in (x, out)):
        check_writable(out)
        if x.numel() and out.shape == x.shape:
            overlap_of(x, out)
    if _takes(out, x, given):
        compute(out)
        increment_version(out)
        return out
    result = compute(None)
    if out.shape != x.shape:
        resize(out, x.shape)
    return out.copy_(result)


def _takes(out: torch.Tensor, x: torch.Tensor, given: tuple[torch.Tensor, ...]) -> bool:
    """Tells whether a kernel can write to `out`, which is x itself or lies apart from all that is read, and nobody listens."""
    by_kernel = x.dim() > 0 and out.shape == x.shape and (not x.is_cpu or interpreting())
    unheard = by_kernel and all(nobody_listens(each) for each in (x, out, *given))
    return unheard and all(are_disjoint(each, out) for each in given if each.numel())
