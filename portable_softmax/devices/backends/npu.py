"""Huawei Ascend: a program runs alone on a vector core and works out of that core's Unified Buffer."""

import json
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from portable_softmax.devices.backends import npu_compiler, npu_stages
from portable_softmax.devices.backends.base import Backend, Count, Detected, KernelResources, Occupancy, reported
from portable_softmax.devices.schema import Hardware

LANGUAGES = "triton.language.extra.ascend", "triton.language.extra.cann"  # of 3.2.0, and later
TORCH_FACTS = {"multiprocessor_count": "vector_core_num", "l2_cache_bytes": "L2_cache_size", "memory_bytes": "total_memory"}


class Npu(Backend):
    """Huawei Ascend."""

    torch_device_type = "npu"
    required = ("multiprocessor_count", "shared_memory_per_program_max", "memory_alignment", "max_programs")
    aligned_access = False
    scattered_rows = False  # its compiler would load the elements one by one
    fuses = False  # bishengir makes an fma a product and a sum, exp2(x) exp(x * ln 2), and exp an instruction
    tool = "npu-smi"
    install = "Ascend: pip install torch-npu triton-ascend"
    modules = MappingProxyType(
        dict.fromkeys(("acl", "torch_npu", "triton.backends.ascend", "triton.extension", "triton.runtime.libentry"), "")
        | {"torch_npu.npu": "torch.npu", **dict.fromkeys(LANGUAGES, "")}
        | {f"{language}.libdevice": "triton.language.extra.libdevice" for language in LANGUAGES}
    )
    setup = "Ascend: `npu-smi info` lists devices; source CANN's set_env.sh; TORCH_DEVICE_BACKEND_AUTOLOAD=0 omits torch_npu."
    more_programs = "TRITON_ALL_BLOCKS_PARALLEL"
    offline = staticmethod(npu_stages.offline)
    missing = staticmethod(npu_compiler.missing)

    def driver_facts(self, hardware: Hardware) -> Mapping[str, int]:
        """Returns numbers of cores as Triton's driver and torch_npu name them: two vector cores per AI core."""
        cores = hardware.multiprocessor_count or 0
        return {"num_vectorcore": cores, "vector_core_num": cores, "num_aicore": cores // 2, "cube_core_num": cores // 2}

    def describe(self, index: int, arch: int | str, properties: Mapping[str, Any]) -> Detected:
        """Reads torch_npu; Triton's driver, which assumes two vector cores per AI core, only where that lacks their number."""
        import torch

        facts = reported(torch.npu.get_device_properties(index), TORCH_FACTS)  # type: ignore[attr-defined]
        driver = {} if "multiprocessor_count" in facts else {"multiprocessor_count": properties["num_vectorcore"]}
        return Detected(str(arch), arch, driver, facts)

    def compile_options(self, num_warps: Count, num_stages: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Returns no options: the compiler ignores num_warps and num_stages, and warns about them."""
        return {}

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the memory plan; on the device 0 unless an option of the compiler prints it, which accepts what fits."""
        if npu_stages.PLAN in compiled.asm:
            return KernelResources(**json.loads(compiled.asm[npu_stages.PLAN]))
        return KernelResources(shared_memory_bytes=(getattr(compiled.metadata, "required_ub_bits", 0) or 0) // 8)

    def model(self, tile: tuple[int, int], size: int, operations: Collection[str], device: Any) -> KernelResources:
        """Estimates the Unified Buffer of a tile by the profile's `buffer_bytes`; narrow rows are padded to a block."""
        rows, length = tile[0], max(tile[1], (device.hardware.memory_alignment or 1) // size)
        shapes = {"float32": size == 4, "square": rows == length, "two rows": rows == 2}
        known = {"", *operations, *(name for name, holds in shapes.items() if holds)}
        numbers = device.profile.launch.buffer_bytes
        if not numbers:
            return KernelResources(estimated=True)
        per_element = max(number for names, number in numbers.value.items() if {*names.split(", ")} <= known)
        of_rows = rows * numbers.row if "tokens" in known else 0
        return KernelResources(shared_memory_bytes=int(rows * length * per_element + of_rows), estimated=True)

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts one program, as it runs alone on a core, or none if its tile does not fit the Unified Buffer."""
        there = hardware.shared_memory_per_program_max or resources.shared_memory_bytes
        limits = {"programs": 1} if resources.shared_memory_bytes <= there else {"programs": 1, "unified buffer": 0}
        return Occupancy(min(limits.values()), limits, multiprocessors=resources.multiprocessors)
