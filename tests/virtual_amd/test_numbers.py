"""The machine code of each architecture, strategy, type and direction, executed and compared with float64."""

import pytest
import torch
from direct import as_they_are, backward, forward
from machine_code import CASES, CPU, FOREMOST, PRODUCTS, compare, in_virtual_device, spikes

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.reading import in_pairs as pairs_of

CASES_OF_ALL = [(arch, name) for arch in PRODUCTS for name in CASES]
TURNS = [case for at, case in enumerate(CASES_OF_ALL) if case[0] in FOREMOST or at % 3 == 0]
STRATEGIES = {"rows", "pieces", "ragged", "shared", "online"}  # a case of each


def is_quick(arch, name):
    """All cases of one architecture, those of each strategy of another, and the rows of the others."""
    return arch == "gfx942" or (arch in FOREMOST and name in STRATEGIES) or name == "rows"


def mostly_slow(cases, arch, nth):
    """All cases; slow, but for those of each strategy on one architecture, and every nth of the others."""
    return [
        pytest.param(
            *case,
            marks=[] if index % nth == 0 or (case[0] == arch and case[1] in STRATEGIES) else pytest.mark.slow,
            id=" ".join(map(str, case)),
        )
        for index, case in enumerate(cases)
    ]


@pytest.fixture(params=[forward, backward])
def direction(request):
    return request.param


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "name"),
    [pytest.param(*case, marks=[] if is_quick(*case) else pytest.mark.slow) for case in CASES_OF_ALL],
)
def test_rows_that_are_masked_or_not_finite(arch, name, direction):
    compare(direction, in_virtual_device(arch), name, n_rows=5)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "name", "dtype"),
    mostly_slow([(*case, dtype) for dtype in (torch.float16, torch.bfloat16) for case in TURNS], "gfx942", 29),
)
def test_narrow_types(arch, name, dtype, direction):
    compare(direction, in_virtual_device(arch), name, dtype=dtype, special=as_they_are)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "name", "form"),
    mostly_slow([(*case, form) for form in ("log_softmax", "softmin") for case in TURNS], "gfx1100", 37),
)
def test_forms(arch, name, form, direction):
    compare(direction, in_virtual_device(arch), name, form=form, special=as_they_are)


@pytest.mark.each_value
@pytest.mark.parametrize("n_rows", [6, 7])
@pytest.mark.parametrize("arch", [pytest.param(arch, marks=[] if arch in FOREMOST else pytest.mark.slow) for arch in PRODUCTS])
def test_gradients_of_rows_in_pairs(arch, n_rows):
    run = in_virtual_device(arch)

    def in_pairs(operands, problem, tiling, programs):
        run(operands, pairs_of(problem), tiling, programs)

    for tiling in (Tiling("tile", 2, 64, 1), Tiling("tile", 2, 48, 1, pieces=3)):
        backward(in_pairs, "softmax", torch.bfloat16, CPU, 21, tiling, 2, n_rows=n_rows)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("arch", "name"),
    [
        pytest.param(arch, name, marks=[] if arch in FOREMOST or name == "rows" else pytest.mark.slow)
        for arch in PRODUCTS
        for name in ("rows", "ragged", "shared")
    ],
)
def test_a_spike_in_every_lane_of_negative_rows(arch, name, direction):
    compare(direction, in_virtual_device(arch), name, special=spikes, n_rows=64 if name == "rows" else 8)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "name"), TURNS)
def test_more_spikes(arch, name, direction):
    compare(direction, in_virtual_device(arch), name, special=spikes, n_rows=128)
