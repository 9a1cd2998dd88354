"""Launches in Triton's interpreter: one at a time, and those of bfloat16 as launches of wider types."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from portable_softmax.runtime.kernel import Kernel

ONE_LAUNCH = threading.RLock()  # the interpreter patches Triton's language, and keeps a program's number, for all threads


def interpreted(kernel: Kernel, grid: Any) -> Callable[[Sequence[Any]], None]:
    """Returns a call of a kernel in the interpreter, with all of its arguments in order.

    The interpreter truncates when it rounds to bfloat16. So operands of bfloat16 are copied to float32, and torch rounds the
    result, the first of them.
    """
    import numpy as np

    def run(arguments: Sequence[Any]) -> None:
        widened = [_widened(value) if isinstance(value, torch.Tensor) else value for value in arguments]
        with ONE_LAUNCH, np.errstate(all="ignore"):  # a GPU does not warn of nan either
            kernel.function[grid](*widened)
        if widened[0] is not arguments[0]:
            arguments[0].copy_(widened[0])

    return run


def _widened(x: torch.Tensor) -> torch.Tensor:
    """Copies all memory of a tensor of bfloat16 to float32, in the same places; a boolean one is viewed as integers."""
    if x.dtype == torch.bool:
        return x.view(torch.uint8)
    if x.dtype != torch.bfloat16:
        return x
    size = x.untyped_storage().nbytes() // x.element_size()
    whole = x.detach().as_strided((size,), (1,), 0).to(torch.float32)
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())
