"""Intel's OpenCL runtime on the CPU: runs a compiled kernel on tensors of the host, where they lie."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import direct
import numpy as np
import pyopencl as cl
import torch

from intel import build
from intel.spirv import edited, for_a_cpu
from portable_softmax import Device
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec
from portable_softmax.runtime.workspace import next_number

NUMBERS = {"i32": np.int32, "i64": np.int64, "fp32": np.float32}
Edit = Callable[[bytes], bytes]
KERNELS: set[bytes] = set()  # that ran, as they were compiled


def pointer(tensor: torch.Tensor) -> cl.SVM:
    """Address of a tensor: the runtime's memory is the process's (fine-grained system SVM)."""
    return cl.SVM(np.frombuffer((ctypes.c_byte * tensor.element_size()).from_address(tensor.data_ptr()), np.int8))


@functools.cache
def queue() -> cl.CommandQueue:
    return cl.CommandQueue(build.context())


@functools.cache
def kernel_of(spirv: bytes) -> cl.Kernel:
    return build.kernel_of(edited(spirv, for_a_cpu))


def run(compiled: Any, grid: tuple[int, int, int], arguments: Sequence[Any], edit: Edit = bytes) -> None:
    """Runs all programs of a launch. `arguments` are those at run time, by position; `edit` changes the SPIR-V."""
    kinds = [kind for kind in compiled.src.signature.values() if kind != "constexpr"]
    KERNELS.add(compiled.asm["spv"])
    run_spirv(edit(compiled.asm["spv"]), compiled.metadata, kinds, grid, arguments)


def run_spirv(spirv: bytes, metadata: Any, kinds: Sequence[str], grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
    kernel = kernel_of(spirv)
    given = [
        pointer(value) if kind.startswith("*") else NUMBERS[kind](value) for kind, value in zip(kinds, arguments, strict=True)
    ]
    if metadata.shared:
        given.append(cl.LocalMemory(metadata.shared))
    assert kernel.num_args == len(given)
    threads = metadata.num_warps * metadata.threads_per_warp
    kernel(queue(), (grid[0] * threads, grid[1], grid[2]), (threads, 1, 1), *given)
    queue().finish()


def on_the_cpu(product: str, edit: Edit = bytes, words: Callable[[torch.Tensor], torch.Tensor] = torch.Tensor.clone) -> Any:
    """`launch(operands, problem, tiling, programs)`, as direct.forward and direct.backward take it; `words` makes the words."""
    device = Device.from_profile(product)

    def launch(operands, problem, tiling, programs):
        arguments = [*operands, *direct.sizes_of(operands, problem)]
        if tiling.splits > 1:
            garbage = torch.randint(-(2**62), 2**62, (problem.tiles(tiling.tile_rows) * tiling.slots_per_tile,))
            arguments += [words(garbage), next_number()]
        run(compile_kernel(KernelSpec.of(problem, tiling), device), (programs, 1, 1), arguments, edit)

    return launch
