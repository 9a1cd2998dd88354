"""Tests the occupancy of my_kernel.py on absent devices, and its result on the local one.

Without a device, and with one (or hip, npu, xpu, interpreter):

    python -m pytest examples/test_my_kernel.py --on amd/mi300x,nvidia/h200
    python -m pytest examples/test_my_kernel.py --on cuda
"""

import pytest

torch = pytest.importorskip("torch")

from my_kernel import subtract_max  # noqa: E402

from portable_probe.testing import assert_occupancy  # noqa: E402


def test_it_fits(portable_device):
    words = {"x": "f32[65536]", "y": "f32[65536]", "n": 65536}
    assert_occupancy(subtract_max, portable_device, signature=words, constexprs={"BLOCK": 1024}, at_least=8, no_spills=True)


def test_it_is_right(portable_torch_device):
    x = torch.randn(1000, device=portable_torch_device)
    y = torch.full_like(x, float("nan"))
    subtract_max[(1,)](x, y, 1000, BLOCK=1024)
    assert torch.equal(y, x - x.max())
