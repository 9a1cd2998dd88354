"""Tiles across lines of neighbouring rows, executed and compared with float64."""

import pytest
import torch
from closeness import assert_close, expected, expected_gradient, gradient_scale, terms_of
from direct import GUARD, problem_across
from machine_code import FOREMOST, PRODUCTS, in_virtual_device

from portable_softmax.planning.plan import Tiling

CPU = torch.device("cpu")
ACROSS = {  # tiling, and lines; only the last block of a row is not full
    "tile": (Tiling(16, 64, 2), 50),
    "blocks": (Tiling(16, 32, 4, blocks=3), 90),
    "online": (Tiling(16, 32, 4, held=False), 75),
    "many warps": (Tiling(32, 64, 8), 50),
}
DTYPES = torch.float32, torch.bfloat16, torch.float64


def mostly_slow(cases, is_quick):
    return [pytest.param(*case, marks=[] if is_quick(*case) else pytest.mark.slow) for case in cases]


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "name", "dtype"),
    mostly_slow(
        [
            (arch, name, dtype)
            for arch in PRODUCTS
            for name in ACROSS
            for dtype in (torch.float32, torch.bfloat16, torch.float64)
            if dtype == torch.float32 or arch in FOREMOST
        ],
        lambda arch, name, dtype: dtype == torch.float32 and arch in FOREMOST,
    ),
)
@pytest.mark.parametrize("form", ["softmax", pytest.param("log_softmax", marks=pytest.mark.slow)])
def test_across_lines(arch, name, dtype, form):
    """Three matrices of lines of 40 neighbouring rows; lines and matrices lie apart, and what is between them stays."""
    (tiling, n_cols), inner = ACROSS[name], 40
    frame = torch.full((3, n_cols + 1, inner + 16), GUARD, dtype=dtype)
    x, dy = (torch.randn(3, n_cols, inner, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (0, 1))
    x[0] -= 600
    x[1, 7], x[2, :, 5] = 300, -float("inf")
    run = in_virtual_device(arch)
    y, dx = (frame.clone()[:, :-1, :-16] for _ in range(2))
    run((y, x), problem_across((y, x), form, False), tiling, 3)
    assert_close(y, expected(form, x, 1), terms_of(form))
    known = frame.clone()[:, :-1, :-16].copy_(y.nan_to_num(0, 0, 0))  # as dx lies
    run((dx, dy, known), problem_across((dx, dy, known), form, True), tiling, 3)
    assert_close(dx, expected_gradient(form, dy, known, 1), gradient_scale(form, dy, known, 1))
    for result in (y, dx):
        whole = result._base
        assert (whole[:, -1] == GUARD).all()
        assert (whole[:, :, -16:] == GUARD).all()
