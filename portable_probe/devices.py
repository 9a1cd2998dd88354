"""The devices that words of a command line mean, for the program and for the pytest plugin."""

from collections.abc import Iterable

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.names import find_profiles
from portable_softmax.errors import DeviceError, NoDeviceError


def named(words: Iterable[str]) -> tuple[set[str], list[str]]:
    """Returns the backends among words, which may be separated by commas, and the names of devices."""
    names = [name.strip() for word in words for name in word.split(",")]
    return BACKENDS.keys() & names, [name for name in names if name not in BACKENDS]


def devices_of(words: Iterable[str]) -> list[Device]:
    """Returns the devices that are named; the local one if none is, or a backend is, which it must have.

    With a backend and a name it is the local device, and its profile must have that name.

    Raises:
        ProfileError: no device has that name.
        NoDeviceError: there is no local device.
        DeviceError: it is another one, or does not work.
    """
    backends, names = named(words)
    profiles = find_profiles(names)
    if profiles and not backends:
        return [Device.from_profile(profile.name) for profile in profiles]
    try:
        device = current_device()
    except NoDeviceError as error:
        hint = "--on NAME answers for an absent device, --on interpreter runs kernels without one"
        raise NoDeviceError(f"{error}\n{hint}") from error
    if backends - {device.backend}:
        raise DeviceError(f"{', '.join(sorted(backends))} is required; the local device is {device}")
    if profiles and profiles != [device.profile]:
        raise DeviceError(f"{', '.join(names)} is required; the profile of {device.name} is {device.profile.name}")
    return [device]
