"""Launches of compiled AMD machine code in the package's virtual device, on tensors of the CPU."""

import functools

import numpy as np
import torch
from direct import sizes_of

from portable_softmax import Device, profiles
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel
from portable_softmax.runtime.workspace import next_number
from portable_softmax.virtual_amd.dispatch import launch
from portable_softmax.virtual_amd.machine import ARCHITECTURES, Kernel
from portable_softmax.virtual_amd.memory import GlobalMemory

PRODUCTS = {Device.from_profile(name).arch: name for name, profile in sorted(profiles().items()) if profile.backend == "hip"}
PRODUCTS = {arch: PRODUCTS[arch] for arch in ARCHITECTURES}
CPU = torch.device("cpu")


@functools.cache
def kernel_of(spec, arch, edit=None):
    """(the virtual device's kernel, waves, bytes of LDS); `edit` changes the text."""
    compiled = compile_kernel(spec, Device.from_profile(PRODUCTS[arch]))
    text = compiled.asm["amdgcn"]
    return Kernel(edit(text) if edit else text), compiled.metadata.num_warps, compiled.metadata.shared


def in_virtual_device(arch, make_memory=GlobalMemory, edit=None, **interleaving):
    """`run(operands, problem, tiling, programs)`, as direct.forward and direct.backward take it."""

    def run(operands, problem, tiling, programs):
        kernel, num_warps, shared = kernel_of(KernelSpec.of(problem, tiling), arch, edit)
        memory = make_memory()
        arguments = [*(address_of(tensor, memory) for tensor in operands), *sizes_of(operands, problem)]
        if tiling.parts > 1:
            words = np.random.default_rng(0).integers(-(2**62), 2**62, problem.n_rows * tiling.words_per_row)
            arguments += [memory.register(words), next_number()]
        launch(kernel, programs, arguments, memory, num_warps=num_warps, shared_bytes=shared, **interleaving)

    return run


def address_of(tensor, memory):
    """The address of its first element; all of the memory that it is a view of can be accessed."""
    whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    return memory.register(whole) + tensor.storage_offset() * tensor.element_size()
