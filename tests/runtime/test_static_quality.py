"""Plans of each architecture, of two at each length and type; their compiled kernels waste nothing that one can see offline."""

import re
from collections import Counter
from itertools import cycle, product

import pytest
from assembly import access_widths
from offline import FOREMOST, H200, MI300X, PRODUCTS

from portable_softmax import Device, plan, profiles
from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.problem import VECTOR_BYTES
from portable_softmax.runtime.compiled import compile_kernel
from portable_softmax.runtime.specialization import KernelSpec

LENGTHS = (1, 2, 7, 8, 16, 33, 64, 100, 128, 200, 256, 500, 512, 776, 781, 1000, 1024, 2048, 3000, 4096, 8192, 12672, 16384,
           32768, 50257, 65536, 131072)  # fmt: skip
DTYPES = ("float16", "bfloat16", "float32")
ALL = tuple(product(LENGTHS, DTYPES))  # in the slow runs, of two devices; the others have some, here and in the default run
FORWARD = tuple(zip((7, 781, 1024, 12672, 50257, 65536), cycle(DTYPES)))
BACKWARD = tuple(zip((33, 781, 4096, 65536), cycle(DTYPES)))
N_ROWS = 4096
PROFILES = [(name, profiles()[name]) for name in PRODUCTS if profiles()[name].backend != "xpu"]
PTX_MASKED = r"@!?%p\d+ ((?:ld|st)\.global\S*\.v\d\S*)"


@pytest.mark.parametrize(
    "profile",
    # Each in one process, which keeps its compiled kernels. Intel's need another Triton.
    [
        pytest.param(name, marks=[pytest.mark.xdist_group(profile.arch), *([] if name in FOREMOST else [pytest.mark.slow])])
        for name, profile in PROFILES
    ],
)
@pytest.mark.parametrize(
    ("backward", "cases"),
    [
        (False, FORWARD),
        (True, BACKWARD),
        pytest.param(False, ALL, marks=pytest.mark.slow),
        pytest.param(True, ALL, marks=pytest.mark.slow),
    ],
    ids=["forward", "backward", "forward at every length", "backward at every length"],
)
def test_plans_and_their_kernels(profile, backward, cases, record_count):
    device = Device.from_profile(profile)
    if profile not in (H200, MI300X):
        cases = ALL[::5] if cases is ALL else cases[PRODUCTS.index(profile) % 2 :: 2]
    faults = [
        f"{n_cols} {dtype}: {fault}"
        for n_cols, dtype in cases
        for fault in (*faults_of_plan(device, n_cols, dtype, backward), *faults_of_kernel(device, n_cols, dtype, backward))
    ]
    checked = "static quality" if device.hardware.warp_size else "plans"  # nothing here compiles for the others
    record_count(f"{checked}, {device.backend}/{device.arch}", len(cases), len(faults))
    assert not faults


def faults_of_plan(device, n_cols, dtype, backward):
    found, hardware = plan(N_ROWS, n_cols, dtype, device, backward=backward), device.hardware
    if not 1 <= found.num_programs <= min(N_ROWS * found.tiling.splits, hardware.max_programs or 2**31):
        yield f"{found.num_programs} programs"
    if found.num_programs % found.tiling.splits:
        yield f"{found.num_programs} programs for rows in {found.tiling.splits} splits"
    if found.occupancy.programs_per_multiprocessor < 1:
        yield "does not fit a multiprocessor"
    if found.tiling.tile_cols < n_cols and found.tiling.strategy == "tile":
        yield f"a tile of {found.tiling.tile_cols} columns"
    if found.warning:  # of spills that take a good part of the time
        yield f"{found.tiling}: spills into {found.resources.stack_frame_bytes} bytes per thread"
    if found.tiling.max_registers and found.resources.registers_per_thread > found.tiling.max_registers:
        yield f"{found.tiling}: takes {found.resources.registers_per_thread} registers"
    if found.num_warps and found.num_warps * hardware.warp_size > hardware.max_threads_per_program:
        yield f"{found.num_warps} warps"
    if hardware.shared_memory_per_program_max and found.resources.shared_memory_bytes > hardware.shared_memory_per_program_max:
        yield f"{found.resources.shared_memory_bytes} bytes of shared memory"


def faults_of_kernel(device, n_cols, dtype, backward):
    """Narrow accesses; only where a compiler for the device is here.

    Each operand of unaligned rows is loaded once more at the ends of rows, and stored there, element by element. Programs that
    share a row read words of 8 bytes. LLVM unrolls a loop over four splits, and a short one twice.
    """
    found = plan(N_ROWS, n_cols, dtype, device, backward=backward)
    if found.num_warps is None:
        return
    problem, element = found.problem, DTYPE_BYTES[dtype]
    compiled = compile_kernel(KernelSpec.of(problem, found.tiling), device)
    block = found.tiling.tile_rows * found.tiling.tile_cols // found.tiling.blocks
    per_thread = max(1, block // (found.num_warps * device.hardware.warp_size))
    possible = min(VECTOR_BYTES, min(problem.vector, per_thread) * element)
    narrow = [(width, access) for access, width in access_widths(compiled.asm) if width < possible]
    operands = 2 if backward else 1
    edges = problem.unaligned * (operands + 1) * 2 * problem.vector
    allowed = Counter({element: edges, 8: (5 if "ptx" in compiled.asm else 10) * (found.tiling.splits > 1)})
    if extra := Counter(width for width, _ in narrow) - allowed:
        yield f"{dict(extra)} bytes: accesses, where {possible} bytes are possible: {sorted(set(narrow))}"
    if not problem.unaligned and found.tiling.tile_rows == 1 and n_cols % found.tiling.tile_cols == 0 and "ptx" in compiled.asm:
        yield from (f"a mask where tiles end where rows do: {access}" for access in re.findall(PTX_MASKED, compiled.asm["ptx"]))
