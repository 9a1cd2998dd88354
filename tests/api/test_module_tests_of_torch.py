"""The module tests that torch's test_nn generates for softmax, as they are, under override_aten; eager and compiled."""

import pytest
import torch
from sweep import mostly_slow
from torch.testing._internal.common_nn import NewModuleTest, NNTestCase, get_new_module_tests

from portable_softmax import override_aten
from portable_softmax.operators import aten

pytestmark = [pytest.mark.kernel, pytest.mark.filterwarnings("ignore")]
THEIRS = {test["fullname"]: test for test in get_new_module_tests() if "softmax" in test.get("fullname", "")}
CASES = [(name, compiled) for name in THEIRS for compiled in (False, True)]
QUICK = {("log_softmax_lastdim", False), ("softmax_spatial", True)}


class Case(NNTestCase):
    """A test case with the methods that module tests ask of test_nn's."""

    compiled = False

    def _forward(self, module, given):
        given = given if isinstance(given, tuple) else (given,)
        return (torch.compile(module, backend="aot_eager", dynamic=True) if self.compiled else module)(*given)

    def _backward(self, module, given, output, grad_output, create_graph=False):
        output.backward(grad_output, retain_graph=True, create_graph=create_graph)
        return tuple(each.grad for each in given) if isinstance(given, tuple) else given.grad

    def _get_parameters(self, module):
        return [], []

    def _zero_grad_parameters(self, module):
        pass


@pytest.fixture
def computed(monkeypatch):
    """The functions of this package that were called."""
    names = []
    for name in ("forward", "backward"):
        ours = getattr(aten, name)
        monkeypatch.setattr(aten, name, lambda *given, name=name, ours=ours: names.append(name) or ours(*given))
    return names


@pytest.mark.parametrize(("name", "compiled"), mostly_slow(CASES, lambda *case: case in QUICK))
def test_module_tests_pass(where, computed, name, compiled):
    of_graphs = {"check_gradgrad": False, "check_batched_grad": False} if compiled else {}  # no second derivatives of graphs
    case, test = Case(), NewModuleTest(**THEIRS[name] | of_graphs)
    case.compiled = compiled
    torch._dynamo.reset()
    with override_aten():
        test(case)
        if where.type == "cuda":
            test.test_cuda(case)
    assert set(computed) == {"forward", "backward"}


def test_there_are_such_tests():
    assert len(THEIRS) >= 14
