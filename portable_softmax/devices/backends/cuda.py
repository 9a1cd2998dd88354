"""NVIDIA."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from portable_softmax.devices.backends import cubin, simt
from portable_softmax.devices.backends.base import TORCH_NAMES, Backend, Count, Detected, KernelResources
from portable_softmax.devices.backends.tools import run_tool
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import CompileError

SHARED = "shared_memory_per_multiprocessor"
WARP_SIZE = 32  # of all NVIDIA's devices
THREADS_OF_OTHERS = 512  # the fewest that a program on other vendors' may have: flagos-ai/FlagGems pull request 5258
FEWEST_COLUMNS = 32  # of tensor memory, that tcgen05.alloc takes

# Data of a thread's own in memory, and functions, which may store registers for those that call them.
OWN_DATA = re.compile(r"^\s*(\.local|(\.visible |\.weak |\.extern )?\.func)\b", re.MULTILINE)
FIRST_WITH_ALLOCATOR = 3, 7  # release of Triton that names the level of the register allocator


class Cuda(Backend):
    """NVIDIA."""

    torch_device_type = "cuda"
    torch_names: Mapping[str, str] = {**TORCH_NAMES, "registers_per_multiprocessor": "regs_per_multiprocessor", SHARED: SHARED}
    register = vector_register = "=r,0"
    log2 = "lg2.approx.ftz.f32 $0, $1;"
    tool = "nvidia-smi"
    install = "NVIDIA: pip install torch triton"
    read_loops = staticmethod(cubin.loops)
    setup = "NVIDIA: `nvidia-smi` lists the devices; CUDA_VISIBLE_DEVICES hides some."

    def describe(self, known: Any, arch: Any, properties: Mapping[str, Any]) -> Detected:
        """Adds the most threads: of a multiprocessor, and of a program on other vendors' devices."""
        detected, threads = super().describe(known, arch, properties), {}
        if most := getattr(known, "max_threads_per_multi_processor", None):
            threads["max_warps_per_multiprocessor"] = most // properties["warpSize"]
        if properties["warpSize"] != WARP_SIZE:
            threads["max_threads_per_program"] = THREADS_OF_OTHERS
        return detected._replace(torch={**detected.torch, **threads})

    def compile_options(self, num_warps: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Names Triton's options; `maxnreg` limits the registers of a thread."""
        return super().compile_options(num_warps, max_registers, hardware) | {"maxnreg": max_registers}

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the cubin, the spills in its stack frame (CompileError if they are unknown), and Triton's metadata."""
        used = super().resources(compiled)
        if "cubin" not in compiled.asm:  # another vendor's
            return used
        attributes, columns = cubin.largest_attributes(compiled.asm["cubin"]), getattr(compiled.metadata, "tmem_size", None)
        registers, frame = attributes[cubin.REGISTER_COUNT], attributes.get(cubin.STACK_SIZE, 0)
        used = replace(used, registers_per_thread=registers, stack_frame_bytes=frame, tensor_memory_columns=columns or None)
        return replace(used, spilled_bytes_per_thread=spilled_bytes(compiled, frame))

    def known_fault(self, compiled: Any) -> str | None:
        """Looks for code of two bugs, of which docs/internals/faults_of_others.md has more.

        ptxas 12.9.86 loses the constant of some pairs of 16-bit additions. LLVM in Triton 3.6 packs two 32-bit shifts into one
        of 64 bits, a product: its lower half overflows into the upper one.
        """
        ptx = compiled.asm["ptx"]
        if "add.s16x2" in ptx:
            return "its PTX has add.s16x2, which ptxas may compile wrongly: triton-lang/triton issue 11581"
        shifts = [name for name, factor in re.findall(r"mul\.wide\.u32\s+(%rd\d+), %r\d+, (\d+);", ptx) if int(factor) >= 2**16]
        if any(re.search(rf"or\.b64\s+%rd\d+, [^;]*{name}\b", ptx) for name in shifts):
            return "its PTX has two 32-bit shifts in one of 64 bits, which LLVM may compile wrongly"
        return None

    def limits(self, resources: KernelResources, hardware: Hardware) -> dict[str, int]:
        """Counts like cudaOccupancyMaxActiveBlocksPerMultiprocessor, with the largest shared memory carve-out.

        It also counts tensor memory, for which a program waits in tcgen05.alloc until another one ends: a power of two columns.
        Sources: cuda_occupancy.h in NVIDIA's pip package nvidia-cuda-runtime; tcgen05.alloc in the PTX ISA.
        """
        limits, columns = simt.limits_of(resources, hardware), resources.tensor_memory_columns
        if columns and hardware.tensor_memory_columns:
            limits["tensor memory"] = hardware.tensor_memory_columns // max(FEWEST_COLUMNS, 1 << (columns - 1).bit_length())
        return limits


def spilled_bytes(compiled: Any, frame: int) -> int:
    """Counts the bytes of spilled registers of Triton's CompiledKernel, of which a thread has a stack frame of so many.

    Without data of its own all that a kernel stores in its frame is spilled. Otherwise the assembler is run to report it:
    CompileError if it fails, or does not make of the PTX what Triton made of it.
    """
    if not frame:
        return 0
    if not OWN_DATA.search(compiled.asm["ptx"]):
        return cubin.local_stores(compiled.asm["cubin"])
    log, made = _assembled(compiled.asm["ptx"], compiled.metadata)
    was, now = (cubin.largest_attributes(binary) for binary in (compiled.asm["cubin"], made))
    if was != now:
        why = f"{compiled.metadata.name}: ptxas was run to report spills, and made another kernel than Triton"
        raise CompileError(f"{why}; unset what changes Triton's options of ptxas, such as DISABLE_PTXAS_OPT")
    return sum(int(stores) for stores in re.findall(r"(\d+) bytes spill stores", log))


def _assembled(ptx: str, metadata: Any) -> tuple[str, bytes]:
    """Runs the assembler on PTX as Triton does; returns the output of `ptxas -v`, and the cubin."""
    import triton

    ((target, arch),) = re.findall(r"^\.target (sm_(\d+)\w*)", ptx, re.MULTILINE)
    options = (getattr(metadata, "ptx_options", None) or "").split()
    if not metadata.enable_fp_fusion:
        options.append("--fmad=false")
    if tuple(map(int, triton.__version__.split(".")[:2])) >= FIRST_WITH_ALLOCATOR:
        options.append("--regAllocOptLevel=2")
    options += ["-lineinfo", "-v", f"--gpu-name={target}", "kernel.ptx", "-o", "kernel.cubin"]
    code, printed, made = run_tool([_assembler(int(arch)), *options], {"kernel.ptx": ptx.encode()}, "kernel.cubin")
    if code:
        raise CompileError(f"ptxas {' '.join(options)} ended with {code}: {printed.strip()}")
    return printed, made


def _assembler(arch: int) -> str:
    """Returns the path of the ptxas that Triton uses for a compute capability; TRITON_PTXAS_PATH and others may name it."""
    from triton.backends.nvidia import compiler

    if not hasattr(compiler, "get_ptxas"):  # Triton 3.2
        return str(compiler._path_to_binary("ptxas")[0])
    arguments = [arch][: len(inspect.signature(compiler.get_ptxas).parameters)]  # Triton 3.4 and 3.5 have one for all
    tool = compiler.get_ptxas(*arguments)
    return str(getattr(tool, "path", None) or tool[0])  # Triton 3.3 returns a tuple
