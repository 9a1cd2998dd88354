"""The rule of occupancy that SIMT vendors share."""

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.schema import Hardware


def round_up(value: int, multiple: int) -> int:
    """Returns the least multiple of `multiple` that is not below `value`."""
    return -(-value // multiple) * multiple


def limits_of(resources: KernelResources, hardware: Hardware) -> dict[str, int]:
    """Counts programs per multiprocessor for each resource that GPU vendors count alike; ValueError without warps.

    Registers are allocated per warp in granules, from the slice of one partition (SM sub-partition, SIMD), which whole warps
    fit. Unknown registers are the most that a thread can have. Sources: cudaOccMaxBlocksPerSMRegsLimit in NVIDIA's
    cuda_occupancy.h, getNumWavesPerEUWithNumVGPRs in LLVM's AMDGPUBaseInfo.cpp.
    """
    warps, partitions, warp_size = resources.num_warps, hardware.partitions_per_multiprocessor, hardware.warp_size
    if warps is None or warp_size is None or partitions is None:
        raise ValueError("occupancy requires num_warps, and warp_size and partitions_per_multiprocessor of the device")
    in_slice, granule = (hardware.registers_per_multiprocessor or 0) // partitions // warp_size, hardware.register_granule or 1
    most, registers, name = hardware.max_registers_per_thread or in_slice, resources.registers_per_thread, "registers"
    if registers is None:
        registers, name = min(in_slice // granule * granule, most), "registers (estimated)"
    barriers = resources.barriers
    if barriers is None:  # one for a program of several warps
        barriers = min(1, warps - 1)
    available = {  # of a multiprocessor, and what a program uses
        "warps": (hardware.max_warps_per_multiprocessor, warps),
        "programs": (hardware.max_programs_per_multiprocessor, 1),
        "barriers": (hardware.barriers_per_multiprocessor, barriers),
    }
    if registers and in_slice:  # of so many warps
        available[name] = in_slice // round_up(registers, granule) * partitions, warps
    available["shared memory"] = hardware.shared_memory_per_multiprocessor, shared_memory(resources, hardware)
    limits = {what: has // uses for what, (has, uses) in available.items() if has is not None and uses}
    largest = {  # of a program, and what it uses
        "threads per program": (hardware.max_threads_per_program, warps * warp_size),
        name: (most, registers),
        "shared memory": (hardware.shared_memory_per_program_max, resources.shared_memory_bytes),
    }
    return limits | {what: 0 for what, (has, uses) in largest.items() if has and uses > has}


def shared_memory(resources: KernelResources, hardware: Hardware) -> int:
    """Returns the bytes that are allocated to a program, with the largest carve-out if it can be chosen."""
    used = resources.shared_memory_bytes + (hardware.shared_memory_reserved_per_program or 0)
    allocated, sizes = round_up(used, hardware.shared_memory_granule or 1), hardware.shared_memory_sizes or ()
    return allocated and min((size for size in sizes if size >= allocated), default=allocated)
