"""Calls of the softmax of scores that are like one before: read and checked once, then repeated by what they were given."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import scored
from portable_softmax.operators.asked import Asked
from portable_softmax.operators.kept import find, keep, nobody_listens
from portable_softmax.operators.overlap import lie_apart
from portable_softmax.operators.scored_arguments import Given, numbers, sinks
from portable_softmax.operators.scored_recording import recording
from portable_softmax.planning.problem import VECTOR_BYTES

PLAIN = frozenset((bool, int, float, str, torch.dtype))
Key = tuple[Any, ...]
Repeat = Callable[..., torch.Tensor]  # of (x, given), and out if there was one


def key_of(form: str, x: torch.Tensor, dim: Any, dtype: Any, given: Given, out: torch.Tensor | None = None) -> Key | None:
    """Returns all that a call depends on but the values in its tensors; None if it is not one to be repeated.

    Somebody listens to such a tensor, or autograd to another one than x, or to x that has a softcap or an out; or out is of
    another shape or of inference mode, or lies under what is read.
    """
    recorded = torch.is_grad_enabled()
    facts: list[Any] = ["repeated scores", form]
    each: Any
    for each in (x, dim, dtype, *given, out):
        kind = type(each)
        if kind is torch.Tensor:
            needed = recorded and each.requires_grad
            alone = each is x and given.softcap is None and out is None
            if not nobody_listens(each) or (needed and not alone):
                return None
            facts += each.dtype, each.shape, each.stride(), each.data_ptr() % VECTOR_BYTES == 0, each.get_device(), needed
        elif each is None or kind in PLAIN:
            facts += kind, each
        else:
            return None
    if out is not None:
        if (lies := _lies(out, x, given)) is None:
            return None
        facts.append(lies)
    return is_batch_invariant(), *facts  # read last: dynamo, which listens to x, cannot trace it


def _lies(out: torch.Tensor, x: torch.Tensor, given: Given) -> str | None:
    """Returns how out lies to what is read: it is x itself, or all of it is ahead of each tensor or behind; else None."""
    in_place = x.data_ptr() == out.data_ptr() and x.stride() == out.stride() and x.dtype == out.dtype
    others = [each for each in given if isinstance(each, torch.Tensor)]
    apart = all(lie_apart(each, out) for each in (others if in_place else (x, *others)))
    if not apart or out.shape != x.shape or out.is_inference():
        return None
    return "in place" if in_place else "apart"


def repeat_of(key: Key) -> Repeat | None:
    """Returns the call that is kept for a key."""
    return find(key)


def remember(
    key: Key, x: torch.Tensor, given: Given, asked: Asked, batch_invariant: bool, out: torch.Tensor | None = None
) -> None:
    """Keeps a call that was made, if its launch took x and mask as they were given, and at most one factor."""
    if asked.factors is not None and given.scale is not None and given.temperature is not None:
        return
    if not _is_same(asked.x, x) or not _is_same(asked.mask, given.mask):
        return
    call = scored.kept_like(asked, batch_invariant, out)
    if call is None:
        return
    if x.requires_grad and torch.is_grad_enabled():
        call = recording(call, asked, batch_invariant)
    name = "scale" if given.temperature is None else "temperature"
    factors_of = _of_rows(name, asked, asked.factors, getattr(given, name))
    sinks_of = _of_rows("sink", asked, asked.sinks, given.sink)

    def repeat(x: torch.Tensor, given: Given, *out: torch.Tensor) -> torch.Tensor:
        factors = given.scale if given.temperature is None else given.temperature
        return call(x, given.mask, factors_of(x, factors), sinks_of(x, given.sink), *out)

    keep(key, repeat)


def _of_rows(name: str, asked: Asked, taken: torch.Tensor | None, given: Any) -> Callable[[torch.Tensor, Any], Any]:
    """Returns numbers(x, given), which returns one number for each row of x from those that a call is given."""
    if taken is None or _is_same(taken, given):
        return lambda x, given: given
    form, dim, compute = asked.form, asked.dim, torch.promote_types(asked.dtype, torch.float32)
    read = sinks if name == "sink" else partial(numbers, name)
    return lambda x, given: read(form, x, dim, given, compute)


def _is_same(taken: torch.Tensor | None, given: Any) -> bool:
    """Tells whether a launch reads the memory of what was given, as it lies; or neither is a tensor."""
    if taken is None:
        return not isinstance(given, torch.Tensor)
    return isinstance(given, torch.Tensor) and taken.dtype == given.dtype and taken.data_ptr() == given.data_ptr()
