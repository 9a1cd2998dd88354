"""Derivatives of all orders and of all tensors, of any strides, forward and reverse, and under torch.func."""

from functools import partial

import pytest
import torch
from calls import TWO, Call, names, normal, place
from closeness import assert_close, expected, expected_gradient, gradient_scale
from pairs import PAIRS
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

from portable_softmax import softmax
from portable_softmax.operators.library import operator

__all__ = ["place"]
SHAPE = 2, 3, 4, 5
random = partial(normal, dtype=torch.float64, seed=0)


@pytest.mark.each_value
@pytest.mark.parametrize("ways", [(), *TWO[::6]], ids=names)
def test_derivatives(by_torch, form, ways):
    """Derivatives of all tensors, in reverse and forward mode, twice."""
    call = Call(form, SHAPE, ways=ways)
    given = {
        name: each.double() if isinstance(each, torch.Tensor) and each.is_floating_point() else each
        for name, each in call.options().items()
    }
    leaves = {"input": random(*SHAPE)} | {
        name: each for name, each in given.items() if isinstance(each, torch.Tensor) and each.is_floating_point()
    }
    if "mask" in leaves:
        leaves["mask"] = leaves["mask"].clip(-3)  # finite ones have differences
    if "temperature" in leaves:  # greedy rows have none, and those of large ones are 0
        t = leaves["temperature"]
        leaves["temperature"] = torch.where((t.abs() < 0.1) | (t.abs() > 9), 1.5, t)
    leaves = {name: each.detach().clone().requires_grad_() for name, each in leaves.items()}
    others = {name: each for name, each in given.items() if name not in leaves}

    def computed(*tensors):
        y = call.ours(**dict(zip(leaves, tensors, strict=True)), **others)
        return y.clip(min=-1e6)  # of a logarithm's -inf there is no difference

    checks = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": True}
    assert torch.autograd.gradcheck(computed, tuple(leaves.values()), **checks)
    assert torch.autograd.gradgradcheck(computed, tuple(leaves.values()), fast_mode=True)


@pytest.mark.kernel
@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 17), ()], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_derivatives_by_the_kernel(where, form, shape, dim):
    leaf = random(*shape).to(where).requires_grad_()
    fast = dim == 0 or len(shape) > 2  # the slow way takes one launch per element and direction
    checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True, "fast_mode": fast}
    assert torch.autograd.gradcheck(lambda x: PAIRS[form][0](x, dim), leaf, **checks)
    assert torch.autograd.gradgradcheck(lambda x: PAIRS[form][0](x, dim), leaf, check_fwd_over_rev=True, fast_mode=fast)


GRADIENTS = {
    "one number": lambda rows, cols: torch.ones(()).expand(rows, cols),
    "transposed": lambda rows, cols: torch.randn(cols, rows).t(),
    "every second": lambda rows, cols: torch.randn(rows, 2 * cols)[:, ::2],
    "one row": lambda rows, cols: torch.randn(cols).expand(rows, cols),
    "unaligned": lambda rows, cols: torch.randn(rows, cols + 1)[:, 1:],
}


@pytest.mark.kernel
@pytest.mark.pairwise
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("n_cols", [70, 70_000], ids=["tile", "online"])
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_any_strides(where, form, name, n_cols, dim):
    torch.manual_seed(1)
    x, dy = torch.randn(3, n_cols).to(where).requires_grad_(), GRADIENTS[name](3, n_cols).to(where)
    y = PAIRS[form][0](x, dim)
    y.backward(dy)
    assert_close(x.grad, expected_gradient(form, dy, y.detach(), dim), gradient_scale(form, dy, y.detach(), dim))


@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gradient_of_an_output_that_lies_otherwise_than_it(where, dtype):
    """The operator is given any output; autograd's own are contiguous, as the gradient is."""
    dy, y = (random(6, 40, seed=seed).to(where).to(dtype) for seed in (1, 2))
    padded, transposed = y.new_empty(6, 48)[:, :40], y.new_empty(40, 6).t()
    for other in (padded.copy_(y), transposed.copy_(y), y[:1].expand(6, 40)):
        dx = torch.ops.portable_softmax.softmax_backward(dy, other, 1, dtype)
        assert dx.is_contiguous()
        assert_close(dx, expected_gradient("softmax", dy, other), gradient_scale("softmax", dy, other))


def test_only_what_gradients_need_is_saved(place, form):
    def saved(**given):
        kept = []
        leaf = random(*SHAPE).to(place).requires_grad_()
        given = {name: each.to(place) if isinstance(each, torch.Tensor) else each for name, each in given.items()}
        with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.shape) or each, lambda each: each):
            PAIRS[form][0](leaf, **given)
        return kept

    assert saved() == saved(scale=0.5, causal=True, mask=random(4, 5) > 0, sink=random(3)) == [SHAPE]
    assert saved(temperature=random(4, 1).expand(3, 4, 1)) == [SHAPE, SHAPE[:3]]
    assert saved(softcap=2.0) == [SHAPE, SHAPE]


TRANSFORMS = {
    "grad": grad,
    "hessian": hessian,
    "jacrev": jacrev,
    "jacfwd": jacfwd,
    "grad of grad": lambda f: lambda x, *more: grad(lambda x: grad(f)(x, *more).pow(2).sum())(x),
    "vmap": lambda f: vmap(f),
    "vmap of grad": lambda f: vmap(grad(f)),
    "jvp of jvp": lambda f: lambda x, *more: jvp(lambda x: jvp(lambda x: f(x, *more), (x,), (x * 2,))[1], (x,), (x * 3,)),
    "jvp of grad": lambda f: lambda x, *more: jvp(lambda x: grad(f)(x, *more), (x,), (x * 3,)),
    "grad of sinks": lambda f: grad(f, argnums=1),
    "jacrev of scales": lambda f: jacrev(f, argnums=2),
    "jacfwd of scales": lambda f: jacfwd(f, argnums=2),
    "vmap of grad of scales": lambda f: vmap(grad(f, argnums=2), in_dims=(None, 0, 0)),
}


ON_X = [name for name in TRANSFORMS if not name.endswith(("sinks", "scales"))]


@pytest.mark.each_value
@pytest.mark.parametrize(("name", "scored"), [*((each, True) for each in TRANSFORMS), *((each, False) for each in ON_X)])
def test_transforms(place, form, name, scored):
    arguments = random(3, 5).to(place), random(3, 1).to(place), random(3, 1, seed=7).to(place)
    weights = torch.arange(5.0, device=place)

    def weighted(function):
        if not scored:
            return lambda x, *_: (function(x) * weights).sum()
        return lambda x, sink, scale: (function(x, sink=sink, scale=scale, softcap=3.0) * weights).sum()

    ours = TRANSFORMS[name](weighted(PAIRS[form][0]))(*arguments)
    theirs = TRANSFORMS[name](weighted(lambda x, **given: expected(form, x, **given)))(*arguments)
    torch.testing.assert_close(ours, theirs)


def test_vmap_over_each_argument(place):
    def computed(x, temperature, sink, mask):
        return softmax(x, temperature=temperature, sink=sink, mask=mask, masked_rows="zero")

    whole = [each.to(place) for each in (random(3, 4, 5), random(3, 4, 1), random(3, 4, 1), random(3, 4, 5) > -1)]
    for in_dims in ((0, None, None, None), (0, 0, 0, 0), (None, 0, None, None), (None, None, 0, 0), (None, None, None, 2)):
        given = [each[0] if at is None else each.movedim(0, at) for each, at in zip(whole, in_dims, strict=True)]
        alone = [
            computed(*(each if at is None else each.select(at, n) for each, at in zip(given, in_dims, strict=True)))
            for n in range(3)
        ]
        torch.testing.assert_close(vmap(computed, in_dims)(*given), torch.stack(alone))


@pytest.mark.kernel
def test_vmap_of_numbers_and_of_gradients(where, form):
    x = random(3, 5).to(where)
    ours, theirs = PAIRS[form]
    torch.testing.assert_close(vmap(lambda x: ours(x, 0))(x[0]), vmap(lambda x: theirs(x, 0))(x[0]))
    torch.testing.assert_close(vmap(lambda x: ours(x, 0), in_dims=1)(x), vmap(lambda x: theirs(x, 0), in_dims=1)(x))
    y, backward = torch.softmax(x[0], 0), operator(f"{form}_backward")
    for each, of in ((x, y), (x[0], y[0])):
        batched = vmap(lambda dy, of=of: backward(dy, of, 0, torch.float64))(each)
        torch.testing.assert_close(batched, torch.stack([backward(dy, of, 0, torch.float64) for dy in each]))


@pytest.mark.kernel
def test_the_direct_path_records_the_gradient_of_the_operator(where, form):
    """The first gradient, that of a repeated call, and their own gradients, though `dy` may lie otherwise."""
    x, weights = random(3, 5).to(where), random(5, 3, seed=1).to(where).t()
    leaves = [x.clone().requires_grad_() for _ in range(3)]
    results = [operator(form)(leaves[0], 0), *(PAIRS[form][0](leaf, 0) for leaf in leaves[1:])]
    given = list(zip(results, leaves, strict=True))
    assert len({tuple(torch.autograd.grad(y, x, weights, retain_graph=True)[0].flatten().tolist()) for y, x in given}) == 1
    first = [torch.autograd.grad(y, leaf, weights, create_graph=True)[0] for y, leaf in given]
    second = [torch.autograd.grad(dx.square().sum(), leaf)[0] for dx, leaf in zip(first, leaves, strict=True)]
    for each in (first, second):
        assert torch.equal(each[0], each[1])
        assert torch.equal(each[0], each[2])
