"""Addresses of a launch in Triton's interpreter against the memory of its tensors, where they may lie outside of it."""

import contextlib
import functools
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import torch

from portable_softmax.errors import KernelError
from portable_softmax.runtime.compile import ONE_LAUNCH

# Triton's functions that access memory in the interpreter (3.2 to 3.9): a name, the pointers, the mask and bytes of an element.
ACCESSES: dict[str, Callable[..., tuple[str, Any, Any, int]]] = {
    "load": lambda pointers, mask, other, dtype: ("a load", pointers, mask, np.dtype(dtype).itemsize),
    "store": lambda pointers, values, mask: ("a store", pointers, mask, values.dtype.itemsize),
    "atomic_rmw": lambda operation, pointers, values, mask, order: ("an atomic", pointers, mask, values.dtype.itemsize),
    "atomic_cas": lambda pointers, compared, values, order: ("an atomic", pointers, True, values.dtype.itemsize),
}


class OutOfBounds(Exception):
    """A kernel accesses memory outside of its tensors; Triton wraps it in errors of its own."""


class _Memories:
    """The memory of tensors, in ascending order of addresses."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        memories = {name: tensor.untyped_storage() for name, tensor in tensors.items()}
        known = sorted((memory.data_ptr(), memory.nbytes(), name) for name, memory in memories.items())
        self.names, self.starts = [name for *_, name in known], np.array([start for start, *_ in known], dtype=np.int64)
        self.ends = self.starts + np.array([size for _, size, _ in known], dtype=np.int64)

    def check(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that accesses memory; raises OutOfBounds if an address lies outside of the tensors."""
        what, pointers, mask, size = ACCESSES[name](*arguments)
        addresses = pointers[np.broadcast_to(mask, pointers.shape).astype(bool)].astype(np.int64)
        before = np.searchsorted(self.starts, addresses, side="right") - 1  # the last memory that starts there or before
        outside = addresses[(before < 0) | (addresses + size > self.ends[before])]
        if outside.size:
            nearest = int(np.argmin(np.maximum(self.starts - outside[0], outside[0] - self.ends)))
            start, end = int(self.starts[nearest]), int(self.ends[nearest])
            memory = f"the memory of {self.names[nearest]}, which has {end - start}"
            raise OutOfBounds(f"{what} of {size} bytes at byte {outside[0] - start} of {memory}")
        return function(*arguments)


@contextlib.contextmanager
def checked(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Raises OutOfBounds where a launch in the interpreter accesses memory outside of its tensors and bases of descriptors."""
    from triton.runtime.interpreter import _interpreter as functions  # no public name, and one for all accesses

    bases = {name: getattr(value, "base", value) for name, value in arguments.items()}
    memories = _Memories({name: base for name, base in bases.items() if isinstance(base, torch.Tensor)})
    checks: dict[str, Any] = {name: functools.partial(memories.check, name, getattr(functions, name)) for name in ACCESSES}
    with ONE_LAUNCH, mock.patch.multiple(functions, **checks):
        yield


def fault_in(error: BaseException, file: str | None) -> KernelError | None:
    """Returns the access outside of tensors that an error is about, with the line of the kernel's file; None for others."""
    while not isinstance(error, OutOfBounds):
        if error.__cause__ is None:
            return None
        error = error.__cause__
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return KernelError(f"OutOfBounds: {error}{f' ({file}:{lines[-1]})' if lines else ''}")
