"""The virtual machine: one NPU for every Ascend profile, then some that differ from their profile."""

from dataclasses import dataclass
from typing import Any

from machine import Machine

from portable_softmax.devices.profiles import profiles

KIB = 2**10
SMALL_BUFFER, TINY_BUFFER, UNKNOWN = "Ascend910B8", "Ascend910B9", "Ascend999"  # no such products exist


@dataclass(frozen=True)
class VirtualNpu:
    """All that is to be known about one device.

    Args:
        arch: SoC name, which is Triton's target architecture and the device's name.
        vector_cores: of one device.
        unified_buffer_bytes: of one vector core; what the last stage of the compiler enforces.
        memory_bytes, l2_cache_bytes: as torch_npu reports them.
        torch_tells_cores: False for a torch_npu older than its core counts.
    """

    arch: str
    vector_cores: int
    unified_buffer_bytes: int
    memory_bytes: int = 2**36
    l2_cache_bytes: int = 192 * 2**20
    torch_tells_cores: bool = True

    def properties(self) -> dict[str, Any]:
        """The fields of torch_npu 2.13 that have values, or of a release without core counts."""
        facts = {"name": self.arch, "total_memory": self.memory_bytes}
        cores = {"cube_core_num": self.vector_cores // 2, "vector_core_num": self.vector_cores}
        return facts | cores | {"L2_cache_size": self.l2_cache_bytes} if self.torch_tells_cores else facts


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
    facts = [(profile.arch, profile.hardware) for profile in profiles().values() if profile.backend == "npu"]
    return [
        VirtualNpu(
            arch,
            hardware.multiprocessor_count,
            hardware.shared_memory_per_program_max,
            hardware.memory_bytes,
            hardware.l2_cache_bytes,
        )
        for arch, hardware in facts
    ]


MACHINE = Npus(
    [
        *described(),
        VirtualNpu(SMALL_BUFFER, 40, 48 * KIB),
        VirtualNpu(TINY_BUFFER, 40, 1 * KIB),
        VirtualNpu(UNKNOWN, 30, 192 * KIB, torch_tells_cores=False),
    ]
)
