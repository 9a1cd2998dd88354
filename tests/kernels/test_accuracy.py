"""Errors over the whole range of exponents, in units in the last place."""

from decimal import Decimal, localcontext

import pytest
import torch
import triton
import triton.language as tl
from direct import launch, problem_of, result_in
from tilings import CASES, TILINGS

from portable_softmax.kernels.common import exp
from portable_softmax.kernels.config import KernelConfig, constexpr_of

pytestmark = pytest.mark.kernel
N_COLS = 45
RANGE = {torch.float16: 8.0, torch.bfloat16: 80.0, torch.float32: 80.0}


@triton.jit
def _exps(y_ptr, x_ptr, N: tl.constexpr, C: tl.constexpr):
    place = tl.arange(0, N)
    tl.store(y_ptr + place, exp(tl.load(x_ptr + place), C))


def exp_of(x, exact=True):
    y = torch.empty_like(x)
    _exps[(1,)](y, x, len(x), constexpr_of(KernelConfig(EXACT=exact)))
    return y


def decimals(values):
    return [Decimal(value) for value in values.double().tolist()]


def exact_softmax(row, form):
    """Computes the softmax of a row of any type to 40 digits."""
    with localcontext() as context:
        context.prec = 40
        exps = [value.exp() for value in decimals(row)]
        total = sum(exps)
        return [(e / total).ln() if form == "log_softmax" else e / total for e in exps]


def units(results, exact, eps, least=Decimal(0)):
    """The errors of a row, in units of eps of the exact values, or of `least`."""
    errors = zip(decimals(results), exact, strict=True)
    return torch.tensor([float(abs(result - value) / max(abs(value), least)) for result, value in errors]).double() / eps


def spread(dtype):
    """Two rows that take the whole range, with 16 bits behind the point: differences from the maximum are not rounded."""
    places = -torch.randint(0, int(RANGE[dtype] * 2**16), (2, N_COLS), generator=torch.Generator().manual_seed(1)).double()
    places[:, 7] = 0.0
    return (places / 2**16 + 3.25).to(dtype)


@pytest.mark.parametrize("exact", [True, False])
def test_exponentials_of_float32(where, exact):
    x = torch.linspace(-80, 0, 1024, device=where)
    worst = units(exp_of(x, exact), [value.exp() for value in decimals(x)], 2.0**-23)
    allowed = x.cpu().double().abs() * (not exact) + 2
    assert (worst <= allowed).all(), f"{(worst / allowed).max():.2f} of what is allowed"


@pytest.mark.parametrize("exact", [True, False])
def test_ends_of_the_range(where, exact):
    x = torch.tensor([0.0, -1e4, -float("inf"), float("nan")], device=where)
    assert exp_of(x, exact).nan_to_num(nan=-1.0).tolist() == [1.0, 0.0, 0.0, -1.0]


@pytest.mark.pairwise
@pytest.mark.parametrize(("name", "dtype"), [case for case in CASES if case[1].itemsize > 2], ids=str)
def test_as_exact_as_the_type(device, where, form, name, dtype):
    x, tiling = spread(dtype).to(where), TILINGS[name]
    y, assert_guards = result_in(2, N_COLS, N_COLS, dtype, where)
    launch(device, (y, x), problem_of((y, x), form, False), tiling, 2 * tiling.splits)
    assert_guards()
    least = Decimal(form == "log_softmax")  # the logarithm of a sum near 1 is only as exact as the sum
    for row, result in zip(x.cpu(), y, strict=True):
        worst = units(result, exact_softmax(row, form), torch.finfo(dtype).eps, least).max()
        assert worst <= 4, f"{worst:.2f} units"


@pytest.mark.pairwise
@pytest.mark.parametrize(("name", "dtype"), [case for case in CASES if case[1].itemsize == 2], ids=str)
def test_results_of_16_bits_are_rounded_once(device, where, form, name, dtype):
    """So almost all are the nearest of the type, and the others, next to the middle between two, its neighbour."""
    x, tiling = spread(dtype).to(where), TILINGS[name]
    y, assert_guards = result_in(2, N_COLS, N_COLS, dtype, where)
    launch(device, (y, x), problem_of((y, x), form, False), tiling, 2 * tiling.splits)
    assert_guards()
    exact = torch.tensor([[float(value) for value in exact_softmax(row, form)] for row in x], dtype=torch.float64)
    apart = (y.cpu().view(torch.int16).int() - exact.to(dtype).view(torch.int16).int()).abs()
    assert apart.max() <= 1
    assert (apart == 0).float().mean() >= 0.97
