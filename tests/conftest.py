"""The project's fixtures; --device, and what it means, are of the package's own plugin (portable_probe/testing)."""

import os

import pytest
from counts import pytest_terminal_summary, record_count  # noqa: F401  (fixture and hook)
from sweep import pytest_collection_modifyitems  # noqa: F401  (hook)

os.environ.pop("PORTABLE_SOFTMAX_PROFILES", None)  # the tests are of the shipped profiles, and of those that they write
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest's processes share the cores; torch's threads would wait for each other
os.environ["PORTABLE_SOFTMAX_CACHE"] = "off"  # what is compiled in a test is compiled there; tests/runtime/test_on_disk.py asks


@pytest.fixture(scope="session")
def device(portable_torch_device, portable_device):
    """The Device that kernels run on."""
    return portable_device


@pytest.fixture(scope="session")
def where(portable_torch_device):
    """The torch.device of tensors for the kernel."""
    return portable_torch_device


@pytest.fixture
def by_torch(monkeypatch):
    """The torch.device whose softmax torch's operators compute, in Triton's interpreter too."""
    import torch

    from portable_softmax.operators import launching

    monkeypatch.setattr(launching, "interpreting", lambda: False)
    return torch.device("cpu")


@pytest.fixture(params=("softmax", "log_softmax", "softmin"))
def form(request):
    """The name of each function of this package; tests/support/pairs.py has the functions."""
    return request.param


@pytest.fixture
def plans(monkeypatch):
    """The (problem, plan) of each launch, as they are made."""
    from portable_softmax.operators import memory
    from portable_softmax.runtime import launch

    made = []
    memory.forget()  # a launch that is kept is not planned

    def recorded(problem, device, plan_problem=launch.plan_problem):
        found = plan_problem(problem, device)
        made.append((found.problem, found))
        return found

    monkeypatch.setattr(launch, "plan_problem", recorded)
    return made
