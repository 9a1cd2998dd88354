"""Other vendors' devices under a known backend's name: Iluvatar, MetaX, Hygon, Kunlunxin. See flagos-ai/FlagTree."""

import re
from dataclasses import replace
from types import ModuleType
from typing import Any

from portable_softmax.devices.backends import base, cuda, hip, simt

HYGON = r"gfx9([23].|46)(:.*)?"  # gfx928, gfx92a, gfx936, gfx938, gfx946; gfx906 is AMD's own
MAX_THREADS = 512  # the fewest that a program of theirs may have: flagos-ai/FlagGems pull request 5258


def is_lookalike(backend: str, arch: Any, warp_size: int) -> bool:
    """True if no device of the backend's vendor has this architecture or warp size."""
    wrong_warps = {"cuda": warp_size != 32, "xpu": warp_size == 1}  # 64: Iluvatar, MetaX; 1: Kunlunxin
    return wrong_warps.get(backend, backend == "hip" and bool(re.fullmatch(HYGON, str(arch))))


def lookalike(vendor: Any) -> Any:
    """Returns a backend that needs what every Triton and its torch have; registers of a kernel are the most possible."""
    stand_in = ModuleType("lookalike")  # backends are modules

    def describe(index: int, arch: Any, properties: Any) -> base.Detected:
        facts = cuda.describe(index, arch, properties)
        return replace(facts, torch={**facts.torch, "max_threads_per_program": MAX_THREADS}, lookalike=stand_in)

    def resources(compiled: Any) -> base.KernelResources:
        warps, shared = compiled.metadata.num_warps, getattr(compiled.metadata, "shared", None)  # -1 or None without such
        return base.KernelResources(num_warps=max(1, warps), shared_memory_bytes=max(0, shared or 0))

    def occupancy(used: base.KernelResources, hardware: Any) -> base.Occupancy:
        return simt.occupancy_of(simt.cautious_limits(used, hardware), used.num_warps)

    own: dict[str, Any] = {
        "describe": describe,
        "resources": resources,
        "occupancy": occupancy,
        "compile_options": hip.compile_options,
    }
    own |= {"compile_target": base.named_target, "known_fault": base.no_known_fault, "torch_device_type": "cuda"}
    own |= {"poll": "atomic", "register": "", "elsewhere": "its vendor's own Triton does, on the device"}
    vars(stand_in).update(vars(vendor) | own)
    return stand_in
