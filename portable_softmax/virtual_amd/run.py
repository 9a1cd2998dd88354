"""Runs machine code on tensors in this machine's memory, as a driver would run it on a device."""

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from portable_softmax.virtual_amd.dispatch import launch
from portable_softmax.virtual_amd.machine import Kernel
from portable_softmax.virtual_amd.memory import GlobalMemory

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
    """Runs a kernel on tensors, which it reads and writes in place; returns the number of instructions that it ran.

    Args:
        text: the machine code, Triton's `asm["amdgcn"]`.
        grid: programs along x, y and z.
        arguments: the kernel's run-time parameters by position: numbers, None for a null pointer, and torch tensors on the CPU.
            The kernel can access all of the memory that a tensor is a view of.
        num_warps: waves of a program.
        shared_bytes: LDS of a program, from the compiled kernel's metadata.
        memory: memory that the tensors are added to; a new one if None.
        interleaving: options of `dispatch.launch`. `strict` is on unless the kernel has atomics: Triton also moves the results
            of their masked lanes, and drops them.

    Raises:
        UnknownInstruction: the text has something that the virtual device does not know.
        Fault: the kernel did something that no correct kernel does.
        ValueError: the arguments do not fit the kernel.
    """
    interleaving.setdefault("strict", "_atomic_" not in text)
    memory = memory or GlobalMemory()
    placed: dict[int, int] = {}
    values = [_value(argument, memory, placed) for argument in arguments]
    return launch(kernel_of(text), grid, values, memory, num_warps=num_warps, shared_bytes=shared_bytes, **interleaving)


def _value(argument: Any, memory: GlobalMemory, placed: dict[int, int]) -> int | float:
    """Returns what a kernel gets for an argument: a number, or the address of a tensor's first element.

    Args:
        argument: one argument.
        memory: memory that tensors are added to.
        placed: addresses of memory that other arguments share, by its address on this machine.
    """
    if argument is None:
        return 0
    if isinstance(argument, int | float):
        return argument
    storage = argument.untyped_storage()
    start, size = storage.data_ptr(), storage.nbytes()
    if start not in placed:
        content = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start)) if size else np.zeros(0, np.uint8)
        placed[start] = memory.register(content, start % _ALIGNMENT)
    return placed[start] + int(argument.data_ptr()) - int(start)
