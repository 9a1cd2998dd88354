"""Operators on tensors of devices that are emulated, the whole way: detection, profile, plan, compilation, launch, numbers.

A vendor's test file takes these tests (`from whole_way import *`), and its conftest.py has the fixture `machine`.
"""

import pytest
import torch
from closeness import assert_close, expected
from machine import BACKEND

from portable_softmax import current_device, plan, softmax

# Profile, architecture, multiprocessors (WGPs on RDNA), lanes, and registers of a multiprocessor.
DETECTED = {
    "hip": {
        "driver_mi300x": ("amd/mi300x", "gfx942", 304, 64, 131072),
        "driver_mi300x_newer_rocm": ("amd/mi300x", "gfx942", 304, 64, 131072),
        "driver_mi250x": ("amd/mi250x", "gfx90a", 104, 64, 131072),
        "driver_rx7900xtx": ("amd/rx-7900-xtx", "gfx1100", 48, 32, 196608),
        "driver_rx7900xtx_cu_mode": ("amd/rx-7900-xtx", "gfx1100", 48, 32, 196608),
    },
    "npu": {"Ascend910B3": ("ascend/910b3", "Ascend910B3", 40, None, None)},
}[BACKEND]
FIRST = {"hip": ("driver_mi300x", "driver_rx7900xtx"), "npu": ("Ascend910B3",)}[BACKEND]  # one of each number of lanes
LONG = {"hip": ((2, 60_000), "shared"), "npu": ((5, 10_000), "online")}[BACKEND]
SHAPES = {(16, 781): "tile", (70, 64): "tile", LONG[0]: LONG[1]}


def rows(*shape, dtype=torch.float32):
    """Rows of negative numbers, of which every third has one large one in the middle."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])) - 200
    x[::3, ..., shape[-1] // 2] += 180
    return x.to(dtype)


@pytest.mark.parametrize("name", DETECTED)
def test_detection_to_numbers(machine, name):
    """The registers are the profile's whatever a driver counts, and WGPs are counted whatever its mode."""
    device = current_device(machine.index(name))
    facts = device.hardware
    found = facts.multiprocessor_count, facts.warp_size, facts.registers_per_multiprocessor
    assert device.backend == BACKEND
    assert (device.profile.name, device.arch, *found) == DETECTED[name]
    x = rows(8, 519)
    result = softmax(x.to(machine.where(name)))
    assert result.device == torch.device(machine.where(name))
    assert machine.launches[-1].arch == device.arch
    assert_close(result.cpu(), expected("softmax", x))


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_launches_are_as_planned(machine, name, shape, dtype):
    planned = plan(*shape, dtype, current_device(machine.index(name)))
    assert planned.tiling.strategy == SHAPES[shape]
    x = rows(*shape, dtype=dtype)
    assert_close(softmax(x.to(machine.where(name))).cpu(), expected("softmax", x))
    launched = machine.launches[-1]
    assert (launched.grid, launched.num_warps) == ((planned.num_programs, 1, 1), planned.num_warps)
