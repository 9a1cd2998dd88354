"""The choice whether a row's result may depend on how many other rows are computed with it."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_of_process = False
_of_context: ContextVar[bool | None] = ContextVar("batch_invariant", default=None)
_chosen_here = _of_context.get


def batch_invariant(enabled: bool = True) -> "contextlib._GeneratorContextManager[None]":
    """Returns a context, or a decorator, in which a row has the same bits in every batch, alone or among millions.

    Without it results are bitwise equal from run to run for the same shape, strides and alignment. But a few short rows are cut
    into other tiles than many, and their sums are then added in another order.

    The choice holds in the thread or asyncio task that enters the context; other threads keep their own. A new thread starts
    with the choice of the process (`set_batch_invariant`). A call reads the choice once, and its gradient follows it in any
    thread of autograd. torch.compile and torch.export do not record it: the operators of a graph read it each time they run.
    Autograd of a compiled graph and torch.utils.checkpoint may run in threads of torch's own, so there the choice must be the
    process's.

    The costs: tiles are chosen as if there were many rows, so a few short rows occupy fewer multiprocessors. A softmax of an
    inner dimension copies its input into rows. So does an input whose rows are not aligned like those of a contiguous tensor.

    Args:
        enabled: False for a context in which rows may depend on others, although the process's choice is that they must not.

    Raises:
        TypeError: `enabled` is not a bool.
    """
    return in_context(_bool(enabled))


def set_batch_invariant(enabled: bool) -> None:
    """Sets the choice of the process, for all threads except those in a context of `batch_invariant`.

    Raises:
        TypeError: `enabled` is not a bool.
    """
    global _of_process
    _of_process = _bool(enabled)


def is_batch_invariant() -> bool:
    """Returns the choice in force here: that of the innermost context of `batch_invariant`, else that of the process."""
    chosen = _chosen_here()
    return _of_process if chosen is None else chosen


@contextlib.contextmanager
def in_context(enabled: bool) -> Iterator[None]:
    """Makes `enabled` the choice of this thread and its tasks until the context ends."""
    token = _of_context.set(enabled)
    try:
        yield
    finally:
        _of_context.reset(token)


def _bool(enabled: bool) -> bool:
    if not isinstance(enabled, bool):
        raise TypeError(f"batch_invariant is True or False, not {enabled!r} of type {type(enabled).__name__}")
    return enabled
