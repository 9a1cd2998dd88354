"""LLVM's own answers, without a device: the AMDGPU compiler inside Triton counts wavefronts per SIMD of every kernel.

It prints them as "; Occupancy:". Kernels of forced register counts are LLVM IR that clobbers registers by name. Spills and
scratch memory are those of its comments, and of the notes in the binary, which the HIP runtime reads.
"""

import re
import struct
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
PRODUCTS = sorted({p.arch: name for name, p in profiles().items() if p.backend == "hip"}.values())  # one of each gfx
QUICK = {"amd/mi100", "amd/mi300x", "amd/rx-7900-xtx"}  # AGPRs beside VGPRs, one file of both, WGPs
ARCHITECTURES = mostly_slow(PRODUCTS, lambda name: name in QUICK)


def compiled_by_llvm(device, kernels):
    """Returns the wavefronts per SIMD by LLVM, and the resources as this package reads them, of (register, warps, LDS)."""
    hw, texts = device.hardware, []
    for number, (register, num_warps, lds) in enumerate(kernels):
        memory = f"@lds{number} = internal addrspace(3) global [{lds} x i8] poison, align 16\n" if lds else ""
        use = f"store volatile i8 0, ptr addrspace(3) @lds{number}" if lds else ""
        size = f'"amdgpu-flat-work-group-size"="{num_warps * hw.warp_size},{num_warps * hw.warp_size}"'
        clobber = f'call void asm sideeffect "", "~{{{register}}}"()'
        texts.append(f"{memory}define amdgpu_kernel void @k{number}() {size} {{\n{use}\n{clobber}\nret void\n}}")
    llvm.init_targets()
    no_gep_rewriting = [False] if VERSION >= (3, 8) else []
    options = "amdgcn-amd-amdhsa", device.arch, "", [], True, False, *no_gep_rewriting
    code, metadata = llvm.translate_to_asm("\n".join(texts), *options).split(".amdgpu_metadata")[:2]
    notes_of = re.split(r"^  - (?=\.)", metadata, flags=re.MULTILINE)[1 : len(kernels) + 1]
    counts = []
    for text, (_, num_warps, lds) in zip(notes_of, kernels, strict=True):
        about = SimpleNamespace(num_warps=num_warps, shared=lds)
        counts.append(device.vendor.resources(SimpleNamespace(asm={"amdgcn": text}, metadata=about)))
    return list(zip(map(int, re.findall(r"; Occupancy: (\d+)", code)), counts, strict=True))


def edges(most, granule):
    """Returns counts to most around each multiple of a granule: what is equal at both ends of a granule is equal within."""
    return [count for count in range(1, most + 1) if count % granule < 2]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_wavefronts_are_those_that_llvm_counts(name):
    """The fullest SIMD's: one wavefront of a program makes LLVM count 1."""
    device = Device.from_profile(name)
    hw, vectors = device.hardware, edges(256, 4)
    granule, most = hw.shared_memory_granule, hw.shared_memory_per_program_max
    sizes = [0, *range(granule, most + 1, 5 * granule), most]
    kernels = [(f"v{count - 1}", 1, 0) for count in vectors] + [(f"s{count - 1}", 1, 0) for count in edges(102, 4)]
    compiled = compiled_by_llvm(device, kernels + [("v0", warps, size) for warps in (1, 2, 4, 8, 16) for size in sizes])
    assert [used.registers_per_thread for _, used in compiled][: len(vectors)] == vectors
    assert max(used.scalar_registers for _, used in compiled) >= 101
    for theirs, used in compiled:
        ours = -(-occupancy(used, device).warps_per_multiprocessor // hw.partitions_per_multiprocessor)
        assert ours <= theirs, used
        if hw.warp_size == 32 or used.scalar_registers <= 64:  # of more, LLVM before Triton 3.9 promises too much
            assert ours == theirs, used


def notes(binary):
    """Returns the metadata of the kernel in a code object: a note of msgpack."""
    content = sections(binary, "code object")[".note"]
    name_size, size = struct.unpack_from("<II", content)
    start = 12 + (name_size + 3) // 4 * 4
    return msgspec.msgpack.decode(content[start : start + size])["amdhsa.kernels"][0]


ANNOTATED = ("amd/mi250x", "amd/mi300x", "amd/rx-7900-xtx", "amd/rx-9070-xt", "amd/mi100")
FEW = {(name, kind) for name in QUICK for kind in ("sin", "sin and cos, few registers")} | {("amd/rx-7900-xtx", "function")}


@pytest.mark.skipif(VERSION < (3, 6), reason="this Triton makes no code objects without the device's software")
@pytest.mark.parametrize(("name", "kind"), mostly_slow(product(ANNOTATED, kinds.LAUNCHES), lambda *case: case in FEW))
def test_spills_and_scratch_memory_are_those_of_the_notes(name, kind):
    """Checks spills by the bytes in the comments of the assembly, which AGPRs and lanes of VGPRs do not get."""
    kernel, arguments, options = kinds.LAUNCHES[kind]
    options = {option: value for option, value in options.items() if option != "maxnreg"}
    facts = inspect_kernel(kernel, arguments, device=name, **options)
    used, assembly, reported = facts.resources, facts.launch.compiled.asm["amdgcn"], notes(facts.launch.compiled.asm["hsaco"])
    stored = sum(map(int, re.findall(r"; (\d+)-byte Folded Spill", assembly)))
    ours = used.registers_per_thread, used.scalar_registers, used.stack_frame_bytes, used.spilled_bytes_per_thread
    theirs = reported[".vgpr_count"], reported[".sgpr_count"], reported[".private_segment_fixed_size"], stored
    assert ours == theirs
    assert (stored > 0) == (reported[".private_segment_fixed_size"] > 0 and reported[".vgpr_spill_count"] > 0)
