"""NVIDIA's own answers, without a device: cuda_occupancy.h and arch_traits.h by gcc, cuobjdump and ptxas of Triton's wheel.

The headers are NVIDIA's pip packages nvidia-cuda-runtime and nvidia-cuda-cccl; they are not part of this repository.
"""

import ctypes
import functools
import random
import re
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, files
from itertools import product
from pathlib import Path

import launched_kernels as kinds
import pytest
import triton
from sweep import mostly_slow

from portable_softmax import Device, KernelResources, inspect_kernel, occupancy, profiles
from portable_softmax.devices.backends import cubin

ORACLES = Path(__file__).parents[1] / "support" / "oracles"
PROFILES = sorted({p.arch: name for name, p in profiles().items() if p.backend == "cuda"}.values())  # one of each architecture

# Of `struct device` in cuda_occupancy.c, after the compute capability and before the threads; and as arch_traits.cpp fills in.
SHARED = "shared_memory_per_program_max shared_memory_per_multiprocessor shared_memory_reserved_per_program"
DRIVER_FACTS = f"registers_per_multiprocessor {SHARED}".split()
ARCH_TRAITS = "warp_size registers_per_multiprocessor max_registers_per_thread max_threads_per_program"
ARCH_TRAITS += f" max_warps_per_multiprocessor max_programs_per_multiprocessor {SHARED} max_programs max_programs_y_z"


@functools.cache
def oracle(source, package, header):
    """The library of a file in oracles/, which includes `header` of a pip package."""
    try:
        headers = [file.locate() for file in files(package) or () if file.as_posix().endswith(header)]
    except PackageNotFoundError:
        pytest.fail(f"needs NVIDIA's header: pip install {package}, or pip install --group test")
    compiler = shutil.which("g++" if source.endswith(".cpp") else "gcc") or pytest.fail("needs gcc and g++")
    root = Path(str(headers[0]).removesuffix(header))
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "oracle.so")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-I", root, ORACLES / source, "-o", library], check=True)
        return ctypes.CDLL(str(library))


def cuda_occupancy():
    return oracle("cuda_occupancy.c", "nvidia-cuda-runtime", "cuda_occupancy.h")


def as_driver_tells(device):
    """`struct device` of cuda_occupancy.c."""
    hw = device.hardware
    threads = hw.warp_size, hw.max_threads_per_program, hw.max_warps_per_multiprocessor * hw.warp_size
    return (ctypes.c_int * 8)(device.arch, *threads, *(getattr(hw, fact) or 0 for fact in DRIVER_FACTS))


def shared_memory_edges(hw):
    """Sizes at which the answer can change, and one byte more."""
    reserved, granule = hw.shared_memory_reserved_per_program or 0, hw.shared_memory_granule
    shares = range(1, hw.max_programs_per_multiprocessor + 1)
    most = {hw.shared_memory_per_multiprocessor // n // granule * granule - reserved for n in shares}
    last = {16, 48 * 1024, hw.shared_memory_per_program_max, *range(granule, 4 * granule, granule), *most}
    return sorted(last | {size + 1 for size in last})


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("sizes_of_a_pair", [4, pytest.param(14, marks=pytest.mark.slow)])
def test_programs_per_multiprocessor(profile, sizes_of_a_pair):
    """Checks all registers and warps; 33 warps and 1 byte too much do not run."""
    device = Device.from_profile(profile)
    driver, hw, chosen = as_driver_tells(device), device.hardware, random.Random(profile)
    edges, counted = shared_memory_edges(hw), cuda_occupancy()
    # The driver of a GP100 refuses what no other Pascal runs, of which no program has Triton's warps, a power of two.
    every = [warps for warps in range(1, 34) if device.arch != 60 or warps.bit_count() == 1 or warps == 33]
    for registers, warps in product(range(1, 256), every):
        for shared in (0, *chosen.choices(edges, k=sizes_of_a_pair - 2), chosen.randrange(hw.shared_memory_per_multiprocessor)):
            ours = occupancy(KernelResources(warps, registers, shared), device).programs_per_multiprocessor
            theirs = counted.programs(driver, registers, warps * hw.warp_size, shared)
            assert ours == theirs, (registers, warps, shared)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_arch_traits_knows_of_an_architecture(profile):
    device, facts = Device.from_profile(profile), ARCH_TRAITS.split()
    theirs = (ctypes.c_int * len(facts))()
    arch_traits = oracle("arch_traits.cpp", "nvidia-cuda-cccl", "cuda/__device/arch_traits.h")
    assert arch_traits.facts(device.arch, theirs) == 0, "unknown to arch_traits.h"
    assert [getattr(device.hardware, fact) or 0 for fact in facts] == [*theirs]


ASSEMBLED = [f"nvidia/{name}" for name in ("t4", "a100-40gb", "rtx-3090", "rtx-4090", "h200", "b200", "rtx-5090")]


def is_quick(profile, name):
    return name in kinds.FEW and profile == ("nvidia/b200" if name == "matmul" else "nvidia/h200")


@pytest.mark.parametrize(("profile", "name"), mostly_slow(product(ASSEMBLED, kinds.LAUNCHES), is_quick))
def test_spills_and_frames_are_those_of_the_assembler(monkeypatch, capsys, profile, name):
    """Checks them by the output of `ptxas -v` when Triton runs it; an array in memory is no spill."""
    monkeypatch.setattr(triton.knobs.nvidia, "dump_ptxas_log", True)
    monkeypatch.setattr(triton.knobs.compilation, "always_compile", True)
    kernel, arguments, options = kinds.LAUNCHES[name]
    used, fit, launch = inspect_kernel(kernel, arguments, device=profile, **options)
    log, metadata, asm = "".join(capsys.readouterr()), launch.compiled.metadata, launch.compiled.asm
    printed = "cumulative stack size", "spill stores"
    frame, stores = (sum(map(int, re.findall(rf"(\d+) bytes {what}", log))) for what in printed)
    ours = used.registers_per_thread, used.stack_frame_bytes, used.spilled_bytes_per_thread
    assert ours == (int(re.search(r"Used (\d+) registers", log)[1]), frame, stores)
    of_metadata = metadata.num_warps, metadata.shared, metadata.tmem_size or None
    assert (used.num_warps, used.shared_memory_bytes, used.tensor_memory_columns) == of_metadata
    allocated = {int(columns) for columns in re.findall(r"tcgen05\.alloc\S* \[%r\d+\], (\d+);", asm["ptx"])}
    columns = Device.from_profile(profile).hardware.tensor_memory_columns
    limits = [programs for limit, programs in fit.limits.items() if limit == "tensor memory"]
    assert [columns // taken for taken in allocated] == limits
    if name.startswith("sin"):
        assert stores < cubin.local_stores(asm["cubin"])
