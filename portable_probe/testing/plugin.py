"""A pytest plugin. --device says on what device kernels run, --on for what device they are compiled.

If a named device is missing, the session ends with an error, whatever the tests are. No test is skipped for it.
"""

import importlib.metadata
import os
from typing import TYPE_CHECKING

import pytest

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.names import find_profile
from portable_softmax.errors import DeviceError, NoDeviceError, PortableSoftmaxError

if TYPE_CHECKING:
    import torch

MARKERS = (
    "accelerator: runs on an accelerator only; skipped in Triton's interpreter, and where --device auto finds none",
    "backends(*names): runs on devices of these backends only, such as cuda, hip, npu or xpu",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("portable-softmax", "devices of Triton kernels")
    group.addoption("--device", choices=("auto", *BACKENDS), default="auto", help="what kernels run on (auto)")
    words = "a device that need not be here, such as amd/mi300x, to compile for; tests that ask for a device run for each"
    group.addoption("--on", metavar="NAME", action="append", default=[], help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Sets up Triton's interpreter before a test imports a kernel.

    Raises:
        UsageError: options contradict each other.
    """
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    if config.getoption("--device") == "interpreter":
        if config.getoption("--on"):
            raise pytest.UsageError("--on compiles kernels, and --device interpreter does not; leave out one of the two")
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Looks for the device that --device or --on names.

    Raises:
        UsageError: it is missing, or the device here is another one.
    """
    if _named(session.config):
        try:
            for name in _profiles(session.config):
                _device(session.config, name)
        except PortableSoftmaxError as error:
            raise pytest.UsageError(f"{type(error).__name__}: {error}") from error


def pytest_report_header(config: pytest.Config) -> str:
    """Returns the device, its profile, and the versions of Triton and torch."""
    found = "taken when a test first asks (--device auto)"
    if _named(config):
        found = "; ".join(_described(_device(config, name)) for name in _profiles(config))
    return f"device: {found}; {', '.join(_version(name) for name in ('triton', 'torch'))}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Checks that marks name backends that there are.

    Raises:
        UsageError: one does not, and its test would be skipped for ever.
    """
    for item in items:
        for mark in item.iter_markers("backends"):
            if unknown := [str(name) for name in mark.args if name not in BACKENDS]:
                raise pytest.UsageError(f"{item.nodeid} is for {', '.join(unknown)}; backends are {', '.join(BACKENDS)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests that ask for a device once for each of several profiles."""
    names = _profiles(metafunc.config)
    if len(names) > 1 and "portable_device" in metafunc.fixturenames:
        metafunc.parametrize("portable_device", names, indirect=True, scope="session")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests whose markers exclude this device."""
    marked = item.get_closest_marker("backends")
    if marked or item.get_closest_marker("accelerator"):
        callspec = getattr(item, "callspec", None)
        name = callspec.params.get("portable_device") if callspec else None
        device = _device_or_skip(item.config, name or _profiles(item.config)[0])
        if marked and device.backend not in marked.args:
            pytest.skip(f"for {', '.join(marked.args)}; this is {device.backend}")
        if item.get_closest_marker("accelerator") and (device.detected is None or device.backend == "interpreter"):
            pytest.skip(f"runs on an accelerator; {device.name} is none that is here")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Tells in --junit-xml which device a test asked for; each of several profiles has tests of its own."""
    device = getattr(item, "funcargs", {}).get("portable_device")
    if isinstance(device, Device):
        here = "no" if device.detected is None else "yes"
        told = {"device": device.name, "backend": device.backend, "profile": device.profile.name, "here": here}
        item.user_properties.extend(told.items())


@pytest.fixture(scope="session")
def portable_device(request: pytest.FixtureRequest) -> Device:
    """Returns the Device of --device, or that of --on, which need not be on this machine."""
    return _device_or_skip(request.config, getattr(request, "param", None) or _profiles(request.config)[0])


@pytest.fixture(scope="session")
def portable_torch_device(portable_device: Device) -> "torch.device":
    """Returns the torch.device for the tensors that tests give to kernels."""
    import torch

    if portable_device.detected is None:
        pytest.skip(f"runs kernels, and {portable_device.name} is not here")
    index = portable_device.index
    return torch.device(portable_device.vendor.torch_device_type + ("" if index is None else f":{index}"))


def _named(config: pytest.Config) -> bool:
    return config.getoption("--device") != "auto" or bool(config.getoption("--on"))


def _profiles(config: pytest.Config) -> list[str | None]:
    """Returns the profiles that were named, or None alone."""
    return config.getoption("--on") or [None]


def _described(device: Device) -> str:
    where = ", not here" if device.detected is None else ""
    return f"{device.name}, {device.backend}/{device.arch}, profile {device.profile.name}{where}"


def _device(config: pytest.Config, profile: str | None) -> Device:
    """Returns the device that the options mean.

    If both are given, the device is the live one, and its profile must be the one that --on names.
    """
    name = config.getoption("--device")
    if profile and name == "auto":
        return Device.from_profile(profile)
    found = current_device()
    if name not in ("auto", found.backend):
        raise DeviceError(f"--device {name} was asked for, and Triton drives {found}")
    if profile and found.profile.name != find_profile(profile).name:
        raise DeviceError(f"--on {profile} was asked for, and {found.name} is taken for {found.profile.name}")
    return found


def _device_or_skip(config: pytest.Config, profile: str | None) -> Device:
    try:
        return _device(config, profile)
    except NoDeviceError as error:
        if _named(config):
            raise
        pytest.skip(f"{error}; --device interpreter runs kernels without an accelerator, --on NAME compiles for one")


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {package}"
