"""Tiles whose columns are held in several tensors, of which the last may reach past the rows, and parts of rows likewise."""

import functools

import pytest
import torch
from direct import assert_close, expected, expected_gradient, gradient_scale, launch, problem_of, result_in, rows_in
from test_exchange import Groups
from test_exchange import backward as shared_backward
from test_exchange import forward as shared_forward
from test_exchange import interpreter as interpreter  # a fixture
from test_planner import light

from portable_softmax import Device, compiler
from portable_softmax.launch import contiguous_problem, name_of
from portable_softmax.planner import choose
from portable_softmax.problem import Tiling

pytestmark = pytest.mark.kernel
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _tuples(device):
    if device.backend != "interpreter" and compiler.triton_version() < (3, 3):
        pytest.skip("this Triton has no tuples of tensors")


def in_pieces(pieces, tile_rows=1):
    return Tiling("tile", tile_rows, 16 * pieces, None, None, pieces=pieces)


def forward(device, where, form, dtype, n_cols, tiling, vector=1, stride=None):
    ragged = stride is not None
    x, _ = rows_in(5, n_cols, stride or n_cols, dtype, where, NAN, seed=n_cols)
    x[1, :17], x[2], x[3, -1], x[4, 16] = -INF, -INF, NAN, INF
    y, assert_guards = result_in(5, n_cols, stride or n_cols, dtype, where)
    launch(device, (y, x), problem_of((y, x), form, False, vector, ragged), tiling, 2)
    assert_guards()
    assert_close(y, expected(form, x), float(form == "log_softmax"))


def backward(device, where, form, dtype, n_cols, tiling, vector=1, stride=None):
    ragged = stride is not None
    dy, y = (rows_in(5, n_cols, stride or n_cols, dtype, where, NAN, seed)[0] for seed in (n_cols, n_cols + 1))
    dy[3, -1] = NAN
    dx, assert_guards = result_in(5, n_cols, stride or n_cols, dtype, where)
    launch(device, (dx, dy, y), problem_of((dx, dy, y), form, True, vector, ragged), tiling, 2)
    assert_guards()
    assert_close(dx, expected_gradient(form, dy, y), gradient_scale(form, dy, y))


@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize(("n_cols", "pieces"), [(17, 2), (33, 3), (48, 3), (79, 5)])
def test_lengths(device, where, direction, n_cols, pieces):
    """One element, all but one, and all of the last piece."""
    direction(device, where, "softmax", torch.float32, n_cols, in_pieces(pieces))


@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_types_and_vectors(device, where, direction, dtype):
    direction(device, where, "softmax", dtype, 40, in_pieces(3), vector=16 // dtype.itemsize)


@pytest.mark.parametrize("direction", [forward, backward])
def test_forms_and_rows_that_share_a_tile(device, where, form, direction):
    direction(device, where, form, torch.float32, 44, in_pieces(3, tile_rows=2), vector=4)


@pytest.mark.parametrize("direction", [forward, backward])
@pytest.mark.parametrize("n_cols", [33, 34, 47])
def test_ragged_rows(device, where, direction, n_cols):
    """With every lead; the body of 33 elements after a lead of 3 fills 9 vectors."""
    if device.backend != "interpreter" and not device.vendor.aligned_access:
        pytest.skip(f"{device.backend} has no ragged rows")
    for stride in (49, 51):
        direction(device, where, "softmax", torch.float32, n_cols, in_pieces(3), vector=4, stride=stride)


@pytest.mark.parametrize("n_cols", [132, 260, 388, 516, 781, 900, 1025, 1300, 1301, 2056, 2304, 4100, 4224, 8200])
def test_what_is_planned_for_an_h200(device, where, n_cols):
    """With as many rows as if there were thousands of them."""
    for dtype, backward in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        profile, name = Device.from_profile("nvidia/h200"), name_of(dtype)
        planned = choose(contiguous_problem(32768, n_cols, name, profile, backward=backward), profile, light)
        problem = contiguous_problem(5, n_cols, name, profile, backward=backward)
        if problem.ragged and device.backend != "interpreter" and not device.vendor.aligned_access:
            continue
        given = [rows_in(5, n_cols, n_cols, dtype, where, NAN, seed)[0] for seed in range(1 + backward)]
        result, assert_guards = result_in(5, n_cols, n_cols, dtype, where)
        launch(device, (result, *given), problem, planned.tiling, -(-5 // planned.tile_rows))
        assert_guards()
        if backward:
            assert_close(result, expected_gradient("softmax", *given), gradient_scale("softmax", *given))
        else:
            assert_close(result, expected("softmax", *given))


def test_parts_of_rows(interpreter, device, where):
    """Pieces of any part may lie wholly or partly beyond the row's end."""
    tiling, groups = Tiling("cooperative", 1, 48, None, None, 3, pieces=3), Groups(device, 3, 2, 5)
    for direction in (shared_forward, shared_backward):
        direction(groups, "softmax", torch.float32, where, 104, tiling, 2)
        direction(groups, "log_softmax", torch.float32, where, 99, tiling, 2, 101, vector=4, ragged=True)
    direct = functools.partial(launch, device)
    for direction in (shared_forward, shared_backward):
        direction(direct, "softmax", torch.bfloat16, where, 144, Tiling("split", 1, 48, None, None, 3, pieces=3), 2, vector=8)
