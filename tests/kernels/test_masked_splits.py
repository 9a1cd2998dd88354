"""Rows of which random splits are masked, far from 0, in every strategy and type: nan where torch has nan, and nowhere else."""

import functools
from dataclasses import replace

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale
from direct import INF, NAN, launch, problem_of, result_in, rows_in
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sweep import mostly_slow
from tilings import CASES, TILINGS, WIDTH, sign_of

pytestmark = pytest.mark.kernel
FEW = settings(
    max_examples=3,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@st.composite
def masks(draw, n_cols):
    """Columns [n_cols] that are masked: any blocks of WIDTH, all columns up to one or from one on, or all but one."""
    kept = torch.tensor(draw(st.lists(st.booleans(), min_size=-(-n_cols // WIDTH), max_size=-(-n_cols // WIDTH))))
    mask = ~kept.repeat_interleave(WIDTH)[:n_cols]
    kind, col = draw(st.sampled_from(("blocks", "first", "last", "all but one"))), draw(st.integers(0, n_cols - 1))
    if kind == "first":
        mask[:col] = True
    elif kind == "last":
        mask[col:] = True
    elif kind == "all but one":
        mask[:] = True
        mask[col] = False
    return mask


@st.composite
def rows(draw, n_cols):
    """[(mask, maximum, range of the others)]; float16 has no larger number than 65504."""
    peaks = st.one_of(st.floats(-1e4, 1e4), st.sampled_from((-1e4, -88.8, -0.0, 88.8, 1e4, -65504.0, 65504.0)))
    return draw(st.lists(st.tuples(masks(n_cols), peaks, st.sampled_from((0.0, 1.0, 30.0, 1e4))), min_size=2, max_size=2))


def filled(x, given, form):
    """The rows x, with their maxima (minima for softmin) and masks."""
    sign = sign_of(form)
    for row, (mask, peak, spread) in zip(x, given, strict=True):
        values = (peak - spread * torch.rand(row.shape, generator=torch.Generator().manual_seed(len(mask)))).clamp(
            -65504, 65504
        )
        row.copy_((sign * values).to(row.device))
        row[mask.to(row.device)] = -sign * INF
    return x


@pytest.fixture
def run(device):
    return functools.partial(launch, device)


def both(run, where, form, dtype, n_cols, tiling, stride, vector, unaligned, given):
    """The softmax, and the gradient of that result."""
    x, _ = rows_in(2, n_cols, stride, dtype, where, NAN)
    filled(x, given, form)
    y, assert_guards = result_in(2, n_cols, stride, dtype, where)
    run((y, x), problem_of((y, x), form, False, vector, unaligned), tiling, 2 * tiling.splits)
    assert_guards()
    exact = expected(form, x)
    assert torch.equal(
        y.isnan(), (torch.log_softmax if form == "log_softmax" else torch.softmax)(sign_of(form) * x, -1).isnan()
    )
    assert_close(y, exact, x.double().abs().nan_to_num(0, 0, 0).amax(-1, keepdim=True) if form == "log_softmax" else 0.0)
    dy, _ = rows_in(2, n_cols, stride, dtype, where, NAN, 1)
    dx, assert_guards = result_in(2, n_cols, stride, dtype, where)
    run((dx, dy, y), problem_of((dx, dy, y), form, True, vector, unaligned), tiling, 2 * tiling.splits)
    assert_guards()
    assert_close(dx, expected_gradient(form, dy, y), gradient_scale(form, dy, y))


@pytest.mark.each_value
@pytest.mark.parametrize(("name", "dtype"), CASES, ids=str)
def test_masks(run, where, form, name, dtype):
    @FEW
    @given(rows(45))
    def check(given):
        both(run, where, form, dtype, 45, TILINGS[name], 45, 1, False, given)

    check()


@pytest.mark.parametrize("name", mostly_slow(["blocks", "online", "shared", "shared blocks"], lambda name: name != "shared"))
def test_masks_of_unaligned_rows(device, run, where, name):
    if device.backend != "interpreter" and not device.vendor.aligned_access:
        pytest.skip(f"{device.backend} has no unaligned rows")
    tiling = replace(TILINGS[name], tile_rows=1)

    @FEW
    @given(rows(45), st.sampled_from(("softmax", "log_softmax", "softmin")))
    def check(given, form):
        both(run, where, form, torch.float32, 45, tiling, 47, 4, True, given)

    check()
