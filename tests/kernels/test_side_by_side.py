"""Rows that lie side by side, in what is read, in the result or in both: tiles of several, also shared by programs."""

import functools

import pytest
import torch
from direct import LAYOUTS, as_they_are, backward, beside, forward, launch

from portable_softmax.planning.plan import Tiling

pytestmark = pytest.mark.kernel
TILINGS = {  # of rows of 40 columns; in pieces, the last of which may lie behind all columns
    "tile": Tiling("tile", 16, 64),
    "tile in pieces": Tiling("tile", 16, 48, pieces=3),
    "online": Tiling("online", 16, 16),
    "shared": Tiling("shared", 16, 16, parts=3),
    "shared in pieces": Tiling("shared", 16, 16, parts=3, pieces=4),
    "shared by two": Tiling("shared", 16, 32, parts=2, walk=False),
}
MATRICES = (2, 40, 33)
OTHERS = [(1, 40, 20), (3, 37, 7), (5, 33, 2)]  # the last's tiles hold rows of several matrices


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


@pytest.fixture
def side_by_side(device, where):
    if device.backend != "interpreter" and not device.vendor.scattered_rows:
        pytest.skip(f"{device.backend} has no such tiles")

    def run(direction, layout, tiling, sizes, form="softmax", dtype=torch.float32, special=None):
        launched = functools.partial(launch, device)
        beside(direction, layout, device, launched, form, dtype, where, sizes, tiling, 2 * tiling.parts, special)

    return run


@pytest.mark.parametrize("tiling", TILINGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tiling(side_by_side, direction, layout, tiling):
    side_by_side(direction, layout, TILINGS[tiling], MATRICES)


@pytest.mark.parametrize("sizes", OTHERS, ids=str)
def test_other_sizes(side_by_side, direction, sizes):
    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS["shared by two"], sizes)


@pytest.mark.parametrize("tiling", ["tile in pieces", "online", "shared"])
@pytest.mark.parametrize("form", ["log_softmax", "softmin"])
def test_every_form(side_by_side, direction, form, tiling):
    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS[tiling], MATRICES, form)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_types_of_two_bytes(side_by_side, direction, dtype):
    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS["shared in pieces"], MATRICES, dtype=dtype)


def test_parts_that_are_masked_wholly(side_by_side, direction):
    """The first part of one row, the last of another, all of a third; and rows next to each other that differ by a lot."""

    def special(x, sign):
        x += sign * 100 * torch.arange(len(x)).unsqueeze(1)
        x[1, :16], x[2, 16:], x[3] = (-sign * float("inf"),) * 3

    for layout in LAYOUTS:
        side_by_side(direction, layout, TILINGS["shared"], MATRICES, special=special if direction is forward else as_they_are)
