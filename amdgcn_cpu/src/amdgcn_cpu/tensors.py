"""Runs machine code on arrays and tensors in this machine's memory, as a driver would run it on a device."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from amdgcn_cpu.arrays import Array
from amdgcn_cpu.dispatch import launch
from amdgcn_cpu.machine import Kernel
from amdgcn_cpu.memory import GlobalMemory

_ALIGNMENT = 64  # bytes; torch allocates on multiples of it on the CPU. No access of a lane is wider than 16 bytes

kernel_of = functools.lru_cache(maxsize=256)(Kernel)  # one for each text


def run(
    text: str,
    grid: tuple[int, int, int],
    arguments: Sequence[Any],
    *,
    num_warps: int,
    shared_bytes: int,
    memory: GlobalMemory | None = None,
    **interleaving: Any,
) -> int:
    """Runs a kernel on arrays, which it reads and writes in place; returns the number of instructions that it ran.

    Args:
        text: the machine code, Triton's `asm["amdgcn"]`.
        grid: programs along x, y and z.
        arguments: the kernel's run-time parameters by position: numbers, None for a null pointer, numpy's arrays, and torch's
            tensors on the CPU. The kernel can access all of the memory that an array or a tensor is a view of.
        num_warps: waves of a program, the compiled kernel's `metadata.num_warps`.
        shared_bytes: LDS of a program, `metadata.shared`.
        memory: memory that the arrays are added to; a new one if None.
        interleaving: options of `dispatch.launch`: `seed`, `resident`, `order`, `strict`, `most_steps`. `strict` is on unless
            the kernel has atomics: Triton also moves the results of their masked lanes, and drops them.

    Raises:
        UnknownInstruction: the text has something that is not known here.
        Fault: the kernel did something that no correct kernel does.
        TypeError, ValueError: the arguments do not fit the kernel.
    """
    interleaving.setdefault("strict", "_atomic_" not in text)
    memory = memory or GlobalMemory()
    placed: dict[int, int] = {}
    values = [_value(argument, memory, placed) for argument in arguments]
    return launch(kernel_of(text), grid, values, memory, num_warps=num_warps, shared_bytes=shared_bytes, **interleaving)


def _value(argument: Any, memory: GlobalMemory, placed: dict[int, int]) -> int | float:
    """Returns what a kernel gets for an argument: a number, or the address of an array's first element.

    Args:
        argument: one argument.
        memory: memory that arrays are added to.
        placed: addresses of memory that other arguments share, by its address on this machine.
    """
    if argument is None:
        return 0
    if isinstance(argument, int | float):
        return argument
    if isinstance(argument, np.generic):
        return _value(argument.item(), memory, placed)
    content, first = _of_array(argument) if isinstance(argument, np.ndarray) else _of_tensor(argument)
    start = content.ctypes.data
    if start not in placed:
        placed[start] = memory.register(content, start % _ALIGNMENT)
    return placed[start] + first - start


def _of_array(array: Array) -> tuple[Array, int]:
    """Returns the bytes that an array is a view of, and the address of its first element."""
    whole = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    if not whole.flags.forc:
        raise ValueError("an array is a view of memory that is not contiguous: give one that numpy allocated")
    return whole.reshape(-1, order="A").view(np.uint8), array.ctypes.data


def _of_tensor(tensor: Any) -> tuple[Array, int]:
    """Returns the bytes that a tensor of torch is a view of, and the address of its first element."""
    if not hasattr(tensor, "untyped_storage"):
        kinds = "numbers, None, numpy arrays and torch tensors are supported"
        raise TypeError(f"an argument is a {type(tensor).__name__}; {kinds}")
    if tensor.device.type != "cpu":
        raise ValueError(f"a tensor is on {tensor.device}, and kernels run on the CPU's memory here: .cpu()")
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if not size:
        return _of_array(np.zeros(0, np.uint8))
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(storage.data_ptr())), int(tensor.data_ptr())
