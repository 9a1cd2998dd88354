"""AMD. A multiprocessor is what the HIP driver counts: a CU on CDNA, a WGP (two CUs) on RDNA."""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from portable_softmax.devices.backends import simt
from portable_softmax.devices.backends.base import Backend, Detected, KernelResources
from portable_softmax.devices.backends.machine_code import Instruction, Loop, loop_of
from portable_softmax.devices.schema import Hardware

WARP_OF_CDNA = 64
SGPRS = 800  # of a SIMD of gfx9
WARPS_OF_A_CU = 32  # the most that a CU of RDNA 2 to 4 reports (2 SIMDs of 16 wavefronts); its WGP reports 64
BLOCK = re.compile(r"\.?L?(BB\d+_\d+):|; %bb\.\d+:")
IN_LOOP, HEADER = re.compile(r"in Loop: Header=(\w+) Depth=(\d+)"), re.compile(r"Loop Header: Depth=(\d+)")
LOAD, STORE = re.compile(r"(global|flat|buffer)_load_"), re.compile(r"(global|flat|buffer)_(store|atomic)_")
WAIT = re.compile(r"s_wait(?:cnt .*?\bvmcnt\(|_loadcnt )(0x[0-9a-f]+|\d+)")
OF_64 = "gfx9"  # architectures with one counter of loads and stores, and vectors of 64 lanes on 16
CLOCKS = 4  # of an instruction for such a vector


def loops_of(asm: Mapping[str, Any], arch: str) -> list[Loop]:
    """Returns the code of a kernel outside loops, then that of every loop that LLVM's comments name; ValueError without any."""
    body, end, _ = asm["amdgcn"].partition(".Lfunc_end0:")
    if not end:
        raise ValueError("the assembly ends no function")
    blocks = defaultdict[tuple[str, int], list[Instruction]](list)
    name, place = "", ("", 0)
    for line in map(str.strip, body.partition(".Lfunc_begin0:")[2].splitlines()):
        if block := BLOCK.match(line):
            name, place = block[1] or "", ("", 0)
        if in_loop := IN_LOOP.search(line):
            place = in_loop[1], int(in_loop[2])
        elif header := HEADER.search(line):
            place = name, int(header[1])
        if line[:1].isalpha() and not line.endswith(":"):
            blocks[place].append(_instruction(line, arch))
    return [loop_of(depth, code) for (_, depth), code in sorted(blocks.items(), key=lambda one: one[0][1])]


def _instruction(line: str, arch: str) -> Instruction:
    of_64 = arch.startswith(OF_64)
    if wait := WAIT.match(line):
        return Instruction(waits=(0,), left=int(wait[1], 0))
    if LOAD.match(line):
        return Instruction(loads=True, counter=None if "_lds" in line else 0)  # into shared memory
    if of_64 and STORE.match(line):
        return Instruction(counter=0)
    if of_64 and line.startswith("v_"):
        return Instruction(clocks=CLOCKS)
    return Instruction()


class Hip(Backend):
    """AMD."""

    torch_device_type = "cuda"  # ROCm builds of torch keep the name
    poll = "atomic"  # Triton 3.8 turns a volatile load into a plain one, and LLVM then moves it out of the polling loop
    emulated = True  # by amdgcn-cpu
    register = "=s,0"
    vector_register = "=v,0"
    tool = "rocm-smi"
    read_loops = staticmethod(loops_of)
    install = "AMD: pip install torch --index-url https://download.pytorch.org/whl/rocm6.4"  # brings its Triton
    setup = "AMD: `rocminfo` lists the devices; HIP_VISIBLE_DEVICES hides some; /dev/kfd and /dev/dri must be accessible."

    def describe(self, known: Any, arch: Any, properties: Mapping[str, Any]) -> Detected:
        """Counts WGPs of an RDNA, for which Triton compiles: with GPU_ENABLE_WGP_MODE=0 its driver counts CUs, two in a WGP."""
        name = str(arch).partition(":")[0]  # gfx942:sramecc+:xnack- names features, not another architecture
        detected = super().describe(known, name, properties)
        if properties["warpSize"] == 32 and properties["max_threads_per_sm"] // 32 <= WARPS_OF_A_CU:
            pairs = detected.driver["multiprocessor_count"] // 2
            return detected._replace(driver={**detected.driver, "multiprocessor_count": pairs})
        return detected

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the metadata at the end of the assembly. Without scratch memory, which holds arrays too, no spill is in memory.

        `.vgpr_count` is the allocation of a wavefront: V + A on gfx90a and later, max(V, A) on gfx908.
        """
        if not (assembly := compiled.asm.get("amdgcn")):  # another vendor's
            return super().resources(compiled)
        counted = re.findall(r"^\s*\.(\w+):\s+(\d+)", assembly.rpartition("amdhsa.kernels:")[2], re.MULTILINE)
        counts = {name: int(number) for name, number in counted}  # of several, the last one
        scratch = counts["private_segment_fixed_size"]
        spilled = 4 * counts["vgpr_spill_count"] if scratch else 0
        used = replace(super().resources(compiled), spilled_bytes_per_thread=spilled, stack_frame_bytes=scratch)
        return replace(used, registers_per_thread=counts["vgpr_count"], scalar_registers=counts["sgpr_count"])

    def limits(self, resources: KernelResources, hardware: Hardware) -> dict[str, int]:
        """Counts like LLVM, and adds the limit by LDS, which LLVM does not see.

        On gfx9 the wavefronts of a SIMD share its 800 SGPRs; later ones have a fixed set for each. A wavefront takes 16
        more for the trap handler, which LLVM's table up to Triton 3.8 does not count. Sources: AMDGPUBaseInfo.cpp and
        GCNSubtarget of LLVM; LLVM pull request 201342; ROCm/rocm-systems pull request 10618 (92 SGPRs: 7 on gfx942).
        """
        limits = simt.limits_of(resources, hardware)
        if hardware.warp_size == WARP_OF_CDNA and resources.scalar_registers:
            simds, wavefronts = hardware.partitions_per_multiprocessor or 1, resources.num_warps or 1  # of a CU, of a program
            limits["scalar registers"] = SGPRS // (simt.round_up(resources.scalar_registers, 16) + 16) * simds // wavefronts
        return limits
