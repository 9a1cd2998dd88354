"""A pytest plugin. --on names devices to compile for, which may be absent, or the backend that runs kernels.

A named device that is missing ends the session with an error; no test is skipped. A test suite's own option of the
dest `portable_device` names a backend too.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

from portable_softmax.devices.backends import BACKENDS
from portable_softmax.devices.detect import devices_of, named
from portable_softmax.devices.device import Device
from portable_softmax.errors import NoDeviceError, PortableSoftmaxError

ACCELERATOR = "accelerator: runs on an accelerator only; skipped in Triton's interpreter, and where there is none"
NOT_RUN = "[NOTRUN]"  # in pytest's reason of a test of xfail(run=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    add = parser.getgroup("portable-softmax", "devices of Triton kernels").addoption
    words = "devices to compile for, as `portable-softmax kernel --on`: amd/mi300x,h200 or 'amd/*'; or what runs kernels: "
    add("--on", metavar="NAME,...", action="append", default=[], help=words + ", ".join(BACKENDS))
    add("--fail-on-skip", action="store_true", help="fail skipped tests and modules, so that nothing passes unchecked")


def pytest_configure(config: pytest.Config) -> None:
    """Sets up Triton's interpreter before a test imports a kernel."""
    config.addinivalue_line("markers", ACCELERATOR)
    if config.getoption("--fail-on-skip"):
        config.option.continue_on_collection_errors = True  # a module that is skipped fails, and the others run
    if "interpreter" in named(_words(config))[0]:
        os.environ["TRITON_INTERPRET"] = "1"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Finds the named devices; UsageError if one is missing, or the local device differs."""
    if words := _words(session.config):
        try:
            devices_of(words)
        except PortableSoftmaxError as error:
            raise pytest.UsageError(f"{type(error).__name__}: {error}") from error


def pytest_report_header(config: pytest.Config) -> str:
    """Returns the devices and their profiles."""
    devices = devices_of(words) if (words := _words(config)) else []
    return f"device: {', '.join(map(repr, devices)) or 'the current one, when a test needs it'}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs tests that use a device once per device."""
    words = _words(metafunc.config)
    if named(words)[1] and "portable_device" in metafunc.fixturenames and len(devices := devices_of(words)) > 1:
        metafunc.parametrize("portable_device", [device.name for device in devices], indirect=True, scope="session")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests of accelerators on other devices."""
    if item.get_closest_marker("accelerator"):
        params = getattr(getattr(item, "callspec", None), "params", {})
        device = _device_or_skip(item.config, params.get("portable_device"))
        if device.detected is None or device.backend == "interpreter":
            pytest.skip(f"the test requires a local accelerator, and {device.name} is not one")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fails a test that does not run with --fail-on-skip: one that is skipped, or is expected to fail and not run."""
    report = yield
    _fail_if_not_run(report, item.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Fails a module that is skipped when it is imported, with --fail-on-skip."""
    report = yield
    _fail_if_not_run(report, collector.config)
    return report


def _fail_if_not_run(report: Any, config: pytest.Config) -> None:
    expected = vars(report).get("wasxfail")
    if report.skipped and config.getoption("--fail-on-skip") and (expected is None or NOT_RUN in expected):
        why = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, and --fail-on-skip: {expected or why}"
        vars(report).pop("wasxfail", None)


@pytest.fixture(scope="session")
def portable_device(request: pytest.FixtureRequest) -> Device:
    """The local Device, or the devices of --on in turn, which may be absent."""
    return _device_or_skip(request.config, getattr(request, "param", None))


@pytest.fixture(scope="session")
def portable_torch_device(portable_device: Device) -> Any:
    """The torch.device for tensors that tests pass to kernels."""
    import torch

    if portable_device.detected is None:
        pytest.skip(f"the test runs kernels, and {portable_device.name} is absent")
    return torch.device(portable_device.torch_name)


def _words(config: pytest.Config) -> list[str]:
    """Returns the words of --on, and of --device where a test suite has this project's."""
    backend = config.getoption("portable_device", "auto")
    return [*config.getoption("--on"), *([] if backend == "auto" else [backend])]


def _device_or_skip(config: pytest.Config, name: str | None) -> Device:
    words = _words(config)
    try:
        return devices_of([name] if name else words)[0]
    except NoDeviceError as error:
        if words:
            raise
        pytest.skip(str(error))
