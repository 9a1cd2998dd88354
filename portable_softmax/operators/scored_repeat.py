"""Calls of the softmax of scores that are like one before: read and checked once, then repeated by what they were given."""

from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators import scored
from portable_softmax.operators.asked import Asked
from portable_softmax.operators.kept import find, keep, nobody_listens
from portable_softmax.operators.scored_arguments import Given
from portable_softmax.planning.problem import VECTOR_BYTES

PLAIN = frozenset((bool, int, float, str, torch.dtype))
Key = tuple[Any, ...]
Repeat = Callable[[torch.Tensor, Given], torch.Tensor]


def key_of(form: str, x: torch.Tensor, dim: Any, dtype: Any, given: Given) -> Key | None:
    """Returns all that a call depends on but the values in its tensors; None if somebody listens to one, even autograd."""
    recorded = torch.is_grad_enabled()
    facts: list[Any] = ["repeated scores", form, is_batch_invariant()]
    for each in (x, dim, dtype, *given):
        kind = type(each)
        if kind is torch.Tensor:
            if not nobody_listens(each) or (recorded and each.requires_grad):
                return None
            facts += each.dtype, each.shape, each.stride(), each.data_ptr() % VECTOR_BYTES == 0, each.get_device()
        elif each is None or kind in PLAIN:
            facts += kind, each
        else:
            return None
    return tuple(facts)


def repeat_of(key: Key) -> Repeat | None:
    """Returns the call that is kept for a key."""
    return find(key)


def remember(key: Key, x: torch.Tensor, given: Given, asked: Asked, batch_invariant: bool) -> None:
    """Keeps a call that was made, if its launch took the very tensors that were given."""
    divided = given.temperature is not None
    factors = given.temperature if divided else given.scale
    taken = (asked.x, x), (asked.mask, given.mask), (asked.factors, factors), (asked.sinks, given.sink)
    if not all(_is_same(one, other) for one, other in taken):
        return
    call = scored.kept_like(asked, batch_invariant)
    if call is None:
        return

    def repeat(x: torch.Tensor, given: Given) -> torch.Tensor:
        return call(x, given.mask, given.temperature if divided else given.scale, given.sink)

    keep(key, repeat)


def _is_same(taken: torch.Tensor | None, given: Any) -> bool:
    """Tells whether a launch reads the memory of what was given, as it lies; or neither is a tensor."""
    if taken is None:
        return not isinstance(given, torch.Tensor)
    return isinstance(given, torch.Tensor) and taken.dtype == given.dtype and taken.data_ptr() == given.data_ptr()
