"""What kernels run on: the device of --device, a GPU or Triton's interpreter; AMD machine code by amdgcn_cpu; a virtual NPU."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import torch
from table import TILINGS

from portable_softmax import Device, current_device, profiles
from portable_softmax.planning.tiling import Tiling
from portable_softmax.runtime.compile import compiled, load, triton_version

ARCHITECTURES = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
DROPPED = {"gfx1030"} if triton_version() >= (3, 9) else set()  # by Triton
AMD = {Device.from_profile(name).arch: name for name, profile in sorted(profiles().items()) if profile.backend == "hip"}
AMD = {arch: AMD[arch] for arch in ARCHITECTURES if arch not in DROPPED}


@dataclass(frozen=True)
class Machine:
    """A device and how a kernel is launched there.

    Args:
        device: which launches are compiled for.
        where: of tensors.
        unit: what columns of the table are multiplied by, so that each lane has some.
        run_of: see runtime.compile.load.
        current: makes the device the current one.
    """

    device: Device
    where: torch.device
    unit: int = 1
    run_of: Callable[..., Callable[..., None]] = load
    current: Callable[[], Any] = nullcontext

    def tiling(self, tiling: Tiling) -> Tiling:
        """Returns a tiling of the table for this machine; tiles of many rows have fewer columns more."""
        warps = tiling.num_warps if self.device.hardware.warp_size or self.device.backend == "interpreter" else None
        return tiling._replace(width=tiling.width * max(1, self.unit // (8 if tiling.tile_rows > 4 else 1)), num_warps=warps)

    def lacks(self, row) -> str:
        """Returns what a row of the table needs and the device, or its Triton, has not; empty if nothing."""
        tiling, layout, vendor = self.tiling(TILINGS[row.tiling]), row.lies, self.device.vendor
        if self.device.backend == "interpreter":
            return ""
        needs = {
            "a Triton with tuples": tiling.blocks > 1 and tiling.in_registers and triton_version() < (3, 3),
            "programs that exchange numbers": tiling.is_split and not (tiling.two_launches or self.device.profile.launch.polls),
            "whole vectors of rows that start anywhere": not layout.vector and not vendor.aligned_access,
            "tiles of several matrices": layout.scattered and not vendor.scattered_rows,
        }
        return ", ".join(what for what, needed in needs.items() if needed)


def here(device, where):
    """Returns the device of --device."""
    return Machine(device, where, 1 if device.backend == "interpreter" else 8)


def npu(virtual, arch="Ascend910B3"):
    """Returns a device of the virtual machine of NPUs."""
    where = torch.device("npu", virtual.index(arch))
    return Machine(current_device(where.index), where, 4, current=functools.partial(torch.npu.device, where.index))


@functools.cache
def code(kernel, arch):
    binary = compiled(kernel, Device.from_profile(AMD[arch]))
    return binary.asm["amdgcn"], binary.metadata


def amd(arch, polls=None, **interleaving):
    """Returns an AMD device whose machine code amdgcn_cpu executes.

    Args:
        arch: one of AMD.
        polls: how often programs look for words, at most; None is the profile's number.
        interleaving: of programs, see amdgcn_cpu.run.
    """
    from amdgcn_cpu import run  # which environments of other vendors have not

    def run_of(kernel, device):
        text, metadata = code(kernel, arch)
        options = {"num_warps": metadata.num_warps, "shared_bytes": metadata.shared, **interleaving}
        return lambda grid, arguments: run(text, grid, kernel.at_run_time(arguments), **options)

    device = Device.from_profile(AMD[arch])
    if polls:
        policy = device.profile.launch
        policy = msgspec.structs.replace(policy, polls=msgspec.structs.replace(policy.polls, value=polls))
        device = replace(device, profile=msgspec.structs.replace(device.profile, launch=policy))
    return Machine(device, torch.device("cpu"), 8, run_of)
