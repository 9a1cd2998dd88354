"""The virtual machine of the tests that go the whole way."""

import pytest
import torch
import triton


@pytest.fixture(scope="module")
def machine():
    """Makes this process's machine one with virtual AMD devices; `machine.index(file)` is the device of a recorded file."""
    import hip_machine
    import host_tensor

    from portable_softmax.devices import detect
    from portable_softmax.operators import memory

    def forget():
        detect._device.cache_clear()
        detect._active_backend.cache_clear()
        memory.forget()

    forget()
    with pytest.MonkeyPatch.context() as patch:
        facts = [machine["torch"][0] for machine in hip_machine.MACHINES]
        operators = host_tensor.install(patch, "cuda", facts)
        patch.setattr(torch.version, "hip", "7.0.0")
        patch.setattr(triton.runtime.driver, "_active", hip_machine.Driver())
        yield hip_machine
        operators._destroy()
    forget()
