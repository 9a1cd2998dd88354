"""Ids of kept tokens as a mask in bits: by a launch, the operator for compilers, or the reference."""

from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from portable_softmax.errors import DtypeError
from portable_softmax.operators import launch, reference
from portable_softmax.operators.arguments import SpecialCallError, facts, transforms_are_active
from portable_softmax.operators.checks import check_tensor, differ, wrap_dim, wrong


def mask_of(name: str, x: Tensor, kept: Any, mask: Any, dim: Any) -> Tensor:
    """Returns the mask in bits of kept ids, after checks: bit j of word k along dim keeps element 32 k + j of x.

    Raises:
        TypeError, DtypeError, ValueError: kept is no tensor of integers of the shape of x without `dim`, and K for each row at
            the end; or there is a mask too.
        IndexError: an id on a CPU is not an element, nor -1. On other devices the host reads none, and such ids are ignored.
    """
    check_tensor(name, "logits", x)
    check_tensor(name, "kept", kept)
    dim = wrap_dim(name, dim, x.dim())
    rows, size = (*x.shape[:dim], *x.shape[dim + 1 :]), x.shape[dim] if x.dim() else 1
    if mask is not None:
        raise ValueError(f"{name}(): arguments 'mask' and 'kept' exclude each other")
    if kept.dtype not in (torch.int32, torch.int64):
        raise DtypeError(wrong(name, "kept", "hold ids as int64 or int32", kept.dtype))
    if not kept.dim() or differ(kept.shape[:-1], rows) or kept.device != x.device:
        required = f"have the shape {(*rows, 'K')} on {x.device}"
        raise ValueError(wrong(name, "kept", required, f"{tuple(kept.shape)} on {kept.device}"))
    pack_ids = operator if is_compiling() and not transforms_are_active() else pack
    return pack_ids(kept, size).movedim(-1, dim)


def pack(kept: Tensor, size: int) -> Tensor:
    """Returns the mask, int32 [..., ceil(size / 32)]: by a launch if ids are in a plain tensor, else by the reference."""
    try:
        facts((kept,))
    except SpecialCallError:
        return reference.packed(kept, size)
    if kept.is_cpu and ((kept < -1) | (kept >= size)).any():
        raise IndexError(wrong("token_log_probs", "kept", f"hold ids below {size}, or -1", f"{kept.min()} to {kept.max()}"))
    run = launch.packing(kept)
    return reference.packed(kept, size) if run is None else run(kept.to(torch.int64).contiguous(), size)


@torch.library.custom_op("portable_softmax::pack_kept", mutates_args=())
def operator(kept: Tensor, size: int) -> Tensor:
    """Computes the mask, int32 [..., ceil(size / 32)]."""
    return pack(kept, size)


@operator.register_fake
def _(kept: Tensor, size: int) -> Tensor:
    return kept.new_empty((*kept.shape[:-1], -(-size // 32)), dtype=torch.int32)
