"""The choice whether a row's result may depend on how many other rows are computed with it: one flag of the process."""

import contextlib
import sys
from collections.abc import Iterator

_enabled = False


def batch_invariant(enabled: bool = True) -> "contextlib._GeneratorContextManager[None]":
    """Returns a context, or a decorator, in which a row has the same bits in every batch, alone or among millions.

    Without it results are bitwise equal from run to run for the same shape, strides and alignment. But a few short rows are cut
    into other tiles than many, and their sums are then added in another order.

    The flag is the process's, for all its threads, as torch.use_deterministic_algorithms is; the context sets it, and restores
    it. A call reads it once, and its gradient follows it. Graphs of torch.compile and torch.export read it when they run.

    The costs: tiles are chosen as if there were many rows, so a few short rows occupy fewer multiprocessors. A softmax of an
    inner dimension copies its input into rows. So does an input with rows not aligned like those of a contiguous tensor.

    Args:
        enabled: False for a context in which rows may depend on others.

    Raises:
        TypeError: `enabled` is not a bool.
    """
    return _context(_bool(enabled))


def set_batch_invariant(enabled: bool) -> None:
    """Sets the flag of the process.

    Raises:
        TypeError: `enabled` is not a bool.
    """
    global _enabled
    _enabled = _bool(enabled)


def is_batch_invariant() -> bool:
    """Returns the flag of the process.

    torch.use_deterministic_algorithms chooses the same launches: the delay of another program changes none of their bits.
    """
    torch = sys.modules.get("torch")  # until it is imported, no flag of it can be set
    return _enabled or (torch is not None and torch.are_deterministic_algorithms_enabled())


@contextlib.contextmanager
def _context(enabled: bool) -> Iterator[None]:
    before = _enabled
    set_batch_invariant(enabled)
    try:
        yield
    finally:
        set_batch_invariant(before)


def _bool(enabled: bool) -> bool:
    if not isinstance(enabled, bool):
        raise TypeError(f"batch_invariant is True or False, not {enabled!r} of type {type(enabled).__name__}")
    return enabled
