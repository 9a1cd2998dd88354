"""The project's fixtures; --device, and what it means, are of the package's own plugin (portable_probe/testing)."""

import dataclasses
import functools
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


@pytest.fixture(scope="session", autouse=True)
def without_needless_work():
    """Halves the time of Triton's interpreter.

    It computes all integers in 64 bits too, for a check that it leaves out where it does not debug, and makes a table of types
    for each operation.
    """
    from portable_softmax.devices.detect import interpreting

    if not interpreting():
        return
    import triton.language as tl
    from triton.runtime import interpreter

    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
    of_element = functools.cache(interpreter._get_np_dtype)

    def of(kind):
        element = kind.element_ty if isinstance(kind, tl.block_type) else kind
        return interpreter.np.dtype("uint64") if isinstance(element, tl.pointer_type) else of_element(element)

    interpreter._get_np_dtype = of


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
