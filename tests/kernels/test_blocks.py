"""Tiles whose columns are held in several tensors, of which the last may reach past the rows, and splits of rows likewise."""

import functools

import pytest
import torch
from direct import NAN, assert_close, backward, expected, expected_gradient, forward, gradient_scale, launch, result_in, rows_in
from offline import light

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.planning.request import contiguous_problem
from portable_softmax.runtime import compiler
from portable_softmax.runtime.launch import name_of

pytestmark = pytest.mark.kernel


@pytest.fixture(autouse=True)
def _tuples(device):
    if device.backend != "interpreter" and compiler.triton_version() < (3, 3):
        pytest.skip("this Triton has no tuples of tensors")


def in_blocks(blocks, tile_rows=1):
    return Tiling(tile_rows, 16, blocks=blocks)


@pytest.fixture
def run(device):
    return functools.partial(launch, device)


@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize(("n_cols", "blocks"), [(17, 2), (33, 3), (48, 3), (79, 5)])
def test_lengths(run, where, direction, n_cols, blocks):
    """One element, all but one, and all of the last block."""
    direction(run, "softmax", torch.float32, where, n_cols, in_blocks(blocks), 2)


@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_types_and_vectors(run, where, direction, dtype):
    direction(run, "softmax", dtype, where, 40, in_blocks(3), 2, vector=16 // dtype.itemsize)


@pytest.mark.parametrize("direction", [forward, backward])
def test_forms_and_rows_that_share_a_tile(run, where, form, direction):
    direction(run, form, torch.float32, where, 44, in_blocks(3, tile_rows=2), 2, vector=4)


@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("n_cols", [33, 34, 47])
def test_unaligned_rows(device, run, where, direction, n_cols):
    """With every lead; the body of 33 elements after a lead of 3 fills 9 vectors."""
    if device.backend != "interpreter" and not device.vendor.aligned_access:
        pytest.skip(f"{device.backend} has no unaligned rows")
    for stride in (49, 51):
        direction(run, "softmax", torch.float32, where, n_cols, in_blocks(3), 2, vector=4, stride=stride)


@pytest.mark.parametrize("n_cols", [132, 260, 388, 516, 781, 900, 1025, 1300, 1301, 2056, 2304, 4100, 4224, 8200])
def test_what_is_planned_for_an_h200(device, where, n_cols):
    """With as many rows as if there were thousands of them."""
    for dtype, is_gradient in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        profile, name = Device.from_profile("nvidia/h200"), name_of(dtype)
        planned = choose(contiguous_problem(32768, n_cols, name, profile, backward=is_gradient), profile, light)
        problem = contiguous_problem(5, n_cols, name, profile, backward=is_gradient)
        if problem.unaligned and device.backend != "interpreter" and not device.vendor.aligned_access:
            continue
        given = [rows_in(5, n_cols, n_cols, dtype, where, NAN, seed)[0] for seed in range(1 + is_gradient)]
        result, assert_guards = result_in(5, n_cols, n_cols, dtype, where)
        launch(device, (result, *given), problem, planned.tiling, -(-5 // planned.tiling.tile_rows))
        assert_guards()
        if is_gradient:
            assert_close(result, expected_gradient("softmax", *given), gradient_scale("softmax", *given))
        else:
            assert_close(result, expected("softmax", *given))


@pytest.mark.parametrize("direction", [forward, backward])
def test_splits_of_rows(device, run, where, direction):
    """Blocks of any split may lie wholly or partly beyond the row's end."""
    tiling = Tiling(1, 16, None, None, 3, blocks=3)
    direction(run, "softmax", torch.float32, where, 104, tiling, 6)
    direction(run, "softmax", torch.bfloat16, where, 144, tiling, 6, vector=8)  # no mask
    if device.backend == "interpreter" or device.vendor.aligned_access:
        direction(run, "log_softmax", torch.float32, where, 99, tiling, 6, vector=4, stride=101)
