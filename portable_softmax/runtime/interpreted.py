"""Launches in Triton's interpreter: one at a time, and those of bfloat16 as launches of wider types."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from portable_softmax.devices.device import Device
from portable_softmax.runtime.kernel_form import constexprs_of, kernel_of, signature_of
from portable_softmax.runtime.specialization import KernelSpec

if TYPE_CHECKING:
    import torch

ONE_LAUNCH = threading.RLock()  # the interpreter patches Triton's language, and keeps a program's number, for all threads


def interpreted(
    spec: KernelSpec,
    device: Device,
    grid: tuple[int, int, int],
    in_order: Callable[..., tuple[Any, ...]],
    sizes: tuple[int, ...],
) -> Callable[..., None]:
    """Returns a launch in the interpreter, as runtime/prepared.py describes it.

    The interpreter keeps bfloat16 as integers, truncates when it rounds to it, and converts it to float32 only. So
    operands of bfloat16 are copied to float32, and torch rounds the result.

    Args:
        spec: the kernel.
        device: the interpreter's.
        grid: numbers of programs.
        in_order: puts operands and sizes into the kernel's order.
        sizes: integers behind the operands.
    """
    import numpy as np

    kernel, names = kernel_of(spec)[grid], tuple(signature_of(spec))
    constexprs = constexprs_of(spec, device)
    n_tensors, has_result = len(spec.tensors()), spec.problem.stores  # the first one

    def launch(*operands: Any) -> None:
        tensors = [_widened(tensor) for tensor in operands[:n_tensors]]
        if has_result and operands[0].data_ptr() == operands[1].data_ptr():
            tensors[0] = tensors[1]  # in place
        with ONE_LAUNCH, patched_once(), np.errstate(all="ignore"):  # a GPU does not warn of nan either
            arguments = in_order((*tensors, *operands[n_tensors:], *sizes))
            kernel(**dict(zip(names, arguments, strict=True)), **constexprs)
        if has_result and tensors[0] is not operands[0]:
            operands[0].copy_(tensors[0])

    return launch


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


def _widened(x: "torch.Tensor") -> "torch.Tensor":
    """Copies all memory of a tensor of bfloat16 to float32, in the same places; a boolean one is viewed as integers."""
    import torch

    if x.dtype == torch.bool:
        return x.view(torch.uint8)
    if x.dtype != torch.bfloat16:
        return x
    size = x.untyped_storage().nbytes() // x.element_size()
    whole = x.detach().as_strided((size,), (1,), 0).to(torch.float32)
    return whole.as_strided(x.shape, x.stride(), x.storage_offset())
