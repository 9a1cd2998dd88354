"""A device, on this machine or not: its facts, merged from the runtime and a profile, and the origin of each fact."""

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import Backend, Detected, Occupancy
from portable_softmax.devices.names import find_profile
from portable_softmax.devices.profiles import DeviceProfile
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import ProfileError


@dataclass(frozen=True, eq=False)
class Device:
    """Device with the known facts about it, and the origin of each fact.

    Args:
        backend, arch: Triton's names of the vendor (cuda, hip, npu, xpu, interpreter) and of the target architecture.
        index: index of the device, as in torch; None for an absent device, and for the interpreter.
        hardware, origins: the facts, and the origin of every fact: driver, torch, profile or estimated.
        profile: the matching YAML profile.
        detected: facts from the runtime; None for an absent device.
    """

    backend: str
    arch: int | str
    index: int | None
    hardware: Hardware
    origins: Mapping[str, str]
    profile: DeviceProfile
    detected: Detected | None = None

    def __new__(cls, *arguments: object, **named: object) -> "Device":
        """Refuses a name alone: TypeError."""
        if len(arguments) == 1:
            raise TypeError(f"Device.from_profile({arguments[0]!r}) returns the device of that name")
        return super().__new__(cls)

    @staticmethod
    def from_profile(name: str) -> "Device":
        """Returns the device with a product's name, which may be absent: plans and occupancy require facts only.

        A name is `vendor/product`, as in `profiles()`, the product alone, what the driver reports ("NVIDIA H200"), a compiler's
        target (gfx942, sm_90) or a profile's file (sm90, 910b), which mean their first product. A target without a product has
        its facts. Case, spaces and hyphens do not count. A name returns one object as long as its profile does not change.

        Raises:
            ProfileError, TypeError: no product has that name; it is not text.
        """
        return _not_here(find_profile(name))

    @property
    def vendor(self) -> Backend:
        """Returns the backend of the device."""
        return BACKENDS[self.backend]

    @property
    def name(self) -> str:
        """Returns the name that the runtime reports, or else the profile's."""
        return (self.detected and self.detected.name) or self.profile.name

    @property
    def torch_name(self) -> str:
        """Returns the name of a device that is here in torch, such as cuda:0."""
        return self.vendor.torch_device_type + ("" if self.index is None else f":{self.index}")

    def resident(self, occupancy: Occupancy) -> int:
        """Counts the programs that the whole device holds at once."""
        return (self.hardware.multiprocessor_count or 1) // occupancy.multiprocessors * occupancy.programs_per_multiprocessor

    def refused_grid(self, grid: tuple[int, int, int], num_warps: int | None = None, num_ctas: int = 1) -> str | None:
        """Returns which limit of a launch a grid of programs exceeds, with its source; None if it exceeds none.

        Without `num_warps` threads are not counted. The `num_ctas` blocks of a program are along x.
        """
        facts, variable, along_x = self.hardware, self.vendor.more_programs, "programs along x"
        if num_ctas > 1:
            along_x = f"blocks, {num_ctas} for each program, along x"
        counts = [("max_programs", grid[0] * num_ctas, along_x)]
        counts += [("max_programs_y_z", grid[1], "programs along y"), ("max_programs_y_z", grid[2], "programs along z")]
        if facts.max_programs_y_z is None:
            counts = [("max_programs", prod(grid), "programs")]
        if variable and os.environ.get(variable, "0") != "0":
            counts = []
        counts.append(("max_threads", prod(grid) * (num_warps or 0) * (facts.warp_size or 0), "threads"))
        for fact, number, what in counts:
            most = getattr(facts, fact)
            if most is not None and number > most:
                has = f"a grid of {' x '.join(map(str, grid))} has {number:,} {what}, and {self.name} launches at most {most:,}"
                lifted = f", or set {variable}=1" if variable else ""
                return f"{has} ({self.profile.origins[fact].title}); let programs loop over what is left{lifted}"
        return None

    def __repr__(self) -> str:
        where = "not here" if self.detected is None else f"index={self.index}"
        return f"Device({self.name!r}, {self.backend}/{self.arch}, profile={self.profile.name!r}, {where})"


@functools.cache
def _not_here(profile: DeviceProfile) -> Device:
    return merge(profile, None, None)


def merge(profile: DeviceProfile, detected: Detected | None, index: int | None) -> Device:
    """Makes a device of a profile's facts, which the driver's replace, and torch's both; ProfileError if one is missing."""
    layers: dict[str, Mapping[str, int]] = {"estimated" if profile.estimated else "profile": profile.hardware.stated()}
    if detected:
        layers |= {"driver": detected.driver, "torch": detected.torch}
    facts: dict[str, Any] = {key: value for layer in layers.values() for key, value in layer.items()}
    origins = {key: origin for origin, layer in layers.items() for key in layer}
    if missing := [key for key in BACKENDS[profile.backend].required if key not in facts]:
        raise ProfileError(f"{profile.name}: neither the profile nor the runtime reports {', '.join(missing)}")
    arch = (detected or profile).arch
    target = int(arch) if str(arch).isdecimal() else arch
    return Device(profile.backend, target, index, Hardware(**facts), origins, profile, detected)
