"""The virtual machine: one NPU for every Ascend profile, then one with less memory than its profile says."""

from dataclasses import dataclass
from typing import Any

from machine import Machine

from portable_softmax.devices.profiles import profiles

SMALL_BUFFER = "Ascend910B8"  # no such product exists


@dataclass(frozen=True)
class VirtualNpu:
    """All that is to be known about one device."""

    arch: str  # SoC name, which is Triton's target architecture and the device's name
    vector_cores: int
    unified_buffer_bytes: int  # of one vector core; what the last stage of the compiler enforces
    memory_bytes: int = 2**36
    l2_cache_bytes: int = 192 * 2**20

    def properties(self) -> dict[str, Any]:
        """The fields of torch_npu 2.13 that have values."""
        facts = {"name": self.arch, "total_memory": self.memory_bytes, "L2_cache_size": self.l2_cache_bytes}
        return facts | {"cube_core_num": self.vector_cores // 2, "vector_core_num": self.vector_cores}


class Npus(Machine):
    """The devices, and the bytes of the Unified Buffer of the kernels that were compiled, as planned."""

    def __init__(self, npus: list[VirtualNpu]) -> None:
        super().__init__("npu", {npu.arch: npu.properties() for npu in npus})
        self.npus = npus
        self.planned: list[int] = []

    @property
    def npu(self) -> VirtualNpu:
        """The current device."""
        return self.npus[self.current]


def described() -> list[VirtualNpu]:
    """The devices that the package's profiles describe."""
    names = "multiprocessor_count", "shared_memory_per_program_max", "memory_bytes", "l2_cache_bytes"
    known = [profile for profile in profiles().values() if profile.backend == "npu"]
    return [VirtualNpu(profile.arch, *(getattr(profile.hardware, name) for name in names)) for profile in known]


MACHINE = Npus([*described(), VirtualNpu(SMALL_BUFFER, 40, 48 * 2**10)])
