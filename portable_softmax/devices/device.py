"""A device, here or not: its facts, merged from the runtime and a profile, and who told each."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.backends.base import Backend, Detected, Occupancy
from portable_softmax.devices.profiles import DeviceProfile, find_profile
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import ProfileError


@dataclass(frozen=True, eq=False)
class Device:
    """Device with the facts that are known of it, and who told each.

    Args:
        backend: the name of one of `portable_softmax.devices.backends`, which is Triton's.
        arch: Triton's name of the target architecture.
        index: number of the device in this process; None for one that is not here, and for the interpreter.
        hardware: the facts that are used.
        origins: who told each of them: driver, torch, profile or estimated.
        profile: the YAML profile that matched.
        detected: what the runtime told; None for a device that is not here.
    """

    backend: str
    arch: int | str
    index: int | None
    hardware: Hardware
    origins: Mapping[str, str]
    profile: DeviceProfile
    detected: Detected | None = None

    @staticmethod
    def from_profile(name: str) -> "Device":
        """Returns the device of a name in `profiles()`, to plan and count for; it need not be here.

        It is the same object as long as the profile is, so that its plans are kept.

        Raises:
            ProfileError: no product has that name.
            TypeError: the name is not text.
        """
        return _not_here(find_profile(name))

    @property
    def vendor(self) -> Backend:
        """Module that answers for the device's vendor, or what stands in for one of another vendor's than it says."""
        return (self.detected and self.detected.lookalike) or BACKENDS[self.backend]

    @property
    def name(self) -> str:
        """Name that the runtime reports, or else the profile's."""
        return (self.detected and self.detected.name) or self.profile.name

    def resident(self, occupancy: Occupancy) -> int:
        """Counts the programs that the whole device holds at once."""
        return (self.hardware.multiprocessor_count or 1) * occupancy.programs_per_multiprocessor

    def __repr__(self) -> str:
        where = "not here" if self.detected is None else f"index={self.index}"
        return f"Device({self.name!r}, {self.backend}/{self.arch}, profile={self.profile.name!r}, {where})"


@functools.cache
def _not_here(profile: DeviceProfile) -> Device:
    return merge(profile, None, None)


def merge(profile: DeviceProfile, detected: Detected | None, index: int | None) -> Device:
    """Makes a device of a profile's facts, overridden by torch's, overridden by the driver's.

    Args:
        profile: the profile that matched.
        detected: what the runtime told; None for a device that is not here.
        index: number of the device in this process, if it is here.

    Raises:
        ProfileError: a fact that the vendor needs is known to none of them.
    """
    facts: dict[str, int] = {}
    origins: dict[str, str] = {}
    told = {key: value for key in profile.hardware.__struct_fields__ if (value := getattr(profile.hardware, key))}
    layers = [("estimated" if profile.estimated else "profile", told)]
    if detected:
        layers += [("torch", dict(detected.torch)), ("driver", dict(detected.driver))]
    for origin, layer in layers:
        facts |= layer
        origins |= dict.fromkeys(layer, origin)
    if missing := [key for key in BACKENDS[profile.backend].required if key not in facts]:
        raise ProfileError(f"{profile.name}: neither the profile nor the runtime tells {', '.join(missing)}")
    arch = detected.arch if detected else int(profile.arch) if profile.arch.isdecimal() else profile.arch
    return Device(profile.backend, arch, index, msgspec.convert(facts, Hardware), origins, profile, detected)
