"""Calls under functorch, forward mode, dispatch modes, hooks, autocast, of subclasses and in threads are right."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from random_calls import in_double, results
from torch.autograd.functional import hessian, jacobian

from portable_softmax import softmax, token_log_probs
from portable_softmax.operators import launch

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]


def close(actual, exact, error=1e-5):
    for ours, double in zip(actual, exact, strict=True):
        torch.testing.assert_close(ours.double(), double.double(), rtol=error, atol=error, equal_nan=True)


def in_both(x, function, options):
    """Yields (an input that needs a gradient, results of it): of x, and in float64 by the reference."""
    for leaf, call in ((x.clone(), results), (x.double(), lambda *arguments, **more: in_double(*arguments, more))):
        yield leaf.requires_grad_(), lambda leaf, call=call: call(function, leaf, -1, **options)


def test_functorch_and_forward_mode(x, cases):
    for case in cases:
        (_, ours), (double, exact) = in_both(x, *case)

        def call(x, ours=ours):
            return ours(x)[0]

        close((torch.func.vmap(call)(torch.stack([x, x + 1])),), (torch.stack([call(x), call(x + 1)]),))
        found, double = [torch.func.jvp(f, (t,), (t,)) for f, t in ((call, x), (lambda x, f=exact: f(x)[0], double.detach()))]
        close(found, double, 1e-4)
        close((torch.func.jacrev(call)(x),), (torch.func.jacfwd(call)(x),), 1e-4)
        close((jacobian(call, x, vectorize=True),), (jacobian(call, x),))


def test_gradients_that_lie_elsewhere(x, cases):
    """Gradients that are negative views, expanded or not contiguous; saved tensors that hooks lay out with gaps."""
    for case in cases:
        like = next(in_both(x, *case))[1](x)[0]
        apart = torch.randn(*like.shape, 2, device=x.device)[..., 0]
        for dy in (torch._neg_view(torch.randn_like(like)), like.new_ones(()).expand(like.shape), apart):
            found = []
            for leaf, call in in_both(x, *case):
                with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: torch.stack([t, t], -1)[..., 0]):
                    ys = [torch.where(y > -1e9, y, 0.0) for y in call(leaf)]
                found.append(torch.autograd.grad(ys, leaf, [dy.to(ys[0].dtype), *ys[1:]])[0])
            close(found[:1], found[1:], 1e-4)
    leaf, zero = x.clone().requires_grad_(), torch._efficientzerotensor(x.shape, device=x.device)
    assert (torch.autograd.grad(softmax(leaf), leaf, zero)[0] == 0).all()
    close((softmax(zero),), (torch.full(x.shape, 0.2),)) if x.is_cpu else None


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


def test_checkpoints_threads_and_second_derivatives(x, ids):
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
    for call in (lambda x: token_log_probs(x, ids).sum(), lambda x: softmax(x, scale=2.0, softcap=1.5).square().sum()):
        close((hessian(call, x),), (hessian(call, x.double()),), 1e-4)
