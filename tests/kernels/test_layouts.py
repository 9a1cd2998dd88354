"""Each layout of rows that kernels read, in each tiling, type, form and direction, of hostile rows, against float64.

A launch has rows that are masked in whole or in part, far from 0, with a nan, with an inf, and next to each other; guards stand
around the result, and what is no element of the input is nan.
"""

import functools
from typing import NamedTuple

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale
from direct import INF, NAN, as_they_are, backward, beside, forward, launch, result_in, rows_in
from offline import light, read_problem
from sweep import mostly_slow

from portable_softmax import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.planner import choose
from portable_softmax.runtime import compiler
from portable_softmax.runtime.launch import name_of

pytestmark = pytest.mark.kernel
DTYPES = torch.float32, torch.float16, torch.bfloat16
DIRECTIONS = forward, backward
MATRICES = 2, 40, 17  # matrices, columns, rows side by side


class Case(NamedTuple):
    """A tiling, and the columns or matrices that it is tried with."""

    tiling: Tiling
    sizes: int | tuple[int, int, int] = MATRICES
    n_rows: int = 9


SIDE_BY_SIDE = {  # in blocks, the last of which may lie behind all columns
    "tile": Case(Tiling(16, 64)),
    "tile in blocks": Case(Tiling(16, 16, blocks=3)),
    "online": Case(Tiling(16, 16, held=False)),
    "shared": Case(Tiling(16, 16, splits=3)),
    "online, 4 warps": Case(Tiling(16, 32, 4, held=False)),  # several columns of each thread, on a GPU
    "online, 32 warps": Case(Tiling(16, 16, 32, held=False)),  # the same in the interpreter, whose warps count as one thread
    "shared in blocks": Case(Tiling(16, 4, splits=3, blocks=4)),
    "shared, read twice": Case(Tiling(16, 8, splits=3, blocks=2, held=False)),
    "shared, read twice in three": Case(Tiling(16, 8, splits=2, blocks=3, held=False)),
    "shared by two": Case(Tiling(16, 32, splits=2, walk=False)),
    "one row less than a tile and a half": Case(Tiling(16, 32, splits=2, walk=False), (1, 40, 23)),
    "tiles of several matrices": Case(Tiling(16, 32, splits=2, walk=False), (5, 33, 2)),
}
CASES = {
    "rows": {
        "tile": Case(Tiling(2, 64), 45),
        "online": Case(Tiling(2, 16, held=False), 45),
        "shared": Case(Tiling(1, 16, splits=4), 45),
        "shared in blocks": Case(Tiling(1, 16, splits=2, blocks=2), 45),
        "one element of the last block": Case(Tiling(1, 16, blocks=2), 17),
        "all but one": Case(Tiling(1, 16, blocks=5), 79),
        "all of it": Case(Tiling(1, 16, blocks=3), 48),
        "several rows in blocks": Case(Tiling(2, 16, blocks=3), 44),
        "blocks beyond the end": Case(Tiling(1, 16, splits=3, blocks=3), 104),
    },
    "vectors": {
        "blocks": Case(Tiling(1, 16, blocks=3), 40),
        "online": Case(Tiling(2, 16, held=False), 56),
        "no mask": Case(Tiling(1, 16, splits=3, blocks=3), 144),
    },
    "unaligned": {  # from a vector on, with every remainder; below, at and above whole tiles of the online form
        **{f"tile of {n_cols}": Case(Tiling(1, 32), n_cols) for n_cols in (8, 9, 10, 11, 13)},
        "rows": Case(Tiling(4, 8, blocks=5), 33),
        "blocks": Case(Tiling(1, 16, blocks=3), 34),
        "online rows": Case(Tiling(2, 16, held=False), 18),
        **{f"online of {n_cols}": Case(Tiling(1, 16, held=False), n_cols) for n_cols in (15, 33, 41)},
        "shared": Case(Tiling(1, 16, splits=4), 45),
        "shared in blocks": Case(Tiling(1, 16, splits=3, blocks=3), 99),
    },
    "across": SIDE_BY_SIDE,
}
KINDS = [(dtype, form) for form in ("softmax", "log_softmax") for dtype in DTYPES]
NAMES = [(layout, name) for layout in CASES for name in CASES[layout]]


def combined():
    """Cases in turn with each type and form, two for each tiling and direction, of which the second and some more are slow."""
    for turn, ((layout, name), direction) in enumerate((each, way) for each in NAMES for way in DIRECTIONS):
        for number in range(2):
            dtype, form = KINDS[(5 * turn + 7 * number) % len(KINDS)]
            yield pytest.param(layout, name, dtype, direction, form, marks=[pytest.mark.slow] if number else [])


def hostile(x):
    """Fills rows in turn."""
    n_cols, masked = x.shape[1], -INF
    for place, row in enumerate(x):
        row += 100 * (place % 7 - 3)  # neighbours differ by a lot
        kind, col = place % 12, 7 * place % n_cols
        if kind == 1:
            row[col] = NAN
        elif kind == 2:
            row[:] = masked
        elif kind == 3:
            row[-1] = INF
        elif kind == 4:  # the first split of a row, and in the next kind its last one
            row[:16] = masked
        elif kind == 5:
            row[16:] = masked
        elif kind == 6:  # one element is left: anywhere, then the last, then the first
            keep = row[col].clone()
            row[:], row[col] = masked, keep
        elif kind == 7:
            row[:-1] = masked
        elif kind == 8:
            row[1:] = masked
        elif kind == 9:  # the edges of an unaligned row
            row[:4], row[-4:] = masked, masked
        elif kind == 10:
            row[0], row[-1] = NAN, masked
        elif kind == 11:  # any splits and blocks, in a range that not every type holds exactly
            row *= 3e3
            hidden = torch.rand(-(-n_cols // 16), generator=torch.Generator().manual_seed(n_cols)) < 0.5
            row[hidden.repeat_interleave(16)[:n_cols].to(row.device)] = masked


def hostile_gradients(dy):
    """Fills rows of dy in turn: a nan or an inf in any column, or large numbers."""
    for place, row in enumerate(dy):
        col = 7 * place % len(row)
        if place % 5 in (1, 3):
            row[col] = NAN if place % 5 == 1 else INF
        elif place % 5 == 2:
            row *= 100


@pytest.fixture
def run(device, where):
    """Launches a case, compares it with float64, and returns the result; `special` fills the rows."""

    def run(layout, name, dtype, direction, form, special=None):
        tiling, sizes, n_rows = CASES[layout][name]
        skip_what_the_device_lacks(device, layout, tiling)
        special = special or (hostile if direction is forward else hostile_gradients)
        launched, programs, vector = functools.partial(launch, device), 2 * tiling.splits, 16 // dtype.itemsize
        given = form, dtype, where, sizes, tiling, programs
        if layout == "across":
            return beside(direction, device, launched, *given, special)
        if layout == "unaligned":  # with an odd stride, so that rows of every lead follow each other
            return direction(launched, *given, vector, sizes + 3 - sizes % 2, max(n_rows, 12), special)
        return direction(launched, *given, vector if layout == "vectors" else 1, n_rows=max(n_rows, 12), special=special)

    return run


def skip_what_the_device_lacks(device, layout, tiling):
    if device.backend == "interpreter":
        return
    if tiling.blocks > 1 and compiler.triton_version() < (3, 3):
        pytest.skip("this Triton has no tuples of tensors")
    lacks = {
        "unaligned": not device.vendor.aligned_access,
        "across": not device.vendor.scattered_rows,
    }
    if lacks.get(layout):
        pytest.skip(f"{device.backend} has no rows that are {layout}")


@pytest.mark.parametrize(("layout", "name", "dtype", "direction", "form"), list(combined()))
def test_hostile_rows(run, layout, name, dtype, direction, form):
    run(layout, name, dtype, direction, form)


@pytest.mark.parametrize(
    ("layout", "name", "direction"),
    mostly_slow(
        [(*each, way) for each in NAMES for way in DIRECTIONS],
        lambda layout, name, direction: layout != "across" and direction is forward and "," in name,
    ),
)
def test_a_row_does_not_see_the_others(run, layout, name, direction):
    """Its bits are those that it has beside rows that are not finite; a maximum of inf makes the rows of a shared tile late."""

    def broken(x):
        for place in range(0, len(x), 3):
            x[place] = (NAN, 1e4, -INF, INF)[place // 3 % (3 if layout == "across" else 4)]

    def rows_of(special):
        result = run(layout, name, torch.float32, direction, "softmax", special)
        rows = result if result.dim() == 2 else result.transpose(1, 2).reshape(-1, result.shape[1])
        return rows[[place for place in range(len(rows)) if place % 3]]

    assert torch.equal(rows_of(broken), rows_of(as_they_are))


@pytest.mark.parametrize("n_cols", [132, 260, 388, 516, 781, 900, 1025, 1300, 1301, 2056, 2304, 4100, 4224, 8200])
def test_what_is_planned_for_an_h200(device, where, n_cols):
    """With as many rows as if there were thousands of them."""
    profile = Device.from_profile("nvidia/h200")
    for dtype, is_gradient in ((torch.float32, False), (torch.bfloat16, False), (torch.float32, True)):
        planned = choose(read_problem(32768, n_cols, name_of(dtype), profile, backward=is_gradient), profile, light)
        problem = read_problem(5, n_cols, name_of(dtype), profile, backward=is_gradient)
        skip_what_the_device_lacks(device, "unaligned" if problem.unaligned else "rows", planned.tiling)
        given = [rows_in(5, n_cols, n_cols, dtype, where, NAN, seed)[0] for seed in range(1 + is_gradient)]
        result, assert_guards = result_in(5, n_cols, n_cols, dtype, where)
        launch(device, (result, *given), problem, planned.tiling, -(-5 // planned.tiling.tile_rows))
        assert_guards()
        if is_gradient:
            assert_close(result, expected_gradient("softmax", *given), gradient_scale("softmax", *given))
        else:
            assert_close(result, expected("softmax", *given))
