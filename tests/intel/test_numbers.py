"""The SPIR-V of every strategy in sub-groups of 32 lanes and of 16, executed and compared with float64."""

import pytest
import torch
from direct import as_they_are
from machine_code import CASES, CPU, compare
from strategies import *  # noqa: F403

from intel.machine import on_the_cpu
from intel.spirv import edited, never_published

PRODUCTS = ("intel/max-1550", "intel/arc-a770")  # 32 lanes, 16
FOREMOST = {"intel/max-1550"}
pytestmark = pytest.mark.pairwise
RUN_ON = on_the_cpu


@pytest.mark.parametrize("name", ["rows", "no mask", "online"])
def test_float64(direction, name):
    """In sub-groups of 32 lanes: a device of 16 has no float64."""
    tiling, n_cols, _ = CASES[name]
    direction(on_the_cpu(PRODUCTS[0]), "softmax", torch.float64, CPU, n_cols, tiling, 3, vector=2)


@pytest.mark.parametrize("name", ["shared", "shared, unaligned", "shared, in one block"])
def test_shared_rows_have_the_same_bits_in_every_run(product, direction, name):
    """Programs that run side by side, one after another, or find nothing that another one publishes."""
    runs = [compare(direction, on_the_cpu(product), name, special=as_they_are) for _ in range(20)]
    lost = on_the_cpu(product, lambda spirv: edited(spirv, never_published))
    runs += [compare(direction, lost, name, special=as_they_are) for _ in range(5)]
    assert all(torch.equal(runs[0], each) for each in runs[1:])
