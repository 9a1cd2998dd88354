"""A device's limits as other projects want them, without torch and Triton."""

from dataclasses import dataclass

from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device


@dataclass(frozen=True)
class Limits:
    """Limits of one device; None where it has no such thing, or the value is unknown.

    Args:
        name: the device's, or its profile's if it is not here.
        backend, arch: of Triton's target.
        multiprocessors: SMs, CUs or WGPs, vector cores or subslices, as Triton's driver counts.
        warp_size: threads.
        threads_per_program, warps_per_program: the most that a program may have.
        warps_per_multiprocessor, programs_per_multiprocessor: the most that are resident.
        registers_per_multiprocessor, registers_per_thread: of 32 bits.
        shared_memory_per_program, shared_memory_per_multiprocessor: bytes, the most that can be chosen.
        tensor_memory_columns: of a multiprocessor.
        programs: of a launch, all axes together; along x, where y and z have limits of their own.
        programs_y, programs_z: along these axes.
        threads: of a launch.
        l2_cache, memory: bytes.
        memory_bandwidth: bytes per second, of the data sheet.
    """

    name: str
    backend: str
    arch: int | str
    multiprocessors: int | None
    warp_size: int | None
    threads_per_program: int | None
    warps_per_program: int | None
    warps_per_multiprocessor: int | None
    programs_per_multiprocessor: int | None
    registers_per_multiprocessor: int | None
    registers_per_thread: int | None
    shared_memory_per_program: int | None
    shared_memory_per_multiprocessor: int | None
    tensor_memory_columns: int | None
    programs: int | None
    programs_y: int | None
    programs_z: int | None
    threads: int | None
    l2_cache: int | None
    memory: int | None
    memory_bandwidth: int | None


def limits(device: Device | str | None = None) -> Limits:
    """Returns the limits of a device: the current one if None; a profile's name gives one that is not here.

    Raises:
        ProfileError: there is no profile of that name.
        NoDeviceError, DeviceError: `device` is None, and no device works here.
    """
    device = chosen(device)
    facts = device.hardware
    threads, warp = facts.max_threads_per_program, facts.warp_size
    bandwidth = facts.memory_bandwidth_gb_per_s
    return Limits(
        name=device.name,
        backend=device.backend,
        arch=device.arch,
        multiprocessors=facts.multiprocessor_count,
        warp_size=warp,
        threads_per_program=threads,
        warps_per_program=threads // warp if threads and warp else None,
        warps_per_multiprocessor=facts.max_warps_per_multiprocessor,
        programs_per_multiprocessor=facts.max_programs_per_multiprocessor,
        registers_per_multiprocessor=facts.registers_per_multiprocessor,
        registers_per_thread=facts.max_registers_per_thread,
        shared_memory_per_program=facts.shared_memory_per_program_max,
        shared_memory_per_multiprocessor=facts.shared_memory_per_multiprocessor,
        tensor_memory_columns=facts.tensor_memory_columns,
        programs=facts.max_programs,
        programs_y=facts.max_programs_y_z,
        programs_z=facts.max_programs_y_z,
        threads=facts.max_threads,
        l2_cache=facts.l2_cache_bytes,
        memory=facts.memory_bytes,
        memory_bandwidth=bandwidth * 10**9 if bandwidth else None,
    )
