"""Launches in Triton's interpreter: one at a time, and those of bfloat16 as launches of wider types."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import torch

from portable_softmax.runtime.kernel import Kernel

ONE_LAUNCH = threading.RLock()  # the interpreter patches Triton's language, and keeps a program's number, for all threads


def interpreted(kernel: Kernel, grid: Any) -> Callable[[Sequence[Any]], None]:
    """Returns a call of a kernel in the interpreter, with all of its arguments in order.

    The interpreter keeps bfloat16 as integers, truncates when it rounds to it, and converts it to float32 only. So
    operands of bfloat16 are copied to float32, and torch rounds the result, the first of them.
    """
    import numpy as np

    function = kernel.function[grid]

    def run(arguments: Sequence[Any]) -> None:
        widened = [_widened(value) if isinstance(value, torch.Tensor) else value for value in arguments]
        with ONE_LAUNCH, patched_once(), np.errstate(all="ignore"):  # a GPU does not warn of nan either
            function(*widened)
        if widened[0] is not arguments[0]:
            arguments[0].copy_(widened[0])

    return run


@cache
def _languages(module: str) -> frozenset[str]:
    """Returns the modules of Triton's language that functions of a module name."""
    named = [value.__name__ for value in vars(sys.modules[module]).values() if isinstance(value, ModuleType)]
    return frozenset(named) & {"triton.language", "triton.language.core"}


@contextmanager
def patched_once() -> Iterator[None]:
    """Makes the interpreter patch Triton's language once per launch, not at each call of a kernel's function too."""
    from triton.runtime import interpreter

    patch = interpreter._patch_lang
    patched: set[str] = set()

    def once(function: Any) -> Any:
        modules = _languages(function.__module__)
        if modules <= patched:
            return None
        patched.update(modules)
        return patch(function)

    interpreter._patch_lang = once
    try:
        yield
    finally:
        interpreter._patch_lang = patch


def _widened(x: torch.Tensor) -> torch.Tensor:
    """Copies all memory of a tensor of bfloat16 to float32, in the same places; a boolean one is viewed as integers."""
    if x.dtype == torch.bool:
        return x.view(torch.uint8)
    if x.dtype != torch.bfloat16:
        return x
    size = x.untyped_storage().nbytes() // x.element_size()
    whole = x.detach().as_strided((size,), (1,), 0).to(torch.float32)
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())
