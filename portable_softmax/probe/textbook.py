"""Occupancy formula of Triton's tutorial 02, to be compared with: it is wrong on most devices for some kernel.

Source: python/tutorials/02-fused-softmax.py of triton-lang/triton.
"""

from portable_softmax.devices.backends.base import KernelResources, Occupancy
from portable_softmax.devices.schema import Hardware

DOUBLED = ("gfx940", "gfx941", "gfx942", "gfx90a", "gfx908")  # the tutorial's is_cdna()
HIP_MAX_NUM_REGS = 65536  # hipDeviceProp_t.regsPerBlock of every architecture, until ROCm changed what it counts


def textbook(backend: str, arch: int | str, resources: KernelResources, hardware: Hardware) -> int | None:
    """Counts programs per multiprocessor like the tutorial; None where it divides by zero or knows no such device."""
    warps, registers, shared = resources.num_warps, resources.registers_per_thread, resources.shared_memory_bytes
    warp_size, shared_max = hardware.warp_size, hardware.shared_memory_per_program_max
    if not (warps and registers and shared and warp_size and shared_max):
        return None
    if backend == "hip":
        file = HIP_MAX_NUM_REGS * (2 if arch in DOUBLED else 1)
        programs = min(file // warp_size // registers, hardware.max_warps_per_multiprocessor or 0) // warps
    else:
        programs = (hardware.registers_per_multiprocessor or 0) // (registers * warp_size * warps)
    return min(programs, shared_max // shared)


def why_it_differs(programs: int | None, right: Occupancy, arch: int | str, hardware: Hardware) -> str:
    """Tells what the tutorial leaves out, for one kernel."""
    if programs == right.programs_per_multiprocessor:
        return "the same, for this kernel"
    if programs is None:
        return "it divides by the registers, warps and bytes of shared memory of the kernel, and one of them is 0"
    if programs == 0:
        return "0 programs would launch nothing, and leave the output unwritten"
    missing = {
        "warps": f"it forgets that only {hardware.max_warps_per_multiprocessor} warps are resident",
        "programs": f"it forgets that only {hardware.max_programs_per_multiprocessor} programs are resident",
        "barriers": f"it forgets the {hardware.barriers_per_multiprocessor} barrier slots",
        "scalar registers": "it forgets the scalar registers",
        "registers": _registers(programs > right.programs_per_multiprocessor, arch, hardware),
        "shared memory": f"it takes the largest program's share for the whole, and forgets granules of "
        f"{hardware.shared_memory_granule} bytes and {hardware.shared_memory_reserved_per_program or 0} reserved",
    }
    return "; ".join(missing[limit] for limit in right.limited_by if limit in missing)


def _registers(too_many: bool, arch: int | str, hardware: Hardware) -> str:
    if too_many and arch in DOUBLED:
        return "it doubles the register file, and lets parts of warps share what whole ones must"
    if too_many:
        return (
            f"registers are given in granules of {hardware.register_granule} per thread, to whole warps of one of "
            f"{hardware.partitions_per_multiprocessor} partitions"
        )
    return f"it believes {HIP_MAX_NUM_REGS} registers, and there are {hardware.registers_per_multiprocessor}"
