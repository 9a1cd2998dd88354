"""Launches in Triton's interpreter: one at a time, and those of bfloat16 as launches of wider types."""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from portable_softmax.devices.device import Device
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch

_interpreting = threading.Lock()  # the interpreter patches Triton's language, and keeps a program's number, for all threads


def interpreted(
    spec: KernelSpec, device: Device, grid: tuple[int, int, int], sizes: Sequence[int], n_operands: int
) -> Callable[..., None]:
    """Returns a launch in the interpreter, as runtime/prepared.py describes it.

    The interpreter keeps bfloat16 as integers, cuts off what it rounds to it, and knows no conversion but that to float32. So
    operands of bfloat16 are copied to float32, and torch rounds: a softmax's input to the result's type,
    as the kernel would, and the result.

    Args:
        spec: the kernel.
        device: the interpreter's.
        grid: numbers of programs.
        sizes: values of the parameters between the operands and those of the launch.
        n_operands: number of operands.
    """
    import numpy as np
    import torch

    kernel = kernel_of(spec)[grid]
    read_as = torch.bfloat16 if spec.problem.y_dtype == "bfloat16" and not spec.problem.backward else None
    constexprs = constexprs_of(spec, device, in_float32=True)
    results = int(spec.problem.stores)  # the first operands
    own = 3 if spec.problem.backward else 2  # behind them, those of scores
    names = tuple(spec.signature())

    def launch(*given: Any) -> None:
        taken = [_widened(each, read_as if results <= at < own else None) for at, each in enumerate(given[:n_operands])]
        with _interpreting, patched_once(), np.errstate(all="ignore"):  # a GPU does not warn of nan either
            arguments = *taken, *sizes, *given[n_operands:]
            kernel(**dict(zip(names, arguments, strict=True)), **constexprs)
        if results and taken[0] is not given[0]:
            given[0].copy_(taken[0])

    return launch


@cache
def _languages(module: str) -> frozenset[str]:
    """Returns the modules of Triton's language that functions of a module name."""
    named = [each.__name__ for each in vars(sys.modules[module]).values() if isinstance(each, ModuleType)]
    return frozenset(named) & {"triton.language", "triton.language.core"}


@contextmanager
def patched_once() -> Iterator[None]:
    """Lets the interpreter patch Triton's language once for a launch; it would at each call of a kernel's function too."""
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


def _widened(x: "torch.Tensor", read_as: "torch.dtype | None") -> "torch.Tensor":
    """Copies all memory of a tensor of bfloat16, or of one that is read as such, to float32, in the same places."""
    import torch

    if x.dtype == torch.bool:
        return x.view(torch.uint8)
    if x.dtype != torch.bfloat16 and read_as is None:
        return x
    size = x.untyped_storage().nbytes() // x.element_size()
    whole = x.detach().as_strided((size,), (1,), 0).to(read_as or x.dtype).float()
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())
