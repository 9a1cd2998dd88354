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
    barriers = resources.barriers
    if barriers is None:
        barriers = min(1, warps - 1)
    available = {  # of a multiprocessor, and of a program
        "warps": (hardware.max_warps_per_multiprocessor, warps),
        "programs": (hardware.max_programs_per_multiprocessor, 1),
        "barriers": (hardware.barriers_per_multiprocessor, barriers),
    }
    limits = {name: has // uses for name, (has, uses) in available.items() if has and uses}
    if (threads := hardware.max_threads_per_program) and warps * warp_size > threads:
        limits = {"threads per program": 0, **limits}
    if hardware.registers_per_multiprocessor and resources.registers_per_thread != 0:
        granule, in_slice = hardware.register_granule or 1, hardware.registers_per_multiprocessor // partitions // warp_size
        most, registers, name = hardware.max_registers_per_thread or in_slice, resources.registers_per_thread, "registers"
        if registers is None:
            registers, name = min(in_slice // granule * granule, most), "registers (estimated)"
        limits[name] = in_slice // round_up(registers, granule) * partitions // warps
        if registers > most:
            limits[name] = 0
    return limits | shared_memory_limit(resources, hardware)


def shared_memory_limit(resources: KernelResources, hardware: Hardware) -> dict[str, int]:
    """Counts programs per multiprocessor by shared memory, with the largest carve-out if it can be chosen."""
    used = resources.shared_memory_bytes
    if hardware.shared_memory_per_program_max and used > hardware.shared_memory_per_program_max:
        return {"shared memory": 0}
    allocated = round_up(used + (hardware.shared_memory_reserved_per_program or 0), hardware.shared_memory_granule or 1)
    if allocated:
        allocated = min((size for size in hardware.shared_memory_sizes or () if size >= allocated), default=allocated)
    if allocated and hardware.shared_memory_per_multiprocessor:
        return {"shared memory": hardware.shared_memory_per_multiprocessor // allocated}
    return {}
