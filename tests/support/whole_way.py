"""Operators on tensors of devices that are emulated, the whole way: detection, profile, plan, compilation, launch, numbers.

A vendor's test file takes these tests (`from whole_way import *`), and its conftest.py has the fixture `machine`.
"""

from typing import NamedTuple

import closeness
import log_probs
import pytest
import torch
from closeness import expected, expected_gradient, gradient_scale, terms_of
from machine import BACKEND
from scored import TOGETHER, choose, compare, compare_gradient

import portable_softmax
from portable_softmax import current_device, plan, softmax
from portable_softmax.operators import launch
from portable_softmax.operators import log_probs as tokens
from portable_softmax.operators.softmax import NO_FACTORS, launched_gradient
from portable_softmax.planning.plan import Tiling

FORMS = ("softmax", "log_softmax")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


class Known(NamedTuple):
    """A device as it should be detected; multiprocessors are WGPs on RDNA, registers those of one of them."""

    profile: str
    arch: str
    multiprocessors: int
    warp_size: int | None
    registers: int | None


DETECTED = {
    "hip": {
        "driver_mi300x": Known("amd/mi300x", "gfx942", 304, 64, 131072),
        "driver_mi300x_newer_rocm": Known("amd/mi300x", "gfx942", 304, 64, 131072),
        "driver_mi250x": Known("amd/mi250x", "gfx90a", 104, 64, 131072),
        "driver_rx7900xtx": Known("amd/rx-7900-xtx", "gfx1100", 48, 32, 196608),
        "driver_rx7900xtx_cu_mode": Known("amd/rx-7900-xtx", "gfx1100", 48, 32, 196608),
    },
    "npu": {"Ascend910B3": Known("ascend/910b3", "Ascend910B3", 40, None, None)},
}[BACKEND]
FIRST = {  # one of each number of lanes
    "hip": ("driver_mi300x", "driver_rx7900xtx"),
    "npu": ("Ascend910B3",),
}[BACKEND]
LONG = {"hip": ((2, 60_000), "shared"), "npu": ((5, 10_000), "online")}[BACKEND]
SHAPES = {(16, 781): "tile", (70, 64): "tile", LONG[0]: LONG[1]}
TILINGS = {  # tiling, columns; the NPU's are planned
    "held": (Tiling(2, 256, 2), 200),
    "streamed": (Tiling(1, 128, 2, held=False), 328),
    "shared": (Tiling(1, 128, 1, None, 3), 328),
}
PLANNED = {"held": (None, 781), "streamed": (None, 10_000)}


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
    closeness.assert_close(result.cpu(), expected("softmax", x))


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_launches_are_as_planned(machine, name, shape, dtype):
    planned = plan(*shape, dtype, current_device(machine.index(name)))
    assert planned.tiling.strategy == SHAPES[shape]
    x = rows(*shape, dtype=dtype)
    closeness.assert_close(softmax(x.to(machine.where(name))).cpu(), expected("softmax", x))
    launched = machine.launches[-1]
    assert (launched.grid, launched.num_warps) == ((planned.num_programs, 1, 1), planned.num_warps)


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("across", [False, True])
def test_forms_and_gradients(machine, name, form, across):
    """Rows of every second element, or across lines; the gradient as autograd calls it, which asks for real streams itself."""
    x, dim = (rows(3, 37, 40).to(torch.float16), 1) if across else (rows(5, 400)[:, ::2], -1)
    where = machine.where(name)
    y = getattr(portable_softmax, form)(x.to(where), dim)
    closeness.assert_close(y.cpu(), expected(form, x, dim), terms_of(form))
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    dx = launched_gradient(dy.to(where), y, NO_FACTORS, form == "log_softmax", dim % x.dim(), False, x.dtype, False)
    assert machine.launches[-1].kernel == "softmax_backward_kernel"
    y = y.cpu()
    closeness.assert_close(dx.cpu(), expected_gradient(form, dy, y, dim), gradient_scale(form, dy, y, dim))


@pytest.mark.parametrize("device", FIRST)
@pytest.mark.parametrize("direction", [compare, compare_gradient])
@pytest.mark.parametrize("strategy", PLANNED if BACKEND == "npu" else TILINGS)
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scores(machine, monkeypatch, device, direction, strategy, name, form, dtype):
    """Steps of scores together, and their gradient."""
    tiling, cols = (PLANNED if BACKEND == "npu" else TILINGS)[strategy]
    if tiling:
        choose(monkeypatch, tiling)
    direction(machine.where(device), name, form, dtype, cols, closeness.assert_close)
    launch.calls.clear()


@pytest.mark.parametrize("device", FIRST)
@pytest.mark.parametrize("strategy", PLANNED if BACKEND == "npu" else TILINGS)
@pytest.mark.parametrize("n_ids", [1, 3])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_log_probs(machine, monkeypatch, device, strategy, n_ids, dtype):
    """With entropies, of hostile rows and temperatures; and their gradient."""
    tiling, cols = (PLANNED if BACKEND == "npu" else TILINGS)[strategy]
    if tiling:
        choose(monkeypatch, tiling)
    cols += n_ids > 1  # odd rows: vectors between two edges
    x, where = log_probs.hostile(cols).to(dtype), machine.where(device)
    ids = torch.randint(0, cols, (len(x), n_ids), generator=torch.Generator().manual_seed(3))
    ids[0, -1], ids[2, 0] = log_probs.IGNORED, 0
    by = torch.tensor([1, 0.5, 2, 1e-3, 30, 0.7, 1, 1, 1])  # gradients fit float16
    inputs = x.to(where), ids.to(where), None, by.unsqueeze(1).to(where), None
    call = tokens.call_of(inputs, (-1, log_probs.IGNORED, True, False))
    picked, statistics = call.run(inputs)
    log_probs.assert_picked((picked.cpu(), statistics[-1].cpu()), x, ids, by.unsqueeze(1))
    dpicked, dentropy = log_probs.random(*ids.shape, seed=1), log_probs.random(len(x), seed=2)
    dx = tokens.launched_gradient(inputs, statistics, (dpicked.to(where), None, dentropy.to(where)), call.options)
    assert machine.launches[-1].kernel == "token_log_probs_backward_kernel"
    log_probs.assert_gradient(dx.cpu(), x, ids, dpicked, dentropy, by.unsqueeze(1))
    launch.calls.clear()
