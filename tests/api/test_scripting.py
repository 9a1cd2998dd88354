"""torch.jit.script and torch.fx.symbolic_trace: a call is one node, of the operator."""

import io
import pickle

import pytest
import torch
from pairs import PAIRS

from portable_softmax import LogSoftmax, Softmax, log_softmax, softmax, softmin

pytestmark = [pytest.mark.kernel, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]
MODULES = [(Softmax(1), torch.nn.Softmax(1)), (LogSoftmax(), torch.nn.LogSoftmax(-1))]


@pytest.fixture
def x(where):
    return torch.randn(3, 5, device=where)


@pytest.mark.parametrize(("ours", "theirs"), MODULES, ids=lambda module: type(module).__name__)
def test_scripted_modules(x, ours, theirs):
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Identity(), ours))
    assert [node.kind() for node in scripted.inlined_graph.nodes() if "softmax" in node.kind()] == [
        "portable_softmax::softmax" if isinstance(theirs, torch.nn.Softmax) else "portable_softmax::log_softmax"
    ]
    kept = io.BytesIO()
    torch.jit.save(scripted, kept)
    kept.seek(0)
    for module in (scripted, torch.jit.load(kept)):
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        results = module(leaves[0]), theirs(leaves[1])
        for result in results:
            result.square().sum().backward()
        torch.testing.assert_close(*results)
        torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


def every_form(x: torch.Tensor) -> torch.Tensor:
    return softmax(input=x, dim=0, dtype=torch.float64) + log_softmax(x, 1) + softmin(x)


def test_scripted_functions(x):
    scripted = torch.jit.script(every_form)
    assert str(scripted.graph).count("portable_softmax::") == 3
    torch.testing.assert_close(scripted(x), every_form(x))


@pytest.mark.parametrize(("ours", "theirs"), MODULES, ids=lambda module: type(module).__name__)
def test_symbolic_traces_of_modules(x, ours, theirs):
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Identity(), ours))
    (node,) = [node for node in traced.graph.nodes if "softmax" in node.name]
    assert (node.op, node.target.namespace) == ("call_function", "portable_softmax")
    for module in (traced, pickle.loads(pickle.dumps(traced))):
        torch.testing.assert_close(module(x), theirs(x))


def test_symbolic_traces_of_functions(x, form):
    ours, theirs = PAIRS[form]
    traced = torch.fx.symbolic_trace(lambda x, dim: ours(x * 2, dim, torch.float64))
    assert f"torch.ops.portable_softmax.{form}.default(" in traced.code
    torch.testing.assert_close(traced(x, 0), theirs(x * 2, 0, dtype=torch.float64))
