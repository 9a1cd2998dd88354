"""Tells what is installed, what is wrong, and what to type."""

import importlib.util
import os

from portable_probe.report import software
from portable_softmax.devices.backends import broken_installation
from portable_softmax.devices.detect import INSTALL, current_device, interpreting
from portable_softmax.devices.device import Device
from portable_softmax.devices.profiles import profiles
from portable_softmax.errors import CompileError, NoDeviceError, PortableSoftmaxError
from portable_softmax.runtime.compiler import target_to_compile_for

PURPOSES = {
    "torch": "without it there are plans, profiles and occupancy, and no softmax",
    "triton": "without it there are profiles, occupancy, and plans for Ascend",
}
EXTRAS = {
    "numpy": ("Triton's interpreter, the virtual AMD device and `portable-softmax tune`", "pip install 'numpy<2.4'"),
    "pytest": ("tests of your kernels", "pip install pytest"),
}


def doctor() -> int:
    """Prints a line for each thing that matters; returns 0, or 1 if something is wrong."""
    wrong = broken_installation()
    print(f"installed  {', '.join(f'{name} {version}' for name, version in software().items())}")
    if wrong:
        print(f"WRONG      {wrong}")
    for package, purpose in PURPOSES.items():
        if not importlib.util.find_spec(package):
            print(f"missing    {package}: {purpose}; {INSTALL}")
    for package, (purpose, command) in EXTRAS.items():
        if not importlib.util.find_spec(package):
            print(f"optional   {package}, for {purpose}: {command}")
    if interpreting():
        print("set        TRITON_INTERPRET: kernels run in Triton's interpreter, and nothing is compiled")
    if folders := os.environ.get("PORTABLE_SOFTMAX_PROFILES"):
        print(f"set        PORTABLE_SOFTMAX_PROFILES={folders}")
    broken = _device()
    if importlib.util.find_spec("triton"):
        _targets()
    return 1 if wrong or broken else 0


def _device() -> bool:
    """Prints the device that is here; returns True if it should work and does not."""
    if lacking := [package for package in ("torch", "triton") if not importlib.util.find_spec(package)]:
        print(f"device     not looked for, without {' and '.join(lacking)}")
        return False
    try:
        print(f"device     {current_device()}")
    except NoDeviceError as error:
        print(
            f"device     none: {error}\n           `portable-softmax plan --on NAME` plans for one that is not here; "
            "with TRITON_INTERPRET=1 kernels run in Triton's interpreter"
        )
    except PortableSoftmaxError as error:
        print(f"WRONG      {type(error).__name__}: {error}")
        return True
    return False


def _targets() -> None:
    """Prints for which devices that are not here this Triton compiles."""
    if interpreting():
        return
    names = [name for name, profile in profiles().items() if profile.backend != "interpreter"]
    reasons: dict[str, list[str]] = {}
    for name in names:
        try:
            target_to_compile_for(Device.from_profile(name))
        except CompileError as error:
            reasons.setdefault(str(error), []).append(name)
    print(f"compiles   for {len(names) - sum(map(len, reasons.values()))} of {len(names)} profiles without the device")
    for reason, refused in reasons.items():
        print(f"           not for {len(refused)} such as {refused[0]}: {reason}")
