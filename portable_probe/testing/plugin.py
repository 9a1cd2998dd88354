"""A pytest plugin. --on names devices to compile for, which may be absent, or the backend that runs kernels.

A named device that is missing ends the session with an error; no test is skipped for it. As an entry point of pytest it has no
--device, because test suites have options of that name; `-p portable_probe.testing.device` adds it.
"""

import importlib.metadata
import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import current_device
from portable_softmax.devices.device import Device
from portable_softmax.devices.names import find_profiles
from portable_softmax.errors import DeviceError, NoDeviceError, PortableSoftmaxError

if TYPE_CHECKING:
    import torch

MARKERS = (
    "accelerator: runs on an accelerator only; skipped in Triton's interpreter, and where there is none",
    "backends(*names): runs on devices of these backends only, such as cuda, hip, npu or xpu",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    add = parser.getgroup("portable-softmax", "devices of Triton kernels").addoption
    words = "devices to compile for, as `portable-softmax kernel --on`: amd/mi300x,h200 or 'amd/*'; or what runs kernels: "
    words += f"{', '.join(BACKENDS)}"
    add("--on", metavar="NAME,...", action="append", default=[], help=words)
    add("--fail-on-skip", action="store_true", help="a skipped test fails, so that nothing passes unchecked")


def pytest_configure(config: pytest.Config) -> None:
    """Sets up Triton's interpreter before a test imports a kernel; UsageError if options contradict one another."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    backend, names = _named(config)
    if backend == "interpreter":
        if names:
            raise pytest.UsageError(f"--on {','.join(names)} compiles kernels, and the interpreter does not; leave out one")
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Looks for the devices that are named; UsageError if one is missing, or the local device is another one."""
    if any(_named(session.config)):
        try:
            _devices(session.config)
        except PortableSoftmaxError as error:
            raise pytest.UsageError(f"{type(error).__name__}: {error}") from error


def pytest_report_header(config: pytest.Config) -> str:
    """Returns the devices, their profiles, and the versions of Triton and torch."""
    devices = "the current one, when a test needs it"
    if any(_named(config)):
        devices = "; ".join(
            f"{device.name}, {device.backend}/{device.arch}, profile {device.profile.name}{', absent' * (not device.detected)}"
            for device in _devices(config)
        )
    return f"device: {devices}; {', '.join(_version(name) for name in ('triton', 'torch'))}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Checks that marks name existing backends: UsageError."""
    for item in items:
        for mark in item.iter_markers("backends"):
            if unknown := [str(name) for name in mark.args if name not in BACKENDS]:
                raise pytest.UsageError(f"{item.nodeid} is for {', '.join(unknown)}; backends are {', '.join(BACKENDS)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests that need a device once for each of several."""
    names = [profile.name for profile in find_profiles(_named(metafunc.config)[1])]
    if len(names) > 1 and "portable_device" in metafunc.fixturenames:
        metafunc.parametrize("portable_device", names, indirect=True, scope="session")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests whose markers exclude the device."""
    marked, accelerator = item.get_closest_marker("backends"), item.get_closest_marker("accelerator")
    if not marked and not accelerator:
        return
    device = _device_or_skip(item.config, _name_of(item))
    if marked and device.backend not in marked.args:
        pytest.skip(f"for {', '.join(marked.args)}; this is {device.backend}")
    if accelerator and (device.detected is None or device.backend == "interpreter"):
        pytest.skip(f"runs on an accelerator; {device.name} is no local accelerator")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records in --junit-xml which device a test needs, and with --fail-on-skip fails a test that is skipped."""
    report = yield
    name = _name_of(item) or next(iter(_named(item.config)[1]), None)
    if report.when == "setup" and "portable_device" in getattr(item, "fixturenames", ()):
        device = getattr(item, "funcargs", {}).get("portable_device")
        properties = {"profile": name} if device is None else {"profile": device.profile.name, "device": device.name}
        item.user_properties.extend((key, str(value)) for key, value in properties.items() if value)
    if report.skipped and item.config.getoption("--fail-on-skip") and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = (
            "failed",
            f"skipped, and --fail-on-skip: {report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr}",
        )
    return report


@pytest.fixture(scope="session")
def portable_device(request: pytest.FixtureRequest) -> Device:
    """The local Device, or the devices of --on in turn, which may be absent."""
    return _device_or_skip(request.config, getattr(request, "param", None))


@pytest.fixture(scope="session")
def portable_torch_device(portable_device: Device) -> "torch.device":
    """The torch.device for tensors that tests pass to kernels."""
    import torch

    if portable_device.detected is None:
        pytest.skip(f"runs kernels, and {portable_device.name} is absent")
    index = portable_device.index
    return torch.device(portable_device.vendor.torch_device_type + ("" if index is None else f":{index}"))


def _name_of(item: pytest.Item) -> str | None:
    """Returns the profile that a test is parametrized with; None if there is one device at most."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("portable_device") if callspec else None


def _named(config: pytest.Config) -> tuple[str | None, list[str]]:
    """Returns the backend that is to run kernels, and the names of devices to compile for."""
    words = [word.strip() for text in config.getoption("--on") for word in text.split(",")]
    backends = {word for word in words if word in BACKENDS} | {config.getoption("portable_device", "auto")} - {"auto"}
    if len(backends) > 1:
        raise pytest.UsageError(f"kernels run on one of {', '.join(sorted(backends))}")
    return next(iter(backends), None), [word for word in words if word not in BACKENDS]


def _devices(config: pytest.Config, name: str | None = None) -> list[Device]:
    """Returns the devices that the options mean, or one of a name.

    With a backend and a name the device is the local one, and its profile must have that name.
    """
    backend, names = _named(config)
    profiles = find_profiles([name] if name else names)
    if profiles and not backend:
        return [Device.from_profile(profile.name) for profile in profiles]
    device = current_device()
    if backend not in (None, device.backend):
        raise DeviceError(f"{backend} is required: Triton drives {device}")
    if profiles and [device.profile.name] != [profile.name for profile in profiles]:
        raise DeviceError(f"--on {','.join(names)}: the profile of {device.name} is {device.profile.name}")
    return [device]


def _device_or_skip(config: pytest.Config, name: str | None) -> Device:
    try:
        return _devices(config, name)[0]
    except NoDeviceError as error:
        if any(_named(config)):
            raise
        pytest.skip(f"{error}; --on interpreter runs kernels without an accelerator, --on NAME compiles for one")


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {package}"
