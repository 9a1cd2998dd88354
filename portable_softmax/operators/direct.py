"""Calls past torch's dispatcher, which takes as long as everything else: where only autograd needs to see a call."""

import torch

from portable_softmax.devices.detect import interpreting
from portable_softmax.operators.compute import forward, kept_like
from portable_softmax.operators.kept import nobody_listens, remember
from portable_softmax.operators.recording import recording


def directly(form: str, x: torch.Tensor, dim: int, dtype: torch.dtype | None, batch_invariant: bool) -> torch.Tensor | None:
    """Computes a form of softmax if nobody but autograd listens to x; returns None if torch must see the call.

    The next call of a tensor like x is one that `kept.repeated` repeats.

    Args:
        form: softmax, log_softmax or softmin.
        x: any object.
        dim: the axis along which the result sums to 1.
        dtype: type of the result; None for that of x.
        batch_invariant: True if a row's bits may not depend on the other rows.
    """
    if not nobody_listens(x):
        return None
    by_torch = x.is_cpu and not interpreting()
    if by_torch and x.requires_grad:
        return None
    kept = None if by_torch else kept_like(x, dim, dtype, form, batch_invariant)
    call = kept or (lambda x: forward(x, dim, dtype, form, batch_invariant))
    kind = form, dim, dtype, batch_invariant
    if x.requires_grad:
        call = recording(call, x.dtype, kind)
    if kept:
        remember(kind, x, call)
    return call(x)
