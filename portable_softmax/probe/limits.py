"""A device's limits as other projects want them, without torch and Triton; and as XLA and torch write them down."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from portable_softmax.devices.detect import chosen
from portable_softmax.devices.device import Device


@dataclass(frozen=True)
class Limits:
    """Limits of one device; None where it has no such thing, or nobody knows.

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
        NoDeviceError, DeviceError: None was given, and no device works here.
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


def xla_target(device: Device | str | None = None) -> str:
    """Returns a GpuTargetConfigProto of XLA in text, with the fields that are known.

    Source: xla/stream_executor/device_description.proto of openxla/xla.

    Raises:
        ValueError: XLA has no such platform.
    """
    found = limits(device)
    if found.backend not in XLA:
        raise ValueError(f"XLA's target configurations are of {' and '.join(XLA)}; {found.name} is {found.backend}")
    threads = found.warp_size and found.warps_per_multiprocessor and found.warp_size * found.warps_per_multiprocessor
    fields = {
        "threads_per_block_limit": found.threads_per_program,
        "threads_per_warp": found.warp_size,
        "shared_memory_per_core": found.shared_memory_per_multiprocessor,
        "threads_per_core_limit": threads,
        "core_count": found.multiprocessors,
        "memory_bandwidth": found.memory_bandwidth,
        "l2_cache_size": found.l2_cache,
        "device_memory_size": found.memory,
        "shared_memory_per_block_optin": found.shared_memory_per_program,
        "registers_per_core_limit": found.registers_per_multiprocessor,
    }
    lines = [f"  {name}: {value}" for name, value in fields.items() if value is not None]
    info = "\n".join([*lines, f"  {_capability(found)}"])
    return f'gpu_device_info {{\n{info}\n}}\nplatform_name: "{XLA[found.backend]}"\ndevice_description_str: "{found.name}"\n'


def torch_properties(device: Device | str | None = None) -> dict[str, Any]:
    """Returns the fields of torch._inductor.runtime.hints.DeviceProperties, which compile for a device that is not here."""
    device = chosen(device)
    found = limits(device)
    threads = found.warp_size and found.warps_per_multiprocessor and found.warp_size * found.warps_per_multiprocessor
    return {
        "type": found.backend if found.backend == "hip" else device.vendor.torch_device_type,
        "index": device.index or 0,
        "multi_processor_count": found.multiprocessors,
        "cc": found.arch,
        "major": found.arch // 10 if isinstance(found.arch, int) else None,
        "regs_per_multiprocessor": found.registers_per_multiprocessor,
        "max_threads_per_multi_processor": threads,
        "max_threads_per_block": found.threads_per_program,
        "warp_size": found.warp_size,
    }


XLA = {"cuda": "CUDA", "hip": "ROCM"}
FORMS: dict[str, Callable[[str], Any]] = {
    "limits": lambda name: asdict(limits(name)),
    "xla": xla_target,
    "torch": torch_properties,
}


def _capability(found: Limits) -> str:
    if isinstance(found.arch, int):
        return f"cuda_compute_capability {{ major: {found.arch // 10} minor: {found.arch % 10} }}"
    return f'rocm_compute_capability {{ gcn_arch_name: "{found.arch}" }}'
