"""scripts/tune.py, as far as it runs without a GPU."""

import pytest
import torch
import tune
from offline import read_problem

from portable_softmax import Device, KernelResources
from portable_softmax.planning.plan import Tiling
from portable_softmax.runtime.specialization import KernelSpec, compile_kernel

CELLS = ((4096, 781), (4096, 4096), (4096, 20_000), (128, 151_936), (512, 262_144), (64, 65_537))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x", "amd/rx-7900-xtx"])
def test_every_way_that_is_tried_is_a_kernel(profile, backward):
    device = Device.from_profile(profile)
    warp_size, most = device.hardware.warp_size, device.hardware.max_threads_per_program
    for n_rows, n_cols in CELLS:
        problem = read_problem(n_rows, n_cols, "bfloat16", device, backward=backward)
        found = list(tune.launches(problem, device))
        assert len(found) < 1000
        shared = [tiling for tiling in found if tiling.parts > 1]
        assert bool(shared) == (n_cols > 1024)
        for tiling in found:
            assert KernelSpec.of(problem, tiling)
            assert tiling.num_warps * warp_size <= most
            assert (tiling.strategy == "shared") == (tiling.parts > 1)
        for tiling in shared:
            assert not tiling.walk, "a program for each part of each row"
            assert tune._programs(problem, tiling, device) == n_rows * tiling.parts


def test_shared_rows_are_tried_in_parts_warps_pieces_and_registers():
    device = Device.from_profile("nvidia/h200")
    problem = read_problem(512, 151_936, "bfloat16", device)
    shared = [tiling for tiling in tune.launches(problem, device) if tiling.strategy == "shared"]
    for key in ("parts", "tile_cols", "num_warps", "pieces"):
        assert len({getattr(tiling, key) for tiling in shared}) >= 4, key
    assert len({tiling.max_registers for tiling in shared}) >= 4


@pytest.mark.parametrize("profile", ["nvidia/h200", "amd/mi300x"])
def test_some_of_them_compile(profile):
    device = Device.from_profile(profile)
    problem = read_problem(512, 100_000, "bfloat16", device)
    for tiling in list(tune.launches(problem, device))[::40]:
        assert tune._resources(problem, tiling, device).num_warps == tiling.num_warps
        assert compile_kernel(KernelSpec.of(problem, tiling), device)


@pytest.mark.kernel
def test_what_is_timed_is_a_softmax(device, where, monkeypatch):
    if device.backend == "interpreter":
        monkeypatch.setattr(tune, "_resources", lambda *_: KernelResources())
    monkeypatch.setattr(tune, "do_bench", lambda function, **_: function() or 1.0)
    warps = None if device.backend == "interpreter" else 4
    problem = read_problem(5, 1000, "float32", device)
    x = torch.randn(5, 1000, device=where)
    for tiling in (
        Tiling("tile", 1, 1024, warps, 1, walk=False),
        Tiling("tile", 1, 1024, warps, 1, walk=True),
        Tiling("online", 1, 512, warps, 1, walk=False),
        Tiling("shared", 1, 512, warps, 1, 2, walk=False),
    ):
        y = torch.full_like(x, -1)
        assert tune._rate(problem, tiling, tune._programs(problem, tiling, device), [y, x], device) > 0
        torch.testing.assert_close(y, torch.softmax(x, 1))
