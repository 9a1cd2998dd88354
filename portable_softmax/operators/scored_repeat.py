"""Calls of the softmax of scores that are like one before: read and checked once, then repeated by what they were given."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import scored
from portable_softmax.operators.asked import Asked
from portable_softmax.operators.kept import find, keep, nobody_listens
from portable_softmax.operators.overlap import span_of
from portable_softmax.operators.scored_arguments import Given, numbers, sinks
from portable_softmax.operators.scored_recording import recording
from portable_softmax.planning.problem import VECTOR_BYTES

PLAIN = frozenset((bool, int, float, str, torch.dtype))
Key = tuple[Any, ...]
Repeat = Callable[..., Any]  # of (x, given), and out if there was one; returns the result, or None where out lies otherwise


def key_of(form: str, x: torch.Tensor, dim: Any, dtype: Any, given: Given, out: torch.Tensor | None = None) -> Key | None:
    """Returns all that a call depends on but the values in its tensors; None if it is not one to be repeated.

    Somebody listens to such a tensor, or autograd to another one than x, or to x that has a softcap or an out; or
    out is of inference mode.
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
        if out.is_inference():
            return None
        facts.append(x.data_ptr() == out.data_ptr())
    return is_batch_invariant(), *facts  # read last: dynamo, which listens to x, cannot trace it


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

    keep(key, repeat if out is None else _where_apart(repeat, x, given, out))


def _where_apart(repeat: Repeat, x: torch.Tensor, given: Given, out: torch.Tensor) -> Repeat:
    """Returns `repeat` of tensors like these, which gives None where out lies under what is read, but for x itself in place."""
    others = 1 if x.data_ptr() == out.data_ptr() else 0
    spans, out_span = [span_of(each) for each in _tensors(x, given)[others:]], span_of(out)

    def where_apart(x: torch.Tensor, given: Given, out: torch.Tensor) -> torch.Tensor | None:
        out_first = out.data_ptr()
        for each, span in zip(_tensors(x, given)[others:], spans, strict=True):
            first = each.data_ptr()
            if first < out_first + out_span and out_first < first + span:
                return None
        result: torch.Tensor = repeat(x, given, out)
        return result

    return where_apart


def _tensors(x: torch.Tensor, given: Given) -> list[torch.Tensor]:
    return [x, *(each for each in given if isinstance(each, torch.Tensor))]


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
