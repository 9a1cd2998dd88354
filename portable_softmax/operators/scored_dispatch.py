"""One call of the softmax of scores: past torch's dispatcher if nobody listens there, or through it."""

from typing import Any

import torch

from portable_softmax.devices.detect import interpreting
from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_layout, dtype_of, int_of, wrap_dim
from portable_softmax.operators.kept import nobody_listens
from portable_softmax.operators.scored_arguments import Given, read
from portable_softmax.operators.scored_library import forward
from portable_softmax.operators.scored_repeat import key_of, remember, repeat_of


def call_scored(form: str, x: torch.Tensor, dim: Any, dtype: Any, given: Given) -> torch.Tensor:
    """Computes a form of softmax of the scores of a tensor; arguments and errors are those of api.functional.softmax."""
    key = key_of(form, x, dim, dtype, given)
    if key and (repeat := repeat_of(key)):
        repeated: torch.Tensor = repeat(x, given)
        return repeated
    check_layout(form, x)
    dim, dtype = wrap_dim(int_of(form, dim), x.dim()), dtype_of(form, dtype)
    if not x.dim():
        return call_scored(form, x.unsqueeze(0), 0, dtype, given).squeeze(0)
    asked = read(form, x, dim, dtype, given)
    unheard = _unheard(asked.x, asked.mask, asked.factors, asked.sinks)
    result: torch.Tensor = (forward if unheard else torch.ops.portable_softmax.scored)(*asked)
    if key and (not asked.x.is_cpu or interpreting()):
        remember(key, x, given, asked, is_batch_invariant())
    return result


def _unheard(*tensors: torch.Tensor | None) -> bool:
    """Tells whether nobody listens to tensors, not even autograd."""
    recorded = torch.is_grad_enabled()
    given = [each for each in tensors if each is not None]
    return all(nobody_listens(each) and not (recorded and each.requires_grad) for each in given)
