"""Results as hardware may round them: exp2, log2 and reciprocals one unit in the last place beside the nearest float32."""

import numpy as np
import pytest
import torch
from direct import as_they_are, backward, forward
from machine_code import FOREMOST, compare, in_virtual_device

from amdgcn_cpu import arithmetic

NAMES = ("rows", "shared", "online")


def beside(direction):
    """A rounding to the next float32 in a direction, or either of both at random; 0, 1 and what is not finite stay."""
    random = np.random.default_rng(0)

    def rounded(x):
        nearest = x.astype(np.float32)
        towards = np.full_like(nearest, direction) if direction else random.choice(np.float32([-np.inf, np.inf]), nearest.shape)
        exact = (nearest == x) | ~np.isfinite(nearest)
        return np.where(exact, nearest, np.nextafter(nearest, towards))

    return rounded


@pytest.mark.each_value
@pytest.mark.parametrize("towards", [np.inf, -np.inf, 0], ids=["up", "down", "either"])
@pytest.mark.parametrize("arch", sorted(FOREMOST))
@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
def test_results_beside_the_nearest_are_good_enough(monkeypatch, arch, towards, form):
    monkeypatch.setattr(arithmetic, "rounded", beside(towards))
    for name in NAMES:
        compare(forward, in_virtual_device(arch), name, form=form)
    compare(forward, in_virtual_device(arch), "rows", form=form, dtype=torch.bfloat16, special=as_they_are)
    compare(backward, in_virtual_device(arch), "rows", form=form)
