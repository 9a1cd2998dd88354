"""Every profile has a plan for every length and type, and its compiled kernel wastes nothing that can be seen offline."""

import re

import pytest

from portable_softmax import Device, plan, profiles
from portable_softmax.backends.base import DTYPE_BYTES
from portable_softmax.launch import VECTOR_BYTES, contiguous_problem
from portable_softmax.spec import KernelSpec, compile_kernel

LENGTHS = (1, 2, 7, 8, 16, 33, 64, 100, 128, 200, 256, 500, 512, 776, 781, 1000, 1024, 2048, 3000, 4096, 8192, 12672, 16384,
           32768, 50257, 65536, 131072)  # fmt: skip
DTYPES = ("float16", "bfloat16", "float32")
LENGTHS_OF_GRADIENTS = (1, 33, 781, 776, 4096, 12672, 65536)  # in the normal run; the slow one has them all
N_ROWS = 4096
PTX_ACCESS = r"\b((?:ld|st)\.global[\w.:]*?(?:\.v(\d))?\.[bfu](\d+))\b"
AMD_ACCESS = r"\b((?:buffer|global|flat)_(?:load|store)_(?:d16_)?(?:hi_)?(\w+?)(?:_d16(?:_hi)?)?)\s"
AMD_BYTES = {"byte": 1, "ubyte": 1, "short": 2, "ushort": 2, "dword": 4, "dwordx2": 8, "dwordx4": 16}


@pytest.mark.parametrize(
    "profile",
    # Products of one architecture in one process, where they share their compiled kernels.
    [pytest.param(name, marks=pytest.mark.xdist_group(profile.arch)) for name, profile in sorted(profiles().items())],
)
@pytest.mark.parametrize(
    ("backward", "lengths"),
    [(False, LENGTHS), (True, LENGTHS_OF_GRADIENTS), pytest.param(True, LENGTHS, marks=pytest.mark.slow)],
    ids=["forward", "backward", "backward at every length"],
)
def test_plans_and_their_kernels(profile, backward, lengths, record_count):
    device = Device.from_profile(profile)
    faults = [
        f"{n_cols} {dtype}: {fault}"
        for n_cols in lengths
        for dtype in DTYPES
        for fault in (*faults_of_plan(device, n_cols, dtype, backward), *faults_of_kernel(device, n_cols, dtype, backward))
    ]
    record_count(f"static quality, {device.backend}/{device.arch}", len(lengths) * len(DTYPES), len(faults))
    assert not faults


def faults_of_plan(device, n_cols, dtype, backward):
    found, hardware = plan(N_ROWS, n_cols, dtype, device, backward=backward), device.hardware
    if not 1 <= found.num_programs <= min(N_ROWS, hardware.max_programs or N_ROWS):
        yield f"{found.num_programs} programs"
    if found.occupancy.programs_per_multiprocessor < 1:
        yield "does not fit a multiprocessor"
    if found.tile_cols < n_cols and found.strategy == "tile":
        yield f"a tile of {found.tile_cols} columns"
    if found.resources.spilled_bytes_per_thread:
        yield f"spills {found.resources.spilled_bytes_per_thread} bytes per thread"
    if found.num_warps and found.num_warps * hardware.warp_size > hardware.max_threads_per_program:
        yield f"{found.num_warps} warps"
    if hardware.shared_memory_per_program_max and found.resources.shared_memory_bytes > hardware.shared_memory_per_program_max:
        yield f"{found.resources.shared_memory_bytes} bytes of shared memory"


def faults_of_kernel(device, n_cols, dtype, backward):
    """Narrow accesses; only where a compiler for the device is here."""
    found = plan(N_ROWS, n_cols, dtype, device, backward=backward)
    if found.num_warps is None:
        return
    problem = contiguous_problem(N_ROWS, n_cols, dtype, device, backward=backward)
    compiled = compile_kernel(KernelSpec.of(problem, found.tiling), device)
    per_thread = max(1, found.tile_rows * found.tile_cols // (found.num_warps * device.hardware.warp_size))
    possible = min(VECTOR_BYTES, min(problem.vector, per_thread) * DTYPE_BYTES[dtype])
    for access, width in access_widths(compiled.asm):
        if width < possible:
            yield f"{access} of {width} bytes, where {possible} are possible"


def access_widths(asm):
    """(instruction, bytes) of every access to global memory in PTX or AMD assembly."""
    if "ptx" in asm:
        widths = [(text, int(count or 1) * int(bits) // 8) for text, count, bits in re.findall(PTX_ACCESS, asm["ptx"])]
    else:
        found = re.findall(AMD_ACCESS, asm["amdgcn"])
        widths = [(text, AMD_BYTES.get(kind) or int(re.sub(r"\D", "", kind)) // 8) for text, kind in found]
    assert widths, "a softmax reads and writes global memory"
    return widths


PTX = """
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
    ld.global.L1::evict_first.v2.b64 {%rd1, %rd2}, [%rd3];
    st.global.b16 [%rd1], %rs1;
"""
AMDGCN = """
    buffer_load_dwordx4 v[0:3], v4, s[0:3], 0 offen
    global_store_b128 v0, v[1:4], s[0:1]
    buffer_load_u16 v1, v2, s[0:3], 0 offen
    global_load_short_d16_hi v1, v2, s[0:1]
"""


@pytest.mark.parametrize(("asm", "widths"), [({"ptx": PTX}, [16, 16, 2]), ({"amdgcn": AMDGCN}, [16, 16, 2, 2])])
def test_widths_are_read_from_assembly(asm, widths):
    assert [width for _, width in access_widths(asm)] == widths
