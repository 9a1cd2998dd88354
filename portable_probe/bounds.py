"""Addresses of a launch in Triton's interpreter against the memory of its tensors, where they may lie outside of it."""

import contextlib
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from portable_softmax.errors import KernelError
from portable_softmax.runtime.interpreted import ONE_LAUNCH


class OutOfBounds(Exception):
    """A kernel accesses memory outside of its tensors; Triton wraps it in errors of its own."""


class _Checked:
    """Triton's functions that access memory in the interpreter (3.2 to 3.9), each of which checks the addresses first."""

    def __init__(self, functions: Any, tensors: Mapping[str, torch.Tensor]) -> None:
        memories = {name: tensor.untyped_storage() for name, tensor in tensors.items()}
        known = sorted((memory.data_ptr(), memory.nbytes(), name) for name, memory in memories.items())
        self.functions, self.names = functions, [name for *_, name in known]
        self.starts = np.array([start for start, *_ in known], dtype=np.int64)
        self.ends = self.starts + np.array([size for _, size, _ in known], dtype=np.int64)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functions, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check("a load", pointers, mask, np.dtype(dtype).itemsize)
        return self.functions.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        self._check("a store", pointers, mask, values.dtype.itemsize)
        return self.functions.store(pointers, values, mask)

    def atomic_rmw(self, operation: Any, pointers: Any, values: Any, mask: Any, order: Any) -> Any:
        self._check("an atomic", pointers, mask, values.dtype.itemsize)
        return self.functions.atomic_rmw(operation, pointers, values, mask, order)

    def atomic_cas(self, pointers: Any, compared: Any, values: Any, order: Any) -> Any:
        self._check("an atomic", pointers, True, values.dtype.itemsize)
        return self.functions.atomic_cas(pointers, compared, values, order)

    def _check(self, what: str, pointers: Any, mask: Any, size: int) -> None:
        addresses = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)].astype(np.int64)
        before = np.searchsorted(self.starts, addresses, side="right") - 1  # the last memory that starts there or before
        outside = addresses[(before < 0) | (addresses + size > self.ends[before])]
        if outside.size:
            nearest = int(np.argmin(np.maximum(self.starts - outside[0], outside[0] - self.ends)))
            start, end = int(self.starts[nearest]), int(self.ends[nearest])
            memory = f"the memory of {self.names[nearest]}, which has {end - start}"
            raise OutOfBounds(f"{what} of {size} bytes at byte {outside[0] - start} of {memory}")


@contextlib.contextmanager
def checked(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Checks every access of launches in the interpreter against the memory of tensors and bases of tensor descriptors.

    Raises:
        OutOfBounds: an access is outside of all of them, which a GPU may answer with a fault, or with other data.
    """
    from triton.runtime import interpreter

    bases = {name: getattr(value, "base", value) for name, value in arguments.items()}
    tensors = {name: base for name, base in bases.items() if isinstance(base, torch.Tensor)}
    with ONE_LAUNCH:
        functions = interpreter._interpreter  # no public name, and one for all accesses
        interpreter._interpreter = _Checked(functions, tensors)
        try:
            yield
        finally:
            interpreter._interpreter = functions


def fault_in(error: BaseException, file: str | None) -> KernelError | None:
    """Returns the access outside of tensors that an error is about, with the line of the kernel's file; None for others."""
    while not isinstance(error, OutOfBounds):
        if error.__cause__ is None:
            return None
        error = error.__cause__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return KernelError(f"OutOfBounds: {error}{f' ({file}:{lines[-1]})' if lines else ''}")
