"""override_aten: torch's own operators come to this package's kernels; what no launch computes stays, and all is restored."""

import ast
import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from calls import recording

from portable_softmax import batch_invariant, override_aten, softmax
from portable_softmax.operators import launch

pytest.importorskip("torch", minversion="2.9", reason="override_aten() refuses older ones")
pytestmark = pytest.mark.kernel
NAMES = "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"


@pytest.fixture
def launched():
    """Whether launches are backward, in their order; returned and forgotten by a call."""
    problems = []
    with recording(problems):
        yield lambda: [problems.pop(0)[0].backward for _ in range(len(problems))]
    launch.calls.clear()


def test_calls_are_launched_and_restored(x, launched):
    plain, before = x.softmax(-1), {name: torch._C._dispatch_dump_table(f"aten::{name}") for name in NAMES}
    with override_aten():
        torch.testing.assert_close(x.softmax(-1), plain)
        leaf = x.clone().requires_grad_()
        torch.nn.functional.log_softmax(leaf, 0).square().sum().backward()
        assert launched() == [False, False, True]
        torch.nn.functional.cross_entropy(x[0], torch.tensor([0, 1, 2], device=x.device))
        torch.testing.assert_close(x.half().softmax(-1, dtype=torch.float32), x.half().float().softmax(-1))
        assert launched() == [False] * 3
        compiled = torch.compile(lambda x: x.softmax(-1) * 2, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), plain * 2)
        assert launched() == [False]
        torch.testing.assert_close(softmax(x, scale=2.0), softmax(x * 2))
    launched()
    assert torch.equal(x.softmax(-1), plain)
    assert not launched()
    assert {name: torch._C._dispatch_dump_table(f"aten::{name}") for name in NAMES} == before


def test_what_no_launch_computes_is_torchs(x, launched):
    double, expected = x.double().requires_grad_(), x.double().softmax(-1)
    with override_aten():
        assert torch.equal(double.softmax(-1), expected)
        assert torch.autograd.gradgradcheck(lambda x: x.softmax(-1), (double,))
        torch.tensor(3.0, device=x.device).softmax(0)
        with pytest.raises(IndexError):
            x.softmax(5)
        assert not launched()
        torch.func.vmap(torch.func.grad(lambda x: x.softmax(-1).square().sum()))(x)
        torch.func.jvp(lambda x: x.softmax(-1), (x,), (x,))


def test_one_at_a_time_ended_once(x):
    with pytest.raises(RuntimeError, match="is active already"), override_aten() as override:
        override_aten()
    override.end()
    with override_aten():
        pass
    with pytest.raises(ValueError, match="'nan' or 'zero'"):
        override_aten(masked_rows="one")


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("result", [None, torch.float32, torch.float64])
def test_rows_that_are_masked_completely_may_be_0(where, dtype, result, log):
    """Of any type, whether a kernel computes them or not."""
    leaf = torch.randn(4, 5, device=where, dtype=dtype)
    leaf[1], leaf[2, 1:3], leaf[3, 0] = -torch.inf, -torch.inf, torch.nan
    leaf.requires_grad_()
    with override_aten(masked_rows="zero"):
        y = (torch.log_softmax if log else torch.softmax)(leaf, -1, dtype=result)
        (gradient,) = torch.autograd.grad(y, leaf, torch.randn_like(y))
    plain = (torch.log_softmax if log else torch.softmax)(leaf, -1, dtype=result)
    assert (y[1] == (-torch.inf if log else 0)).all()
    assert (gradient[1] == 0).all()
    torch.testing.assert_close(y[[0, 2, 3]], plain[[0, 2, 3]], rtol=2e-2, atol=2e-2, equal_nan=True)
    assert gradient[0].any()


def test_each_use_overrides_and_ends(x, launched):
    """Decorated functions, in threads and in themselves, and blocks one after another and in each other."""
    override = override_aten()
    override.end()

    @override
    def twice(depth=1):
        return (twice(depth - 1) if depth else x).softmax(-1)

    for _ in range(2):
        x.softmax(-1)
        assert not launched()
        twice()
        assert len(launched()) == 2
        with override, override:
            x.softmax(-1)
        assert len(launched()) == 1
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: twice(), range(12)))
    assert len(launched()) == 24
    x.softmax(-1)
    assert not launched()


@pytest.mark.parametrize("function", [ast.walk, asyncio.sleep, torch.nn.Linear])
@pytest.mark.parametrize("context", [override_aten, batch_invariant])
def test_functions_that_run_when_a_context_has_ended_are_not_decorated(function, context):
    with pytest.raises(TypeError, match="must compute when it is called"):
        context()(function)
    context()(lambda: None)()  # the refused one has ended
