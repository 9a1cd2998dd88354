"""LLVM's own answers, without a device: the AMDGPU compiler inside Triton counts wavefronts per SIMD of every kernel.

It prints them as "; Occupancy:". Kernels of forced register counts are LLVM IR that clobbers registers by name. Spills and
scratch memory are those of its comments, and of the notes in the binary, which the HIP runtime reads.
"""

import re
import struct
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace

import launched_kernels as kinds
import msgspec
import pytest
import triton
from sweep import mostly_slow
from triton._C.libtriton import llvm

from portable_softmax import Device, inspect_kernel, occupancy, profiles
from portable_softmax.devices.backends.machine_code import sections

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
PROFILES = sorted({p.arch: name for name, p in profiles().items() if p.backend == "hip"}.values())  # one of each gfx


@dataclass(frozen=True)
class Forced:
    """A kernel that does nothing but use resources."""

    clobbers: tuple[str, ...]  # v9 takes the VGPRs 0 to 9
    num_warps: int = 1
    lds_bytes: int = 0

    def ir(self, number, warp_size):
        threads = self.num_warps * warp_size
        lds = f"@lds{number} = internal addrspace(3) global [{self.lds_bytes} x i8] poison, align 16"
        use = f"  store volatile i8 0, ptr addrspace(3) @lds{number}"
        clobbers = ",".join(f"~{{{register}}}" for register in self.clobbers)
        return f"""{lds if self.lds_bytes else ""}
            define amdgpu_kernel void @k{number}() "amdgpu-flat-work-group-size"="{threads},{threads}" {{
            {use if self.lds_bytes else ""}
              call void asm sideeffect "", "{clobbers}"()
              ret void
            }}"""


def compiled_by_llvm(device, kernels):
    """For each kernel (wavefronts per SIMD by LLVM, its resources as this package reads them)."""
    llvm.init_targets()
    ir = "\n".join(kernel.ir(number, device.hardware.warp_size) for number, kernel in enumerate(kernels))
    no_gep_rewriting = [False] if VERSION >= (3, 8) else []
    assembly = llvm.translate_to_asm(ir, "amdgcn-amd-amdhsa", device.arch, "", [], True, False, *no_gep_rewriting)
    code, metadata = assembly.split(".amdgpu_metadata")[:2]
    texts = re.split(r"^  - (?=\.)", metadata, flags=re.MULTILINE)[1 : len(kernels) + 1]
    counts = [
        device.vendor.resources(
            SimpleNamespace(asm={"amdgcn": text}, metadata=SimpleNamespace(num_warps=kernel.num_warps, shared=kernel.lds_bytes))
        )
        for text, kernel in zip(texts, kernels, strict=True)
    ]
    return list(zip(wavefronts_by_llvm(code), counts, strict=True))


def wavefronts_by_llvm(assembly):
    return [int(number) for number in re.findall(r"; Occupancy: (\d+)", assembly)]


def wavefronts(resources, device):
    """Per SIMD, the fullest one's: one wavefront of a program makes LLVM count 1."""
    count = occupancy(resources, device).warps_per_multiprocessor
    return -(-count // device.hardware.partitions_per_multiprocessor)


def with_sgprs_counted_right(device, compiled):
    """Without the kernels of which LLVM before Triton 3.9 promises too much; none gets more from this package."""
    assert all(wavefronts(resources, device) <= theirs for theirs, resources in compiled)
    always = device.hardware.warp_size == 32
    return [(theirs, resources) for theirs, resources in compiled if always or resources.scalar_registers <= 64]


def edges(most, granule):
    """Counts to most around each multiple of a granule. More registers are never more wavefronts: what is equal at both ends of
    a granule is equal within."""
    return [count for count in range(1, most + 1) if count % granule < 2]


def compare(device, compiled):
    different = [(r, wavefronts(r, device), theirs) for theirs, r in compiled if wavefronts(r, device) != theirs]
    assert different == []


@pytest.mark.parametrize("profile", PROFILES)
def test_vector_registers(profile):
    device = Device.from_profile(profile)
    compiled = compiled_by_llvm(device, [Forced((f"v{n - 1}",)) for n in edges(256, 4)])
    assert [resources.registers_per_thread for _, resources in compiled] == edges(256, 4)
    compare(device, compiled)


@pytest.mark.parametrize("profile", PROFILES)
def test_scalar_registers(profile):
    device = Device.from_profile(profile)
    compiled = compiled_by_llvm(device, [Forced((f"s{n - 1}",)) for n in edges(102, 4)])
    assert max(resources.scalar_registers for _, resources in compiled) >= 101
    compare(device, with_sgprs_counted_right(device, compiled))


@pytest.mark.parametrize("profile", PROFILES)
def test_lds_wave_slots_and_barriers(profile):
    device = Device.from_profile(profile)
    granule, most = device.hardware.shared_memory_granule, device.hardware.shared_memory_per_program_max
    sizes = [0, *range(granule, most + 1, 5 * granule), most]
    compiled = compiled_by_llvm(device, [Forced(("v0",), warps, lds) for warps in (1, 2, 4, 8, 16) for lds in sizes])
    compare(device, compiled)


def notes(binary):
    """The metadata of the kernel in a code object: a note of msgpack."""
    content = sections(binary, "code object")[".note"]
    name_size, size = struct.unpack_from("<II", content)
    start = 12 + (name_size + 3) // 4 * 4
    return msgspec.msgpack.decode(content[start : start + size])["amdhsa.kernels"][0]


ANNOTATED = ("amd/mi250x", "amd/mi300x", "amd/rx-7900-xtx", "amd/rx-9070-xt", "amd/mi100")


@pytest.mark.skipif(VERSION < (3, 6), reason="this Triton makes no code objects without the device's software")
@pytest.mark.parametrize(
    ("profile", "name"),
    mostly_slow(product(ANNOTATED, kinds.LAUNCHES), lambda profile, name: profile == "amd/rx-7900-xtx" and name in kinds.FEW),
)
def test_spills_and_scratch_memory_are_those_of_the_notes(profile, name):
    """Checks spills by the bytes in the comments of the assembly, which AGPRs and lanes of VGPRs do not get."""
    kernel, arguments, options = kinds.LAUNCHES[name]
    options = {option: value for option, value in options.items() if option != "maxnreg"}
    facts = inspect_kernel(kernel, arguments, device=profile, **options)
    used, assembly, reported = facts.resources, facts.launch.compiled.asm["amdgcn"], notes(facts.launch.compiled.asm["hsaco"])
    stored = sum(map(int, re.findall(r"; (\d+)-byte Folded Spill", assembly)))
    ours = used.registers_per_thread, used.scalar_registers, used.stack_frame_bytes, used.spilled_bytes_per_thread
    theirs = reported[".vgpr_count"], reported[".sgpr_count"], reported[".private_segment_fixed_size"], stored
    assert ours == theirs
    assert (stored > 0) == (reported[".private_segment_fixed_size"] > 0 and reported[".vgpr_spill_count"] > 0)
