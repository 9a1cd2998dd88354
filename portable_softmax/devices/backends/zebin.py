"""Registers, barriers and spills of a kernel, read from the output of Intel's compiler: an ELF64 file, a "zebin".

Sources: documentation/igc/ZEBinary of intel/intel-graphics-compiler; hw_cmds_*.h of intel/compute-runtime (GRF sizes).
"""

import struct

import yaml

from portable_softmax.devices.backends.elf import sections

CORE_FAMILY = 2  # NT_INTELGT_GFXCORE_FAMILY: type of a note in .note.intelgt.compat
WIDE_GRF_FAMILY = 0xC08  # Xe-HPC. A GRF has 64 bytes in this family and later ones, 32 in earlier ones


def kernel_resources(zebin: bytes, kernel: str) -> dict[str, int]:
    """Returns registers, barriers, spills and frame of `kernel` from .ze_info, by their names in KernelResources, per thread.

    The lanes of a hardware thread share its GRFs. ValueError: not a zebin, or the kernel is not in it.
    """
    by_name = dict(sections(zebin, "zebin"))
    if ".ze_info" not in by_name:
        raise ValueError("not a zebin: it has no section .ze_info")
    kernels = yaml.safe_load(by_name[".ze_info"].content.rstrip(b"\0"))["kernels"]
    described = next((entry for entry in kernels if entry["name"] == kernel), None)
    if described is None:
        raise ValueError(f"the zebin does not describe the kernel {kernel!r}")
    environment, memory = described["execution_env"], described.get("per_thread_memory_buffers", ())
    lanes = environment["simd_size"]
    wide = _core_family(by_name[".note.intelgt.compat"].content) >= WIDE_GRF_FAMILY
    frame = sum(buffer["size"] for buffer in memory)
    maybe_spilled = sum(buffer["size"] for buffer in memory if buffer.get("usage") != "private_space")
    spilled = environment.get("spill_size", maybe_spilled)  # older compilers do not say how much of a single space is spilled
    return {
        "registers_per_thread": environment["grf_count"] * (64 if wide else 32) // (4 * lanes),
        "barriers": environment.get("barrier_count", 0),
        "spilled_bytes_per_thread": -(-spilled // lanes),
        "stack_frame_bytes": -(-max(frame, spilled) // lanes),
    }


def _core_family(notes: bytes) -> int:
    at = 0
    while at < len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        at += 12 + (name_size + 3) // 4 * 4
        if kind == CORE_FAMILY:
            family: int = struct.unpack_from("<I", notes, at)[0]
            return family
        at += (size + 3) // 4 * 4
    raise ValueError("the zebin does not name a family of GPUs")
