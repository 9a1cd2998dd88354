"""Finds the device that Triton drives in this process, or the reason why there is none."""

import functools
import importlib.util
import operator
import os
import warnings
from collections.abc import Iterable
from typing import Any

from portable_softmax.devices.backends import BACKENDS, broken_installation
from portable_softmax.devices.backends.base import Detected
from portable_softmax.devices.device import Device, merge
from portable_softmax.devices.names import find_profiles
from portable_softmax.devices.profiles import match_profile
from portable_softmax.devices.schema import Hardware
from portable_softmax.errors import DeviceError, NoDeviceError

INSTALL = f"install PyTorch and Triton for the device. {'; '.join(backend.install for backend in BACKENDS.values())}"
SETUP = " ".join(backend.setup for backend in BACKENDS.values() if backend.setup)


def how_to_install(error: BaseException | None) -> str:
    """Returns what to type where torch or Triton cannot be imported, as the end of a sentence; "" for other errors."""
    is_known = isinstance(error, ImportError) and (error.name or "").partition(".")[0] in ("torch", "triton")
    return f"; {INSTALL}" if is_known else ""


def chosen(device: Device | str | None) -> Device:
    """Returns a Device as it is, or the one with a name, or the current one for None; the errors of these, and TypeError."""
    if isinstance(device, str):
        return Device.from_profile(device)
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"device must be a Device, a name such as 'vendor/product', or None, not {device!r}")
    return device or current_device()


def named(words: Iterable[str]) -> tuple[set[str], list[str]]:
    """Returns the backends, and the names of devices, among words of a command line, which commas may separate."""
    names = [name.strip() for word in words for name in word.split(",")]
    return BACKENDS.keys() & names, [name for name in names if name not in BACKENDS]


def devices_of(words: Iterable[str]) -> list[Device]:
    """Returns the devices that are named; with a backend, or without names, the local one, which must match them.

    ProfileError, NoDeviceError, DeviceError: no device has that name; there is no local device; it is another one.
    """
    backends, names = named(words)
    profiles = find_profiles(names)
    if profiles and not backends:
        return [Device.from_profile(profile.name) for profile in profiles]
    try:
        device = current_device()
    except NoDeviceError as error:
        raise NoDeviceError(f"{error}\n--on NAME names an absent device; tests and verify run with --on interpreter") from error
    if backends - {device.backend} or (profiles and profiles != [device.profile]):
        raise DeviceError(f"{', '.join((*sorted(backends), *names))} is required; the local device is {device}")
    return [device]


def limits(device: Device | str | None = None) -> Hardware:
    """Returns the facts of a device, a Device or the name of one, which may be absent; None is the current device.

    Raises:
        ProfileError, NoDeviceError, DeviceError: no profile has that name; there is no current device, or it does not work.
    """
    return chosen(device).hardware


def interpreting() -> bool:
    """True if Triton's interpreter replaces the device; Triton decides when a kernel is defined."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in {"1", "true", "on", "yes", "y"}


def current_device(index: int | None = None) -> Device:
    """Returns the device that Triton drives in this process.

    Args:
        index: index of the device, as in torch; None for torch's current one.

    Raises:
        TypeError: the index is not an integer.
        NoDeviceError: this machine has no accelerator that Triton drives.
        DeviceError: a driver, torch or the vendor's software is missing, broken, or not the only one.
        ProfileError: a hardware profile is malformed.
    """
    if interpreting():
        return _interpreter()
    backend = _active_backend()
    if index is None:
        index = getattr(_import_torch(), BACKENDS[backend].torch_device_type).current_device()
    return _device(backend, operator.index(index))


@functools.cache
def _active_backend() -> str:
    """Returns Triton's name of the vendor that it drives, or raises an error with the reason."""
    torch = _import_torch()  # first: Triton launches on torch's streams if torch is already imported
    if wrong := broken_installation():
        raise DeviceError(wrong)
    try:
        from triton.backends import backends
        from triton.runtime import driver
    except ImportError as error:
        raise DeviceError(f"Triton is required to find a device: {error}; {INSTALL}") from error
    try:
        name: str = driver.active.get_current_target().backend
    except Exception as error:  # RuntimeError for no driver or for several; OSError if CANN is missing
        if claims := [name for name, backend in backends.items() if backend.driver.is_active()]:
            several = "of several, uninstall all but one, or set TRITON_DEFAULT_BACKEND (Triton 3.7 and later)"
            what = f"Triton's {' and '.join(claims)} drivers claim this machine: {error}"
            raise DeviceError(f"{what}\nis there a device? {SETUP}\n{several}") from error
        built = [name for name in BACKENDS if getattr(torch.version, name, None)]
        hint = " ".join(BACKENDS[name].setup for name in built) or INSTALL
        is_for = f"torch {torch.__version__} is built for {' and '.join(built) or 'the CPU only'}; {hint}"
        raise NoDeviceError(f"Triton has drivers for {', '.join(backends)}; none finds a device. {is_for}") from error
    if name not in BACKENDS:
        raise DeviceError(f"Triton drives a {name!r} device; this package supports {', '.join(BACKENDS)}")
    module = getattr(torch, BACKENDS[name].torch_device_type)
    if not module.is_available():
        but = f"but {module.__name__}.is_available() is False: is a device visible to this process? {BACKENDS[name].setup}"
        raise DeviceError(f"Triton's {name} driver claims to be active, {but}")
    return name


@functools.cache
def _interpreter() -> Device:
    if missing := " and ".join(name for name in ("triton", "numpy") if not importlib.util.find_spec(name)):
        how = BACKENDS["interpreter"].install
        raise DeviceError(f"TRITON_INTERPRET is set, and Triton's interpreter requires {missing}. {how}")
    name = "interpreter"
    return merge(match_profile(name, name, name), Detected(name, name, {}, {}), None)


@functools.cache
def _device(backend: str, index: int) -> Device:
    from triton.runtime import driver

    vendor = BACKENDS[backend]
    module = getattr(_import_torch(), vendor.torch_device_type)
    if not 0 <= index < module.device_count():
        raise DeviceError(f"device {index} was requested; torch has {module.device_count()}, numbered from 0")
    with module.device(index):
        target = driver.active.get_current_target()
        try:
            properties = driver.active.utils.get_device_properties(index)
        except Exception as error:  # Triton builds a C extension on first use: gcc or libcuda may be missing
            raise DeviceError(f"Triton's {backend} driver cannot describe device {index}: {error}") from error
        detected = vendor.describe(module.get_device_properties(index), target.arch, properties)
    profile = match_profile(backend, str(detected.arch), detected.name, detected.driver.get("warp_size"))
    if profile.estimated:
        what = f"{detected.name or 'this device'} ({backend}/{detected.arch}) has no profile"
        do = f"add a file that `extends: {profile.name}`, as device_profiles/README.md describes"
        warnings.warn(f"{what}: plans use the cautious estimates of {profile.name}; {do}", stacklevel=2)
    return merge(profile, detected, index)


def _import_torch() -> Any:
    try:
        import torch
    except (
        ImportError,
        RuntimeError,
    ) as error:  # of vendors' extensions too, which torch loads
        raise DeviceError(f"torch is required to find a device: {error}; {INSTALL}\n{SETUP}") from error
    return torch
