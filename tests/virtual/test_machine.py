"""The package learns about the devices of the machine, and says from whom."""

import pytest
import torch
from triton.runtime import driver

from portable_softmax import DeviceError, current_device, profiles
from virtual.machine import UNKNOWN, described

NAMES = [name for name, profile in profiles().items() if profile.backend == "npu"]


@pytest.mark.parametrize(("npu", "name"), list(zip(described(), NAMES, strict=True)), ids=NAMES)
def test_every_profile_is_recognised(machine, npu, name):
    device = current_device(machine.index(npu.arch))
    assert (device.profile.name, device.backend, device.arch) == (name, "npu", npu.arch)
    assert (device.hardware.multiprocessor_count, device.origins["multiprocessor_count"]) == (npu.vector_cores, "torch")
    told = None if npu.memory_bytes is None else "torch"  # a profile may not know how much there is
    assert (device.hardware.memory_bytes, device.origins.get("memory_bytes")) == (npu.memory_bytes, told)
    assert device.hardware.shared_memory_per_program_max == npu.unified_buffer_bytes


def test_vector_cores_from_the_driver_where_torch_npu_is_old(machine):
    device = current_device(machine.index(UNKNOWN))
    assert device.profile.name == "ascend/estimated"
    assert (device.hardware.multiprocessor_count, device.origins["multiprocessor_count"]) == (30, "driver")


def test_what_the_driver_tells(machine):
    with torch.npu.device(machine.index("Ascend910B3")):
        assert driver.active.get_current_target().__dict__ == {"backend": "npu", "arch": "Ascend910B3", "warp_size": 0}
    properties = driver.active.utils.get_device_properties(machine.index("Ascend910B3"))
    assert properties == {"max_shared_mem": 1, "num_aicore": 20, "num_vectorcore": 40}


def test_no_such_device(machine):
    with pytest.raises(DeviceError, match=f"device 99 was requested; torch sees {len(machine.npus)}"):
        current_device(99)
