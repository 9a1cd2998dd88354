"""Intel. A multiprocessor is an Xe core; a warp is a sub-group; 128 GRFs of 64 bytes are 64 registers of each of 32 lanes."""

import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from portable_softmax.devices.backends import simt
from portable_softmax.devices.backends.base import Backend, Count, Detected, KernelResources, Occupancy
from portable_softmax.devices.backends.machine_code import sections
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import CompileError

OCLOC = "ocloc"  # Intel's offline compiler
DRIVER_FACTS = {"shared_memory_per_program_max": "max_shared_mem", "max_threads_per_program": "max_work_group_size"}
FULL_SIZE_LANES = 32  # with fewer lanes and the large register mode, a program may have only half of the threads
WIDE_GRF = re.compile(r"12\.6[01]|[2-9]\d\.")  # graphics IP of Xe-HPC, and Xe2 and later: a GRF has 64 bytes, in others 32


def _native(ocloc: str, spirv: bytes, version: str, flags: str) -> bytes:
    """Compiles SPIR-V for the graphics IP of that version."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.spv"), Path(folder, "kernel.bin")
        source.write_bytes(spirv)
        options = ["-options", flags] if flags else []
        command = [ocloc, "compile", "-spirv_input", "-file", str(source), "-device", version, *options, "-o", str(binary)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or not binary.is_file():
            raise CompileError(f"ocloc for {version} ended with {done.returncode}: {(done.stdout + done.stderr).strip()}")
        return binary.read_bytes()


def _compile_without_sycl() -> None:
    """Makes Triton's compiler start without SYCL, with which it would build a module that names a live device."""
    from triton.backends import backends

    names = backends["intel"].compiler.__init__.__globals__ if "intel" in backends else {}
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
    poll = "atomic"  # triton-xpu 3.3 turns a volatile load into a plain one
    tool = "xpu-smi"
    install = "Intel: pip install torch --index-url https://download.pytorch.org/whl/xpu"  # brings its Triton
    setup = "Intel: `sycl-ls` lists the devices; ZE_AFFINITY_MASK hides some; /dev/dri must be accessible."
    elsewhere = "triton-xpu does; in a separate environment, `pip install triton-xpu==3.3.0b1` in place of triton"

    def describe(self, index: int, arch: Any, properties: Mapping[str, Any]) -> Detected:
        """Collects the device's facts from torch and Triton's driver, which multiplies slices by their parts to count cores.

        Triton's `arch` is all of torch's properties; `version` among them is the number of the graphics IP, as in 12.60.7.
        """
        import torch

        torch_properties = torch.xpu.get_device_properties(index)
        cores = getattr(torch_properties, "gpu_subslice_count", None)
        driver = {fact: properties[name] for fact, name in DRIVER_FACTS.items()}
        facts = {"memory_bytes": torch_properties.total_memory}
        counted = facts if cores else driver
        counted["multiprocessor_count"] = cores or properties["multiprocessor_count"]
        return Detected(torch_properties.name, str(arch["version"]), driver, facts)

    def compile_target(self, arch: int | str, index: int | None, hardware: Hardware) -> Any:
        """Returns the properties that Triton calls an architecture: torch's, or as few as possible for an absent device."""
        if index is not None:
            import torch

            return torch.xpu.get_device_capability(index)
        _compile_without_sycl()
        return {"version": arch, "sub_group_sizes": [hardware.warp_size]}

    def compile_options(self, num_warps: Count, num_stages: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Names Triton's options: lanes, by both names; 128 GRFs, 256 for half as many threads, or the compiler's choice."""
        mode = "auto"
        if max_registers is not None:
            mode = "small" if max_registers <= (hardware.max_registers_per_thread or 0) // 2 else "large"
        lanes = {"threads_per_warp": hardware.warp_size, "warp_size": hardware.warp_size}
        return super().compile_options(num_warps, num_stages, max_registers, hardware) | {"grf_mode": mode, **lanes}

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the native binary, which `ocloc` makes from Triton's SPIR-V, as drivers do. Without it registers are unknown.

        With TRITON_XPU_GEN_NATIVE_CODE Triton itself returns the binary. CompileError: ocloc failed; the text is its own.
        """
        metadata, binary, ocloc = compiled.metadata, compiled.asm["spv"], shutil.which(OCLOC)
        used = KernelResources(metadata.num_warps, shared_memory_bytes=metadata.shared)
        version = metadata.target.arch["version"]
        if not binary.startswith(b"\x7fELF"):
            if not ocloc:
                return used
            binary = _native(ocloc, binary, version, metadata.build_flags)
        return replace(used, **kernel_resources(binary, metadata.name, version))

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts like KernelHelper::getMaxWorkGroupCount of intel/compute-runtime, on one Xe core.

        With most registers and fewer lanes half of the threads are allowed: GfxCoreHelperHw::calculateMaxWorkGroupSize.
        """
        lanes, threads = hardware.warp_size or 0, hardware.max_threads_per_program or 0
        halved = lanes < FULL_SIZE_LANES and resources.registers_per_thread == hardware.max_registers_per_thread
        refused = halved and (resources.num_warps or 0) * lanes > threads // 2
        return simt.occupancy_of(resources, hardware, {"threads per program": 0} if refused else {})


def kernel_resources(zebin: bytes, kernel: str, version: str) -> dict[str, Any]:
    """Returns registers, barriers, spills and frame of `kernel` from .ze_info, by their names in KernelResources, per thread.

    The lanes of a hardware thread share its GRFs. ValueError: not a zebin, or the kernel is not in it. Sources: ZEBinary of
    intel/intel-graphics-compiler; hw_cmds_*.h of intel/compute-runtime (GRF sizes).
    """
    by_name = sections(zebin, "zebin")
    if ".ze_info" not in by_name:
        raise ValueError("not a zebin: it has no section .ze_info")
    kernels = yaml.safe_load(by_name[".ze_info"].rstrip(b"\0"))["kernels"]
    described = next((entry for entry in kernels if entry["name"] == kernel), None)
    if described is None:
        raise ValueError(f"the zebin does not describe the kernel {kernel!r}")
    environment, memory = described["execution_env"], described.get("per_thread_memory_buffers", ())
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
