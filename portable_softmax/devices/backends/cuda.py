"""NVIDIA."""

import contextlib
import struct
from collections.abc import Mapping
from typing import Any

from portable_softmax.devices.backends import cubin, ptxas, simt
from portable_softmax.devices.backends.base import WHEEL, Backend, Count, Detected, KernelResources, Occupancy, reported
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.schema import Hardware

WARP_SIZE = 32  # of all NVIDIA's devices
THREADS_OF_OTHERS = 512  # the fewest that a program on other vendors' may have: flagos-ai/FlagGems pull request 5258
FEWEST_COLUMNS = 32  # of tensor memory, that tcgen05.alloc takes

# Triton's driver reports the same seven keys from 3.2 to 3.9. max_num_regs is not used: it counts per program.
DRIVER_FACTS = {
    "multiprocessor_count": "multiprocessor_count",
    "warp_size": "warpSize",
    "shared_memory_per_program_max": "max_shared_mem",
}
TORCH_FACTS = {
    "registers_per_multiprocessor": "regs_per_multiprocessor",
    "shared_memory_per_multiprocessor": "shared_memory_per_multiprocessor",
    "l2_cache_bytes": "L2_cache_size",
    "memory_bytes": "total_memory",
}


class Cuda(Backend):
    """NVIDIA."""

    torch_device_type = "cuda"
    poll = "volatile"
    register = vector_register = "r"
    log2 = "lg2.approx.ftz.f32 $0, $1;"
    tool = "nvidia-smi"
    install = "NVIDIA: pip install torch triton"
    setup = "NVIDIA: `nvidia-smi` lists the devices; CUDA_VISIBLE_DEVICES hides some."
    elsewhere = WHEEL

    def describe(self, index: int, arch: int | str, properties: Mapping[str, Any]) -> Detected:
        """Collects the device's facts from Triton's driver and torch."""
        import torch

        torch_properties = torch.cuda.get_device_properties(index)
        facts = reported(torch_properties, TORCH_FACTS)
        if threads := getattr(torch_properties, "max_threads_per_multi_processor", None):
            facts["max_warps_per_multiprocessor"] = threads // properties["warpSize"]
        if properties["warpSize"] != WARP_SIZE:
            facts["max_threads_per_program"] = THREADS_OF_OTHERS
        driver = {fact: properties[key] for fact, key in DRIVER_FACTS.items()}
        return Detected(torch_properties.name, arch, driver, facts)

    def compile_options(self, num_warps: Count, num_stages: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Names Triton's options; `maxnreg` limits the registers of a thread."""
        return super().compile_options(num_warps, num_stages, max_registers, hardware) | {"maxnreg": max_registers}

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the cubin, the spills in its stack frame (CompileError if they are unknown), and Triton's metadata."""
        if "cubin" not in compiled.asm:  # another vendor's
            return self.without_binary(compiled)
        attributes = cubin.kernel_attributes(compiled.asm["cubin"], compiled.metadata.name)
        frame = max(attributes.get(key, 0) for key in (cubin.FRAME_SIZE, cubin.STACK_SIZE))
        return KernelResources(
            num_warps=compiled.metadata.num_warps,
            registers_per_thread=attributes[cubin.REGISTER_COUNT],
            shared_memory_bytes=compiled.metadata.shared,
            spilled_bytes_per_thread=ptxas.spilled_bytes(compiled) if frame else 0,
            stack_frame_bytes=frame,
            tensor_memory_columns=getattr(compiled.metadata, "tmem_size", None) or None,
        )

    def loops(self, compiled: Any) -> list[Loop]:
        """Reads the cubin."""
        with contextlib.suppress(ValueError, KeyError, struct.error):
            return cubin.loops(compiled.asm["cubin"], compiled.metadata.target.arch)
        return []

    def known_fault(self, compiled: Any) -> str | None:
        """Looks for pairs of 16-bit additions: ptxas 12.9.86 loses the constant of some; see triton-lang/triton issue 11581."""
        if "add.s16x2" in compiled.asm["ptx"]:
            return "its PTX has add.s16x2, which ptxas may compile wrongly: triton-lang/triton issue 11581"
        return None

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts like cudaOccupancyMaxActiveBlocksPerMultiprocessor, with the largest shared memory carve-out.

        It also counts tensor memory, which NVIDIA's function does not: a program for which too little is left becomes resident,
        and waits in tcgen05.alloc for another one to end. A program takes a power of two columns, and 32 at least. Sources:
        cuda_occupancy.h in NVIDIA's pip package nvidia-cuda-runtime; tcgen05.alloc in the PTX ISA.
        """
        columns, there = resources.tensor_memory_columns, hardware.tensor_memory_columns
        more = {"tensor memory": there // max(FEWEST_COLUMNS, 1 << (columns - 1).bit_length())} if columns and there else {}
        return simt.occupancy_of(resources, hardware, more)
