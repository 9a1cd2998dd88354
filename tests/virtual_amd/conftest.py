"""The virtual machine of the tests that go the whole way."""

import pytest
import torch
import triton


@pytest.fixture(scope="module")
def machine():
    """Makes this process's machine one with virtual AMD devices, by the names of their recorded files."""
    import hip_machine

    with pytest.MonkeyPatch.context() as patch, hip_machine.MACHINE.installed(patch):
        patch.setattr(torch.version, "hip", "7.0.0")
        patch.setattr(triton.runtime.driver, "_active", hip_machine.Driver())
        yield hip_machine.MACHINE
