"""The programs of anybody's kernel that a device holds at once."""

import pytest
import torch
from example_kernels import add_kernel

from portable_softmax import Device, DeviceError, inspect_kernel, resident_programs

PRODUCTS = ["nvidia/h200", "nvidia/t4", "amd/mi300x", "amd/rx-7900-xtx"]


def compiled_for(name, **options):
    x = torch.empty(4096, device="meta")
    return inspect_kernel(add_kernel, (x, x, x, 4096), {"BLOCK_SIZE": 1024}, device=name, **options)


@pytest.mark.parametrize("name", PRODUCTS)
def test_as_many_as_all_multiprocessors_hold(name):
    inspected, device = compiled_for(name), Device.from_profile(name)
    for where in (name, device):
        found = resident_programs(inspected.launch.compiled, where)
        assert found == device.hardware.multiprocessor_count * inspected.occupancy.programs_per_multiprocessor > 0


@pytest.mark.parametrize(
    ("kernel", "device", "error", "words"),
    [
        (add_kernel, "nvidia/h200", TypeError, "requires a compiled kernel, as kernel.warmup"),
        (None, "nvidia/h200", TypeError, "not None"),
        (compiled_for, "amd/mi300x", DeviceError, "compiled for cuda/90 was passed for .*MI300X.* hip/gfx942; inspect_kernel"),
        (compiled_for, 7, TypeError, "device should be a Device"),
    ],
    ids=["not compiled", "nothing", "another architecture", "no device"],
)
def test_refusals(kernel, device, error, words):
    given = compiled_for("nvidia/h200").launch.compiled if kernel is compiled_for else kernel
    with pytest.raises(error, match=f"(?i){words}"):
        resident_programs(given, device)


@pytest.mark.kernel
def test_the_device_here(where):
    """A launch of as many programs as are resident; one in the interpreter."""
    x = torch.rand(3000, device=where)
    y, grid = torch.empty_like(x), (3,)
    kernel = add_kernel.warmup(x, x, y, 3000, BLOCK_SIZE=1024, grid=grid)
    found = resident_programs(kernel)
    if where.type == "cpu":
        assert found == 1
    else:
        assert found == resident_programs(add_kernel[grid](x, x, y, 3000, BLOCK_SIZE=1024)) >= 100
