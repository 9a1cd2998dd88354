"""Another vendor's device, whose Triton and torch use the names of a known backend.

Only facts that all such drivers report are used, and kernels are compiled and launched by features that every Triton has.
Source: third_party/ iluvatar, metax, hcu and xpu of flagos-ai/FlagTree 71461e37, and its pull request 1211.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portable_softmax.devices.backends import base, simt
from portable_softmax.devices.backends.base import Backend, Detected, KernelResources, Occupancy
from portable_softmax.devices.schema import Hardware

DRIVER_FACTS = {
    "multiprocessor_count": "multiprocessor_count",
    "warp_size": "warpSize",
    "shared_memory_per_program_max": "max_shared_mem",
}
TORCH_FACTS = {
    "registers_per_multiprocessor": "regs_per_multiprocessor",
    "shared_memory_per_multiprocessor": "shared_memory_per_multiprocessor",
    "l2_cache_bytes": "L2_cache_size",
    "memory_bytes": "total_memory",
}


@dataclass(eq=False)
class Lookalike:
    """Backend of a device that is from another vendor than its backend's name says; see base.Backend.

    Args:
        evidence: what shows that it is from another vendor.
        torch_device_type: device type of its tensors.
        dtypes: types that kernels compute there.
        setup: a hint for errors: how to see that the software works.
    """

    evidence: str
    torch_device_type: str
    dtypes: tuple[str, ...]
    setup: str

    required: tuple[str, ...] = simt.REQUIRED
    aligned_access: bool = True
    scattered_rows: bool = True
    elsewhere: str = "its vendor's own Triton does, on the device"
    poll: str = "atomic"  # no compiler may move it out of a loop
    more_programs: str | None = None
    compile_target = staticmethod(base.named_target)
    another_vendors = staticmethod(base.nobody_elses)
    known_fault = staticmethod(base.no_known_fault)
    front_end = staticmethod(base.no_front_end)

    def describe(self, index: int, arch: int | str, properties: Mapping[str, Any]) -> Detected:
        """Collects facts that such drivers and torch report; a value that is 0 or missing there is unknown."""
        import torch

        told = getattr(torch, self.torch_device_type).get_device_properties(index)
        facts = {fact: getattr(told, key, None) for fact, key in TORCH_FACTS.items()}
        facts["max_warps_per_multiprocessor"] = (getattr(told, "max_threads_per_multi_processor", None) or 0) // (
            properties["warpSize"] or 1
        )
        if threads := getattr(told, "max_threads_per_block", None):
            facts["max_threads_per_program"] = 1 << (threads.bit_length() - 1)  # Triton needs a power of two
        return Detected(
            name=getattr(told, "name", None),
            arch=arch,
            driver={fact: value for fact, key in DRIVER_FACTS.items() if (value := properties[key])},
            torch={fact: value for fact, value in facts.items() if value},
            lookalike=self,
        )

    def compile_options(
        self, num_warps: int | None, num_stages: int | None, max_registers: int | None, hardware: Hardware
    ) -> dict[str, Any]:
        """Names the options that every Triton has. None of them limits the registers."""
        return base.named_options(num_warps, num_stages)

    def model(self, n_lines: int, length: int, in_bytes: tuple[int, ...], out_bytes: int, hardware: Hardware) -> None:
        """Returns None: nothing is known until the compiler has allocated registers."""

    def resources(self, compiled: Any) -> KernelResources:
        """Reads warps and shared memory from Triton's metadata. The registers are unknown: nobody here can read the binary.

        The metadata has -1 or nothing for a device without warps or shared memory.
        """
        metadata = compiled.metadata
        shared = getattr(metadata, "shared", None) or 0
        return KernelResources(num_warps=max(1, metadata.num_warps), shared_memory_bytes=max(0, shared))

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts by the rule that GPU vendors share, and assumes the most registers if they are unknown."""
        return simt.occupancy_of(simt.cautious_limits(resources, hardware), resources.num_warps)


def lookalike(vendor: Backend, evidence: str) -> Lookalike:
    """Makes the backend of a device that names `vendor` but is from another one.

    Its tensors have the device type that torch uses for the vendor, or CUDA's.
    """
    import torch

    kinds = vendor.torch_device_type, "cuda"
    available = (kind for kind in kinds if getattr(torch, kind).is_available())
    return Lookalike(evidence, next(available, vendor.torch_device_type), vendor.dtypes, vendor.setup)
