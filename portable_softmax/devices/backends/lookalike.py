"""Other vendors' devices under a known backend's name: Iluvatar, MetaX, Hygon, Kunlunxin. See flagos-ai/FlagTree."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from portable_softmax.devices.backends import simt
from portable_softmax.devices.backends.base import Backend, Detected, KernelResources, Occupancy
from portable_softmax.devices.backends.cuda import Cuda
from portable_softmax.devices.schema import Hardware

HYGON = r"gfx9([23].|46)(:.*)?"  # gfx928, gfx92a, gfx936, gfx938, gfx946; gfx906 is AMD's own
MAX_THREADS = 512  # the fewest that a program of theirs may have: flagos-ai/FlagGems pull request 5258


def is_lookalike(backend: str, arch: Any, warp_size: int) -> bool:
    """True if no device of the backend's vendor has this architecture or warp size."""
    wrong_warps = {"cuda": warp_size != 32, "xpu": warp_size == 1}  # 64: Iluvatar, MetaX; 1: Kunlunxin
    return wrong_warps.get(backend, backend == "hip" and bool(re.fullmatch(HYGON, str(arch))))


class Lookalike(Backend):
    """A backend that needs what every Triton and its torch have; registers of a kernel are the most possible."""

    torch_device_type = "cuda"
    poll = "atomic"
    elsewhere = "its vendor's own Triton does, on the device"

    def __init__(self, vendor: Backend) -> None:
        self.tool, self.setup = vendor.tool, vendor.setup

    def describe(self, index: int, arch: Any, properties: Mapping[str, Any]) -> Detected:
        """Collects what torch and Triton's driver report in the words of CUDA."""
        facts = Cuda().describe(index, arch, properties)
        return replace(facts, torch={**facts.torch, "max_threads_per_program": MAX_THREADS}, lookalike=self)

    def resources(self, compiled: Any) -> KernelResources:
        """Reads Triton's metadata, as the binary's format is unknown."""
        warps, shared = compiled.metadata.num_warps, getattr(compiled.metadata, "shared", None)  # -1 or None without such
        return KernelResources(num_warps=max(1, warps), shared_memory_bytes=max(0, shared or 0))

    def occupancy(self, resources: KernelResources, hardware: Hardware) -> Occupancy:
        """Counts programs with as many registers as a thread can have."""
        return simt.occupancy_of(simt.cautious_limits(resources, hardware), resources.num_warps)
