"""Calls under functorch, forward mode, dispatch modes, hooks, autocast, of subclasses and in threads are right."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from random_calls import in_double, results
from torch.autograd.functional import jacobian

from portable_softmax import softmax, token_log_probs
from portable_softmax.operators import launch

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]
NAMES = "softmax", "log_softmax", "log_probs"


@pytest.fixture
def cases(where):
    """(function, options) of each function: plain, and with options of each kind."""
    rows, sink = torch.rand(2, 3, 1, device=where) + 0.5, torch.randn(3, 1, device=where)
    seen, bias = torch.rand(3, 5, device=where) < 0.7, torch.randn(3, 5, device=where)
    ids = torch.tensor([[0, 4, -100], [1, 2, 3]], device=where)
    scores = [
        {}, {"mask": seen}, {"mask": bias, "scale": 2.0}, {"scale": rows, "softcap": 1.5}, {"temperature": rows},
        {"sink": sink, "causal": "lower_right"}, {"temperature": 0.5, "masked_rows": "zero", "mask": seen},
        {"temperature": 0.0},
    ]  # fmt: skip
    of_tokens = [{}, {"temperature": rows, "entropy": True}, {"softcap": 2.0, "return_lse": True}]
    return [(name, options) for name in NAMES[:2] for options in scores] + [
        ("log_probs", {"ids": ids, **options}) for options in of_tokens
    ]


@pytest.fixture
def x(where):
    return torch.randn(2, 3, 5, device=where)


def close(actual, exact, error=1e-5):
    for ours, double in zip(actual, exact, strict=True):
        torch.testing.assert_close(ours.double(), double.double(), rtol=error, atol=error, equal_nan=True)


def test_functorch_and_forward_mode(x, cases):
    for function, options in cases:

        def call(x, function=function, options=options):
            return results(function, x, -1, **options)[0]

        both = torch.stack([x, x + 1])
        close((torch.func.vmap(call)(both),), (torch.stack([call(x), call(x + 1)]),))
        value, tangent = torch.func.jvp(call, (x,), (x,))
        double = torch.func.jvp(lambda x, f=function, o=options: in_double(f, x, -1, o)[0], (x.double(),), (x.double(),))
        close((value, tangent), double, 1e-4)
        close((torch.func.jacrev(call)(x),), (torch.func.jacfwd(call)(x),), 1e-4)
        close((jacobian(call, x, vectorize=True),), (jacobian(call, x),))


def test_gradients_of_unusual_tensors(x, cases):
    """Gradients that are negative views, zero tensors, expanded or not contiguous."""
    for function, options in cases:
        like = results(function, x, -1, **options)[0]
        apart = torch.randn(*like.shape, 2, device=x.device)[..., 0]
        for dy in (torch._neg_view(torch.randn_like(like)), like.new_ones(()).expand(like.shape), apart):
            found = []
            for leaf in (x.clone().requires_grad_(), x.double().requires_grad_()):
                ours = leaf.dtype is torch.float32
                y = (results(function, leaf, -1, **options) if ours else in_double(function, leaf, -1, options))[0]
                found.append(torch.autograd.grad(torch.where(y > -1e9, y, 0.0), leaf, dy.to(y.dtype))[0])
            close(found[:1], found[1:], 1e-4)
    leaf = x.clone().requires_grad_()
    zero = torch._efficientzerotensor(x.shape, device=x.device)
    assert (torch.autograd.grad(softmax(leaf), leaf, zero)[0] == 0).all()
    close((softmax(zero),), (torch.full(x.shape, 0.2),)) if x.is_cpu else None


def test_saved_tensors_that_hooks_lay_out_elsewhere(x, cases):
    for function, options in cases:
        found = []
        for leaf in (x.clone().requires_grad_(), x.double().requires_grad_()):
            double = leaf.dtype is torch.float64
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: torch.stack([t, t], -1)[..., 0]):
                ys = in_double(function, leaf, -1, options) if double else results(function, leaf, -1, **options)
            found += torch.autograd.grad(sum(torch.where(y > -1e9, y, 0.0).double().square().sum() for y in ys), leaf)
        close(found[:1], found[1:], 1e-4)


def test_types_of_tensors(x):
    class Sub(torch.Tensor):
        pass

    assert type(softmax(x.as_subclass(Sub))) is Sub
    assert softmax(torch.nn.Parameter(x)).requires_grad
    assert softmax(x.to("meta"), scale=2.0).is_meta
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        assert softmax(torch.empty(3, 4)).shape == (3, 4)
    softmax(torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged), -1)
    with torch.inference_mode():
        close((softmax(x),), (x.softmax(-1),))
    with torch.device("meta"):
        close((softmax(x),), (x.softmax(-1),))
    traced = torch.jit.trace(lambda x: softmax(x, scale=2.0), (x,))
    close((traced(x + 1),), (((x + 1) * 2).softmax(-1),))


def test_checkpoints_threads_and_second_derivatives(x):
    leaf = x.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(lambda x: softmax(x, scale=2.0), leaf, use_reentrant=False)[0].sum().backward()

    def work(at):
        leaf = torch.randn(3, 4 + at % 3, device=x.device).requires_grad_()
        y = softmax(leaf, scale=2.0)
        y.square().sum().backward()
        close((y,), ((leaf * 2).softmax(-1),))

    launch.calls.clear()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(24)))
    ids = torch.tensor([[0, 4, -100], [1, 2, 3]], device=x.device)
    for call in (lambda x: token_log_probs(x, ids).sum(), lambda x: softmax(x, scale=2.0, softcap=1.5).square().sum()):
        pair = [torch.func.hessian(call)(t) for t in (x, x.double())]
        close(pair[:1], pair[1:], 1e-4)
        pair = [torch.autograd.functional.hessian(call, t) for t in (x, x.double())]
        close(pair[:1], pair[1:], 1e-4)
