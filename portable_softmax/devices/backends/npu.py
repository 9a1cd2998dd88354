"""Huawei Ascend: a program runs alone on a vector core and works out of that core's Unified Buffer."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from portable_softmax.devices.backends import npu_compiler, npu_stages
from portable_softmax.devices.backends.base import TORCH_NAMES, Backend, Count, KernelResources
from portable_softmax.devices.schema import Hardware

LANGUAGES = "triton.language.extra.ascend", "triton.language.extra.cann"  # of 3.2.0, and later
LIBENTRY = "triton.runtime.libentry"


class Npu(Backend):
    """Huawei Ascend."""

    torch_device_type = "npu"
    driver_names: Mapping[str, str] = {"multiprocessor_count": "num_vectorcore"}  # it assumes two of each AI core
    torch_names: Mapping[str, str] = {**TORCH_NAMES, "multiprocessor_count": "vector_core_num"}
    core_names: Mapping[str, int] = {"num_vectorcore": 1, "vector_core_num": 1, "num_aicore": 2, "cube_core_num": 2}
    required = ("multiprocessor_count", "shared_memory_per_program_max", "memory_alignment", "max_programs")
    aligned_access = False
    scattered_rows = False  # its compiler would load the elements one by one
    fuses = False  # bishengir makes an fma a product and a sum, exp2(x) exp(x * ln 2), and exp an instruction
    tool = "npu-smi"
    install = "Ascend: pip install torch-npu triton-ascend"
    modules: Mapping[str, str] = {
        **dict.fromkeys((*LANGUAGES, "acl", "torch_npu", "triton.backends.ascend", "triton.extension", LIBENTRY), ""),
        **{f"{language}.libdevice": "triton.language.extra.libdevice" for language in LANGUAGES},
        "torch_npu.npu": "torch.npu",
    }
    setup = "Ascend: `npu-smi info` lists devices; source CANN's set_env.sh; TORCH_DEVICE_BACKEND_AUTOLOAD=0 omits torch_npu."
    more_programs = "TRITON_ALL_BLOCKS_PARALLEL"
    offline = staticmethod(npu_stages.offline)
    missing = staticmethod(npu_compiler.missing)

    def compile_options(self, num_warps: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
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
        bytes_used = rows * length * max(number for names, number in numbers.value.items() if {*names.split(", ")} <= known)
        if "tokens" in known:
            bytes_used += rows * numbers.value.get("row", 0)
        return KernelResources(shared_memory_bytes=int(bytes_used), estimated=True)

    def limits(self, resources: KernelResources, hardware: Hardware) -> dict[str, int]:
        """Counts one program, as it runs alone on a core, or none if its tile does not fit the Unified Buffer."""
        if resources.shared_memory_bytes > (hardware.shared_memory_per_program_max or resources.shared_memory_bytes):
            return {"programs": 1, "unified buffer": 0}
        return {"programs": 1}
