"""Batch invariance, a flag of the process: the result of a row does not depend on the other rows of a call."""

import contextlib
import inspect
import sys
from typing import Any

_enabled = False


class Switch(contextlib.ContextDecorator):
    """Context manager that is a decorator too, of functions that do all of their work in the call."""

    def __call__(self, function: Any) -> Any:
        """Returns a function within the context; raises TypeError for one that runs when the context has ended, or a class."""
        runs_later = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isclass
        if any(is_one(function) for is_one in runs_later):
            remedy = f"use `with {type(self).__name__}():` in it"
            raise TypeError(f"a decorated function must compute when it is called, unlike {function!r}; {remedy}")
        return super().__call__(function)


class batch_invariant(Switch):
    """Context manager, or decorator of functions that compute when called, in which a row has the same bits in every batch.

    Otherwise, results are bitwise equal from run to run for the same shape, strides and alignment, unless other kernels delay
    programs that share a row, and few short rows are cut into other tiles than many rows. The flag belongs to the process and
    holds for all threads. A call reads it once, and its gradient uses the same value; compiled and exported graphs read it when
    they run.

    Costs: tiles are chosen as for many rows, so few short rows occupy fewer multiprocessors. Inputs are copied if the softmax
    runs along an inner dimension, or if rows are not aligned like those of a contiguous tensor.

    Args:
        enabled: False for a context without batch invariance; entering it raises TypeError for what is no bool.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.before: list[bool] = []  # a flag for each `with` block that is open

    def __enter__(self) -> None:
        self.before.append(_enabled)
        set_batch_invariant(self.enabled)

    def __exit__(self, *error: object) -> None:
        set_batch_invariant(self.before.pop())


def set_batch_invariant(enabled: bool) -> None:
    """Sets the flag of `batch_invariant` for the process; raises TypeError unless it is a bool."""
    global _enabled
    if not isinstance(enabled, bool):
        raise TypeError(f"argument 'enabled' of batch_invariant must be bool, not {type(enabled).__name__}: {enabled!r}")
    _enabled = enabled


def is_batch_invariant() -> bool:
    """True if batch invariance is enabled; torch.use_deterministic_algorithms(True) enables it too."""
    torch = sys.modules.get("torch")  # until it is imported, no flag of it can be set
    return _enabled or (torch is not None and torch.are_deterministic_algorithms_enabled())
