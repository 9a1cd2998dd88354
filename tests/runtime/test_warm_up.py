"""warm_up leaves nothing to plan, to compile or to load for the calls that it is asked for."""

import pytest
import torch

import portable_softmax
from portable_softmax import Device, DtypeError, plan, warm_up
from portable_softmax.runtime import compiled as memory
from portable_softmax.runtime import compiler
from portable_softmax.runtime.plans import plan_problem

SHAPES = [(64, 333), (2, 3, 70), (5,), ()]


@pytest.mark.kernel
def test_a_call_plans_and_compiles_nothing_after_it(where, form):
    plans = warm_up(SHAPES, [torch.float32, "bfloat16"], form=form, backward=True)
    assert len(plans) == len(SHAPES) * 2 * 2
    before = plan_problem.cache_info().misses, len(memory._compiled)
    for shape in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            x = torch.randn(shape, device=where).to(dtype).requires_grad_()
            getattr(portable_softmax, form)(x).sum().backward()
    assert (plan_problem.cache_info().misses, len(memory._compiled)) == before


@pytest.fixture
def loaded(monkeypatch):
    """Collects what is to be loaded, and loads nothing."""
    kernels = []
    monkeypatch.setattr(compiler, "load", kernels.append)
    return kernels


def test_a_device_that_is_not_here_gets_plans_only(loaded):
    h200 = Device.from_profile("nvidia/h200")
    assert warm_up([(4096, 64)], ["float32"], device=h200) == [plan(4096, 64, "float32", h200)]
    assert not loaded


@pytest.mark.parametrize(
    ("shapes", "dtypes", "error", "message"),
    [
        ((4096, 64), ["float32"], ValueError, r"not one shape; give \[\(4096, 64\)\]"),
        ([(4096, 0.5)], ["float32"], ValueError, r"one of them is \(4096, 0.5\)"),
        ([(4096, 0)], ["float32"], ValueError, "must be positive, not 4096 and 0"),
        ([(-2, -3, 64)], ["float32"], ValueError, r"one of them is \(-2, -3, 64\)"),
        ([(10**20, 64)], ["float32"], ValueError, "100000000000000000000 rows of 64 columns are too large"),
        ([(4, 2**31)], ["float32"], ValueError, "a row of 2147483648 elements is too large; rows of up to 2147418112 can be"),
        ([(4096, 64)], "float32", ValueError, "dtypes should be like .*, not 'float32'"),
        ([(4096, 64)], torch.float32, ValueError, "not torch.float32"),
        ([(4096, 64)], ["int8"], DtypeError, "a kernel of int8 was requested"),
    ],
)
def test_what_cannot_be_warmed_up_is_named(shapes, dtypes, error, message):
    with pytest.raises(error, match=message):
        warm_up(shapes, dtypes, device=Device.from_profile("nvidia/h200"))
