"""--device says what kernels run on. `auto` takes what is there, or skips them; a named device that is missing fails."""

import os

import pytest
from counts import pytest_terminal_summary, record_count  # noqa: F401  (fixture and hook)

NAMES = ("auto", "interpreter", "cuda", "hip", "npu")


def pytest_addoption(parser):
    parser.addoption("--device", choices=NAMES, default="auto", help="what kernels run on (auto)")


def pytest_configure(config):
    if config.getoption("--device") == "interpreter":
        os.environ["TRITON_INTERPRET"] = "1"  # before any test imports a kernel


@pytest.fixture(scope="session")
def device(request):
    """The Device that kernels run on."""
    from portable_softmax import NoDeviceError, current_device

    wanted = request.config.getoption("--device")
    try:
        found = current_device()
    except NoDeviceError as error:
        if wanted == "auto":
            pytest.skip(f"{error}; --device interpreter runs kernels without an accelerator")
        raise
    assert wanted in ("auto", found.backend), f"--device {wanted} was asked for, but Triton drives {found}"
    return found


@pytest.fixture(scope="session")
def where(device):
    """The torch.device of tensors for the kernel."""
    import torch

    return torch.device(device.vendor.torch_device_type + ("" if device.index is None else f":{device.index}"))


@pytest.fixture(params=("softmax", "log_softmax", "softmin"))
def form(request):
    """The name of each function of this package; tests/support/pairs.py has the functions."""
    return request.param


@pytest.fixture
def plans(monkeypatch):
    """The (problem, plan) of each launch, as they are made."""
    from portable_softmax.runtime import launch
    from portable_softmax.torch_api import layout as rows

    made = []
    monkeypatch.setattr(rows, "_again", {})  # a launch that is kept is not planned

    def recorded(problem, device, plan_problem=launch.plan_problem):
        made.append((problem, plan_problem(problem, device)))
        return made[-1][1]

    monkeypatch.setattr(launch, "plan_problem", recorded)
    return made
