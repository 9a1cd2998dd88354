"""Huawei Ascend: a program runs alone on a vector core and works out of that core's Unified Buffer."""

import json
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

from portable_softmax.devices.backends.base import Backend, Count, Detected, KernelResources, Occupancy
from portable_softmax.devices.backends.npu_compiler import NAME, Plan, is_950, missing
from portable_softmax.devices.backends.npu_estimate import bytes_of
from portable_softmax.devices.backends.npu_stages import PLAN, offline
from portable_softmax.devices.schema import Hardware


class Npu(Backend):
    """Huawei Ascend."""

    torch_device_type = "npu"
    required = ("multiprocessor_count", "shared_memory_per_program_max", "memory_alignment", "max_programs")
    aligned_access = False
    scattered_rows = False  # its compiler would load the elements one by one
    fuses = False  # bishengir makes an fma a product and a sum, exp2(x) exp(x * ln 2), and exp an instruction
    poll = "volatile"
    tool = "npu-smi"
    install = "Ascend: pip install torch-npu triton-ascend"
    modules = MappingProxyType(
        {
            **dict.fromkeys(("acl", "torch_npu", "triton.backends.ascend", "triton.extension", "triton.runtime.libentry"), ""),
            "torch_npu.npu": "torch.npu",
            **dict.fromkeys(("triton.language.extra.ascend", "triton.language.extra.cann"), ""),  # of 3.2.0, and later
            "triton.language.extra.ascend.libdevice": "triton.language.extra.libdevice",
            "triton.language.extra.cann.libdevice": "triton.language.extra.libdevice",
        }
    )
    setup = (
        "Ascend: `npu-smi info` lists the devices; source CANN's set_env.sh first; "
        "TORCH_DEVICE_BACKEND_AUTOLOAD=0 leaves torch_npu out."
    )
    more_programs = "TRITON_ALL_BLOCKS_PARALLEL"

    def offline(self) -> AbstractContextManager[None]:
        """Returns a context in which Triton compiles up to the memory plan by Ascend's compiler, without CANN."""
        return offline()

    def missing(self) -> str | None:
        """Returns why Ascend's compiler cannot be used here; None if it can."""
        return missing()

    def driver_facts(self, hardware: Hardware) -> Mapping[str, int]:
        """Returns the numbers of cores by the names of Triton's driver and of torch_npu: two vector cores per AI core."""
        vectors = hardware.multiprocessor_count or 0
        numbers = {"vectorcore": vectors, "aicore": vectors // 2}
        return {f"num_{name}": number for name, number in numbers.items()} | {
            "vector_core_num": vectors,
            "cube_core_num": vectors // 2,
        }

    def describe(self, index: int, arch: int | str, properties: Mapping[str, Any]) -> Detected:
        """Reads the number of vector cores from torch_npu, else from Triton's driver.

        The driver assumes two vector cores per AI core, which is wrong on the 310B. Its `max_shared_mem` is a dummy (1), and
        its warp size is 0.
        """
        import torch

        torch_properties = torch.npu.get_device_properties(index)  # type: ignore[attr-defined]
        facts = {
            "multiprocessor_count": getattr(torch_properties, "vector_core_num", None),
            "l2_cache_bytes": getattr(torch_properties, "L2_cache_size", None),
            "memory_bytes": getattr(torch_properties, "total_memory", None),
        }
        return Detected(
            name=str(arch),
            arch=arch,
            driver={} if facts["multiprocessor_count"] else {"multiprocessor_count": properties["num_vectorcore"]},
            torch={fact: value for fact, value in facts.items() if value},
        )

    def compile_options(self, num_warps: Count, num_stages: Count, max_registers: Count, hardware: Hardware) -> dict[str, Any]:
        """Returns no options: the compiler ignores num_warps and num_stages, and warns about them."""
        return {}

    def resources(self, compiled: Any) -> KernelResources:
        """Reads the bytes of the Unified Buffer as planned; on the device 0 unless an option of the compiler prints them.

        A kernel that the compiler accepted fits.
        """
        if PLAN in compiled.asm:
            plan = Plan(**json.loads(compiled.asm[PLAN]))
            by = f"{NAME}, {'double' if plan.double else 'single'}-buffered; the last step needs CANN"
            return KernelResources(shared_memory_bytes=plan.size, multiprocessors=plan.cores, compiler=by)
        return KernelResources(shared_memory_bytes=(getattr(compiled.metadata, "required_ub_bits", 0) or 0) // 8)

    def model(self, tile: tuple[int, int], size: int, operations: Collection[str], device: Any) -> KernelResources:
        """Estimates the Unified Buffer of a tile of this package's kernels; rows that are narrower than a block are padded."""
        rows, length = tile
        padded = rows, max(length, (device.hardware.memory_alignment or 1) // size)
        used = bytes_of(padded, size, operations, is_950(device.arch))
        return KernelResources(shared_memory_bytes=used, estimated=True)

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts one program, as it runs alone on a core, or none if its tile does not fit the Unified Buffer."""
        limits, there = {"programs": 1}, hardware.shared_memory_per_program_max
        if there and resources.shared_memory_bytes > there:
            limits["unified buffer"] = 0
        return Occupancy(min(limits.values()), limits, multiprocessors=resources.multiprocessors)
