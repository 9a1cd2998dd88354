"""Calls of the softmax of scores that are like one before: repeated where they may be, and right with other values."""

import pytest
import torch

import portable_softmax
from portable_softmax.operators import bypass, dispatch
from portable_softmax.operators.memory import forget

pytestmark = pytest.mark.kernel
X = torch.Size((2, 3, 8, 40))
GIVEN = {
    "a number": lambda: {"scale": 0.5},
    "two numbers": lambda: {"scale": 0.5, "temperature": 2},
    "rows": lambda: {"temperature": torch.rand(2, 3, 8, 1) + 0.1},
    "a mask": lambda: {"mask": torch.rand(2, 1, 1, 40) > 0.4, "scale": 0.125},
    "an added mask": lambda: {"mask": torch.randn(8, 40), "softcap": 5.0},
    "causal": lambda: {"causal": "lower_right", "masked_rows": "zero"},
    "a sink of each row": lambda: {"sink": torch.randn(2, 3, 8, 1)},
    "a sink of each head": lambda: {"sink": torch.randn(3), "mask": torch.rand(2, 1, 8, 40) > 0.4},
    "a number as sink": lambda: {"sink": 0.5},
    "one temperature for all": lambda: {"temperature": torch.rand(()) + 0.1},
    "temperatures of another type": lambda: {"temperature": torch.rand(2, 1, 8, 1, dtype=torch.float64) + 0.1},
}


@pytest.fixture
def reads(monkeypatch):
    """The arguments that were read and checked, of each call that was not repeated; no call is kept at first."""
    forget()
    calls = []

    def noted(*given, read=dispatch.read):
        calls.append(given)
        return read(*given)

    monkeypatch.setattr(dispatch, "read", noted)
    return calls


def anew(x, monkeypatch, **given):
    with monkeypatch.context() as context:
        context.setattr(bypass, "repeat_of", lambda *_: None)
        return portable_softmax.softmax(x, **given)


@pytest.mark.parametrize("name", GIVEN)
def test_the_second_call_is_not_read_and_takes_its_own_values(where, reads, monkeypatch, name):
    def tensors():
        given = {key: each.to(where) if isinstance(each, torch.Tensor) else each for key, each in GIVEN[name]().items()}
        return torch.randn(X, device=where), given

    for _ in range(3):
        x, given = tensors()
        y = portable_softmax.softmax(x, **given)
        assert len(reads) == 1
        assert y.equal(anew(x, monkeypatch, **given))
        del reads[1:]


@pytest.mark.parametrize("form", ["softmax", "log_softmax"])
@pytest.mark.parametrize("name", GIVEN)
def test_the_second_call_that_autograd_records_has_the_gradient_of_the_first(where, reads, name, form):
    torch.manual_seed(0)
    given = {key: each.to(where) if isinstance(each, torch.Tensor) else each for key, each in GIVEN[name]().items()}
    x, dy = torch.randn(X, device=where, requires_grad=True), torch.randn(X, device=where)
    gradients = []
    for _ in range(3):
        y = getattr(portable_softmax, form)(x, **given)
        gradients += torch.autograd.grad(y, x, dy)
    first, *others = gradients
    assert all(each.equal(first) for each in others)
    assert len(reads) == (3 if "softcap" in given else 1)


@pytest.mark.parametrize("given", [{"scale": 0.5, "causal": True}, {"temperature": torch.tensor([[0.5], [2.0]])}])
def test_derivatives_of_repeated_calls_are_right_twice(where, reads, given):
    given = {key: each.to(where) if isinstance(each, torch.Tensor) else each for key, each in given.items()}
    x = torch.randn(2, 4, device=where, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: portable_softmax.softmax(x, **given), x)
    torch.autograd.gradgradcheck(lambda x: portable_softmax.softmax(x, **given), x)
    assert len(reads) < 5


def test_the_gradient_keeps_the_choice_of_the_forward(where, reads, monkeypatch):
    seen = []
    call_of = bypass.call_of_gradient
    monkeypatch.setattr(bypass, "call_of_gradient", lambda *given: seen.append(given[2]) or call_of(*given))
    x = torch.randn(4, 32, device=where, requires_grad=True)
    for _ in range(2):
        with portable_softmax.batch_invariant():
            y = portable_softmax.softmax(x, scale=0.5)
        y.sum().backward()
    assert seen[0] is True
    assert set(seen) == {True}


OTHERS = {
    "a number": lambda x, t: (x, {"temperature": t, "softcap": 3.0}),
    "the type of the result": lambda x, t: (x, {"temperature": t, "dtype": torch.float64}),
    "one temperature for all": lambda x, t: (x, {"temperature": t[:1]}),
    "strides of x": lambda x, t: (x.t().contiguous().t(), {"temperature": t}),
    "alignment of x": lambda x, t: (torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape), {"temperature": t}),
    "strides of temperatures": lambda x, t: (x, {"temperature": torch.cat((t, t + 1), 1)[:, :1]}),
    "the type of temperatures": lambda x, t: (x, {"temperature": t.double()}),
    "a gradient": lambda x, t: (x.requires_grad_(), {"temperature": t}),
    "a temperature's gradient": lambda x, t: (x, {"temperature": t.requires_grad_()}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_call_that_differs_is_read(where, reads, other):
    x, t = torch.randn(6, 64, device=where), torch.rand(6, 1, device=where) + 0.5
    for _ in range(2):
        portable_softmax.softmax(x, temperature=t)
    assert len(reads) == 1
    x, given = OTHERS[other](x, t)
    y = portable_softmax.softmax(x, **given)
    assert len(reads) == 2
    exact = x.double() / given["temperature"].double()
    cap = given.get("softcap")
    exact = torch.softmax(exact if cap is None else cap * torch.tanh(exact / cap), -1)
    torch.testing.assert_close(y.double(), exact, atol=1e-6, rtol=1e-5)
    assert y.requires_grad == (x.requires_grad or given["temperature"].requires_grad)


def test_a_listener_sees_each_call(where):
    class Listening(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, arguments=(), keywords=None):
            seen.append(operator._schema.name)
            return operator(*arguments, **(keywords or {}))

    seen, x = [], torch.randn(4, 32, device=where)
    portable_softmax.softmax(x, scale=0.5)
    with Listening():
        portable_softmax.softmax(x, scale=0.5)
    assert "portable_softmax::softmax" in seen


def test_a_call_is_read_again_where_it_must_be_batch_invariant(where, reads):
    x = torch.randn(4, 32, device=where)
    for invariant in (False, True, False, True):
        with portable_softmax.batch_invariant(invariant):
            portable_softmax.softmax(x, scale=0.5)
    assert len(reads) == 2
