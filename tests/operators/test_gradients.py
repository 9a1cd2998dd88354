"""Gradients: of any strides and types, twice, forward, and under torch.func."""

import pytest
import torch
from closeness import assert_close, expected_gradient, gradient_scale
from pairs import PAIRS
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

pytestmark = pytest.mark.kernel


@pytest.fixture
def x(where):
    return torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(where)


@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 17), ()], ids=str)
@pytest.mark.parametrize("dim", [0, -1])
def test_gradients(where, form, shape, dim):
    ours = PAIRS[form][0]
    leaf = torch.randn(shape, dtype=torch.float64, device=where, requires_grad=True)
    fast = dim == 0 or len(shape) > 2  # the slow way takes one launch per element and direction
    check = {"check_forward_ad": True, "check_batched_grad": True}
    assert torch.autograd.gradcheck(lambda x: ours(x, dim), leaf, **check, check_batched_forward_grad=True, fast_mode=fast)
    assert torch.autograd.gradgradcheck(lambda x: ours(x, dim), leaf, check_fwd_over_rev=True, fast_mode=fast)


@pytest.mark.pairwise
@pytest.mark.parametrize(
    "gradient",
    [
        lambda y: torch.ones((), device=y.device, dtype=y.dtype).expand(y.shape),
        lambda y: torch.randn(y.shape[::-1], device=y.device).to(y.dtype).t(),
        lambda y: torch.randn(y.shape[0], 2 * y.shape[1], device=y.device).to(y.dtype)[:, ::2],
        lambda y: torch.randn(y.shape[1], device=y.device).to(y.dtype).expand(y.shape),
        lambda y: torch.randn(y.shape[0], y.shape[1] + 1, device=y.device).to(y.dtype)[:, 1:],
    ],
    ids=["one number", "transposed", "every second", "one row", "unaligned"],
)
@pytest.mark.parametrize("n_cols", [70, 70000], ids=["tile", "online"])
@pytest.mark.parametrize("dim", [0, 1])
def test_gradients_of_any_strides(where, form, gradient, n_cols, dim):
    ours, theirs = PAIRS[form]
    leaves = [torch.randn(3, n_cols, generator=torch.Generator().manual_seed(1)).to(where).requires_grad_() for _ in range(2)]
    results = ours(leaves[0], dim), theirs(leaves[1].double(), dim)
    dy = gradient(results[0])
    results[0].backward(dy)
    results[1].backward(dy.double())
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-5, atol=2e-6 * dy.abs().sum(dim).max().item())


@pytest.mark.parametrize(("given", "wanted"), [("bfloat16", "float32"), ("float32", "float16"), ("float64", "float32")])
def test_the_gradient_has_the_inputs_type_and_only_the_output_is_saved(where, form, given, wanted):
    leaf = torch.randn(4, 33, device=where).to(getattr(torch, given)).requires_grad_()
    y = PAIRS[form][0](leaf, -1, getattr(torch, wanted))
    assert [saved.data_ptr() for saved in y.grad_fn.saved_tensors] == [y.data_ptr()]
    y[:, 3].sum().backward()
    other = leaf.detach().clone().requires_grad_()
    PAIRS[form][1](other, -1, dtype=getattr(torch, wanted))[:, 3].sum().backward()
    assert leaf.grad.dtype == other.grad.dtype
    torch.testing.assert_close(leaf.grad, other.grad, rtol=2e-2, atol=2e-3)


def weighted(function):
    return lambda x: (function(x, -1) * torch.arange(5.0, device=x.device)).sum()


@pytest.mark.each_value
@pytest.mark.parametrize(
    "transform",
    [
        grad,
        hessian,
        jacrev,
        jacfwd,
        lambda f: grad(lambda x: grad(f)(x).pow(2).sum()),
        lambda f: vmap(grad(f)),
        vmap,
        lambda f: lambda x: jvp(lambda x: jvp(f, (x,), (x * 2,))[1], (x,), (x * 3,)),
        lambda f: lambda x: jvp(grad(f), (x,), (x * 3,)),
    ],
    ids=["grad", "hessian", "jacrev", "jacfwd", "grad of grad", "vmap of grad", "vmap", "jvp of jvp", "jvp of grad"],
)
def test_transforms(form, x, transform):
    ours, theirs = (transform(weighted(function))(x) for function in PAIRS[form])
    torch.testing.assert_close(ours, theirs)


def test_vmap_of_numbers_and_of_gradients(form, x):
    ours, theirs = PAIRS[form]
    torch.testing.assert_close(vmap(lambda x: ours(x, 0))(x[0]), vmap(lambda x: theirs(x, 0))(x[0]))
    torch.testing.assert_close(vmap(lambda x: ours(x, 0), in_dims=1)(x), vmap(lambda x: theirs(x, 0), in_dims=1)(x))
    y = torch.softmax(x[0], 0)
    backward = getattr(torch.ops.portable_softmax, f"{form}_backward")
    batched = vmap(lambda dy: backward(dy, y, 0, torch.float64))(x)
    torch.testing.assert_close(batched, torch.stack([backward(dy, y, 0, torch.float64) for dy in x]))
    numbers = vmap(lambda dy, y: backward(dy, y, 0, torch.float64), in_dims=(0, None))(x[0], y[0])
    torch.testing.assert_close(numbers, torch.stack([backward(dy, y[0], 0, torch.float64) for dy in x[0]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_gradient_of_an_output_that_lies_otherwise_than_it(where, dtype):
    """The operator is given any output; autograd's own are contiguous, as the gradient is."""
    dy, y = (torch.randn(6, 40, generator=torch.Generator().manual_seed(seed)).to(where, dtype) for seed in (1, 2))
    padded, transposed = (
        torch.empty(6, 48, dtype=dtype, device=where)[:, :40],
        torch.empty(40, 6, dtype=dtype, device=where).t(),
    )
    for other in (padded.copy_(y), transposed.copy_(y), y[:1].expand(6, 40)):
        dx = torch.ops.portable_softmax.softmax_backward(dy, other, 1, dtype)
        assert dx.is_contiguous()
        assert_close(dx, expected_gradient("softmax", dy, other), gradient_scale("softmax", dy, other))
