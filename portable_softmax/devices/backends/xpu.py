"""Intel. A multiprocessor is an Xe core; a warp is a sub-group; 128 GRFs of 64 bytes are 64 registers of each of 32 lanes."""

import functools
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import yaml

from portable_softmax.devices.backends import simt
from portable_softmax.devices.backends.base import DRIVER_NAMES, Backend, Count, Detected, KernelResources
from portable_softmax.devices.backends.machine_code import sections
from portable_softmax.devices.backends.tools import run_tool
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import CompileError

OCLOC = "ocloc"  # Intel's offline compiler
FULL_SIZE_LANES = 32  # with fewer lanes and the large register mode, a program may have only half of the threads
WIDE_GRF = re.compile(r"12\.6[01]|[2-9]\d\.")  # graphics IP of Xe-HPC, and Xe2 and later: a GRF has 64 bytes, in others 32


def _native(ocloc: str, spirv: bytes, version: str, flags: str) -> bytes:
    """Compiles SPIR-V for the graphics IP of that version."""
    command = [ocloc, "compile", "-spirv_input", "-file", "kernel.spv", "-device", version]
    if flags:
        command += ["-options", flags]
    code, printed, binary = run_tool([*command, "-o", "kernel.bin"], {"kernel.spv": spirv}, "kernel.bin")
    if code or not binary:
        raise CompileError(f"ocloc for {version} ended with {code}: {printed.strip()}")
    return binary


def _compile_without_sycl() -> None:
    """Makes Triton's compiler start without SYCL, with which it would build a module that names a live device."""
    from triton.backends import backends

    if "intel" not in backends:
        return
    names = backends["intel"].compiler.__init__.__globals__
    build = names.get("compile_module_from_src")
    if build and not hasattr(build, "__wrapped__"):

        @functools.wraps(build)
        def built(src: str, name: str) -> Any:
            if name != "arch_utils":
                return build(src, name)
            return SimpleNamespace(parse_device_arch=lambda arch: build(src, name).parse_device_arch(arch) if arch else "")

        names["compile_module_from_src"] = built


class Xpu(Backend):
    """Intel."""

    torch_device_type = "xpu"
    driver_names: Mapping[str, str] = {**DRIVER_NAMES, "max_threads_per_program": "max_work_group_size"}
    torch_names: Mapping[str, str] = {"multiprocessor_count": "gpu_subslice_count", "memory_bytes": "total_memory"}
    poll = "atomic"  # triton-xpu 3.3 turns a volatile load into a plain one
    tool = "xpu-smi"
    install = "Intel: pip install torch --index-url https://download.pytorch.org/whl/xpu"  # brings its Triton
    setup = "Intel: `sycl-ls` lists the devices; ZE_AFFINITY_MASK hides some; /dev/dri must be accessible."
    elsewhere = "triton-xpu does; in a separate environment, `pip install triton-xpu==3.3.0b1` in place of triton"

    def describe(self, known: Any, arch: Any, properties: Mapping[str, Any]) -> Detected:
        """Reads the version, the number of the graphics IP as in 12.60.7: Triton's `arch` is all of torch's properties."""
        return super().describe(known, str(arch["version"]), properties)

    def compile_target(self, arch: int | str, index: int | None, hardware: Hardware) -> Any:
        """Returns the properties that Triton calls an architecture: torch's, or as few as possible for an absent device."""
        if index is not None:
            import torch

            return torch.xpu.get_device_capability(index)
        _compile_without_sycl()
        return {"version": arch, "sub_group_sizes": [hardware.warp_size]}

    def compile_options(self, num_warps: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Names Triton's options: lanes, by both names; 128 GRFs, 256 for half as many threads, or the compiler's choice."""
        mode = "small" if (max_registers or 0) <= (hardware.max_registers_per_thread or 0) // 2 else "large"
        lanes = {"threads_per_warp": hardware.warp_size, "warp_size": hardware.warp_size}
        own = {"grf_mode": mode if max_registers else "auto", **lanes}
        return super().compile_options(num_warps, max_registers, hardware) | own

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the native binary, which `ocloc` makes from Triton's SPIR-V, as drivers do. Without it registers are unknown.

        With TRITON_XPU_GEN_NATIVE_CODE Triton itself returns the binary. CompileError: ocloc failed; the text is its own.
        """
        metadata, binary, ocloc = compiled.metadata, compiled.asm["spv"], shutil.which(OCLOC)
        used, version = super().resources(compiled), metadata.target.arch["version"]
        if not binary.startswith(b"\x7fELF"):
            if not ocloc:
                return used
            binary = _native(ocloc, binary, version, metadata.build_flags)
        return replace(used, **kernel_resources(binary, metadata.name, version))

    def limits(self, resources: KernelResources, hardware: Hardware) -> dict[str, int]:
        """Counts like KernelHelper::getMaxWorkGroupCount of intel/compute-runtime, on one Xe core.

        With most registers and fewer lanes half of the threads are allowed: GfxCoreHelperHw::calculateMaxWorkGroupSize.
        """
        lanes, threads = hardware.warp_size or 0, hardware.max_threads_per_program or 0
        limits = simt.limits_of(resources, hardware)
        halved = lanes < FULL_SIZE_LANES and resources.registers_per_thread == hardware.max_registers_per_thread
        if halved and (resources.num_warps or 0) * lanes > threads // 2:
            limits["threads per program"] = 0
        return limits


def kernel_resources(zebin: bytes, kernel: str, version: str) -> dict[str, Any]:
    """Returns registers, barriers, spills and frame of `kernel` from .ze_info, by their names in KernelResources, per thread.

    The lanes of a hardware thread share its GRFs. ValueError: not a zebin, or the kernel is not in it. Sources: ZEBinary of
    intel/intel-graphics-compiler; hw_cmds_*.h of intel/compute-runtime (GRF sizes).
    """
    info = yaml.safe_load(sections(zebin, "zebin").get(".ze_info", b"kernels: []").rstrip(b"\0"))
    kernels = {entry["name"]: entry for entry in info["kernels"]}
    if kernel not in kernels:
        raise ValueError(f"the zebin does not describe the kernel {kernel!r}")
    environment, memory = kernels[kernel]["execution_env"], kernels[kernel].get("per_thread_memory_buffers", ())
    lanes, grf_bytes = environment["simd_size"], 64 if WIDE_GRF.match(version) else 32
    frame = sum(buffer["size"] for buffer in memory)
    maybe_spilled = sum(buffer["size"] for buffer in memory if buffer.get("usage") != "private_space")
    spilled = environment.get("spill_size", maybe_spilled)  # older compilers do not say how much of a single space is spilled
    return {
        "registers_per_thread": environment["grf_count"] * grf_bytes // (4 * lanes),
        "barriers": environment.get("barrier_count", 0),
        "spilled_bytes_per_thread": -(-spilled // lanes),
        "stack_frame_bytes": -(-max(frame, spilled) // lanes),
    }
