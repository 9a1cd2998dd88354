"""token_log_probs as an operator of torch: compilers, transforms, modes, refusals; by torch on the CPU, or by kernels."""

import pytest
import torch
from calls import place

from portable_softmax import explain, plan, token_log_probs
from portable_softmax.operators import memory

__all__ = ["place"]
OPERATORS = torch.ops.portable_softmax


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ids_of(*shape, n_cols=50):
    return torch.randint(0, n_cols, shape, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("needs", [False, True], ids=["", "gradients"])
@pytest.mark.parametrize("n_ids", [None, 0, 3])
def test_opcheck(by_torch, n_ids, needs):
    x, ids = random(3, 4, 50), ids_of(3, 4) if n_ids is None else ids_of(3, 4, n_ids)
    factors = random(3, 4, seed=1).abs() + 0.5
    given = x.requires_grad_(needs), ids, -1, factors.requires_grad_(needs), None, True, -100, True
    torch.library.opcheck(OPERATORS.token_log_probs.default, given)
    torch.library.opcheck(OPERATORS.token_log_probs.default, (x, ids))
    statistics = OPERATORS.token_log_probs(x.detach(), ids, entropy=True)[1]
    gradients = random(*ids.shape, seed=2), random(3, 4, seed=3)
    torch.library.opcheck(OPERATORS.token_log_probs_backward.default, (x.detach(), ids, statistics, *gradients, -1))


def everything(x, ids, temperature=None):
    return token_log_probs(x, ids, temperature=temperature, entropy=True)


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_vmap_and_func(place):
    x, ids = random(3, 4, 50).to(place), ids_of(3, 4).to(place)
    t = random(3, 4, 1, seed=1).to(place).abs() + 0.5
    assert_same(torch.vmap(everything)(x, ids, t), everything(x, ids, t))
    turned = x.transpose(0, 1), ids.t(), t[:, 0].expand(4, 3, 1)
    assert_same(torch.vmap(everything, in_dims=(1, 1, None))(x, ids, t[:, 0]), everything(*turned))

    def loss(x, ids, t):
        picked, entropies = everything(x, ids, t)
        return picked.sum() + entropies.square().sum()

    found = torch.vmap(torch.func.grad(loss, argnums=(0, 2)))(x, ids, t)
    leaves = x.clone().requires_grad_(), t.clone().requires_grad_()
    assert_same(found, torch.autograd.grad(loss(leaves[0], ids, leaves[1]), leaves))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(place, dynamic):
    compiled = torch.compile(everything, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows in (4, 3):
        x, ids, t = random(rows, 50).to(place), ids_of(rows).to(place), (random(rows, 1, seed=1).abs() + 0.5).to(place)
        leaves = x.requires_grad_(), t.requires_grad_()
        ours, theirs = compiled(x, ids, t), everything(x, ids, t)
        assert_same(ours, theirs)
        assert_same(*(torch.autograd.grad(each[0].sum() + each[1].sum(), leaves) for each in (ours, theirs)))


def test_exported(place):
    class Model(torch.nn.Module):
        def forward(self, x, ids):
            return everything(x, ids)

    given = random(3, 50).to(place), ids_of(3).to(place)
    assert_same(torch.export.export(Model(), given).module()(*given), everything(*given))


@pytest.mark.parametrize("temperature", [None, 0.7, "rows"])
def test_gradients(place, temperature):
    """Gradients of float64, by finite differences; a row that is ignored and one that is greedy have none."""
    x, ids = random(4, 9).double().to(place).requires_grad_(), torch.tensor([3, 8, -100, 0], device=place)
    t = torch.tensor([[0.8], [1.5], [1.0], [2.0]], dtype=torch.float64, device=place)
    given = (t.requires_grad_(),) if temperature == "rows" else ()

    def call(x, *given):
        return token_log_probs(x, ids, temperature=given[0] if given else temperature, entropy=True)

    assert torch.autograd.gradcheck(call, (x, *given))
    scale = t.detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, scale: token_log_probs(x, ids, scale=scale, entropy=True), (x, scale))
    zero = t.detach().index_fill(0, torch.tensor([0], device=place), 0.0).requires_grad_()
    picked, entropies = token_log_probs(x, ids, temperature=zero, entropy=True)
    dx, dt = torch.autograd.grad(picked[1:].sum() + entropies.sum(), (x, zero))
    assert not dx[0].any()
    assert not dt[0].any()


def test_a_second_derivative_is_refused(place):
    x, ids = random(3, 50).to(place).requires_grad_(), ids_of(3).to(place)
    (dx,) = torch.autograd.grad(token_log_probs(x, ids).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"a second derivative of token_log_probs.*log_softmax"):
        dx.sum().backward()


def test_autocast_changes_nothing(place):
    x, ids = random(3, 50).to(place, torch.bfloat16), ids_of(3).to(place)
    with torch.autocast(place.type, torch.bfloat16):
        picked = token_log_probs(x, ids)
    assert picked.dtype == torch.float32
    assert torch.equal(picked, token_log_probs(x, ids))


@pytest.mark.parametrize("call", [{}, {"entropy": True}, {"temperature": 0.7}, {"scale": "rows"}, {"dim": 0}], ids=str)
def test_a_call_that_is_repeated_is_computed_anew(place, call):
    memory.forget()
    given = {name: torch.tensor([[0.5], [1.0], [2.0]], device=place) if each == "rows" else each for name, each in call.items()}
    for turn, needs in ((0, False), (1, False), (2, True), (3, True), (4, False)):
        x = random(3, 50, seed=turn).to(place).requires_grad_(needs)
        ids = ids_of(50, n_cols=3).to(place) if call == {"dim": 0} else ids_of(3).to(place) // (turn + 1)
        found = token_log_probs(x, ids, **given)
        with torch.autocast(place.type, torch.bfloat16):  # another way to the same
            again = token_log_probs(x, ids, **given)
        for one, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, again)), strict=True):
            assert torch.equal(one, other)
        assert (found[0] if isinstance(found, tuple) else found).requires_grad is needs


def test_written_to_out(place):
    x, ids = random(3, 4, 50).to(place), ids_of(3, 4).to(place)
    for out in (torch.empty(3, 4, device=place), torch.empty(4, 3, device=place).t()):
        found, entropies = token_log_probs(x, ids, entropy=True, out=out)
        assert found is out
        assert_same((found, entropies), token_log_probs(x, ids, entropy=True))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"logits": [[1.0]]}, (TypeError, "argument 'logits' must be Tensor")),
        ({"ids": [1]}, (TypeError, "argument 'ids' must be Tensor")),
        ({"logits": torch.ones(3, 50, dtype=torch.int64)}, (TypeError, "dtype of 16, 32 or 64 bits")),
        ({"logits": torch.tensor(1.0)}, (ValueError, "logits without dimensions")),
        ({"logits": torch.ones(3, 50).to_sparse()}, (NotImplementedError, "to_dense")),
        ({"ids": torch.ones(3)}, (TypeError, "must hold integers")),
        ({"ids": torch.ones(4, dtype=torch.int64)}, (ValueError, r"give them the shape \(3,\), or \(3, K\)")),
        ({"ids": torch.ones(3, 2, 1, dtype=torch.int64)}, (ValueError, "give them the shape")),
        ({"dim": 2}, (IndexError, "Dimension out of range")),
        ({"dim": 1.0}, (TypeError, "argument 'dim' must be int")),
        ({"ignore_index": None}, (TypeError, "argument 'ignore_index' must be int")),
        ({"entropy": 1}, (TypeError, "argument 'entropy' must be bool")),
        ({"temperature": torch.ones(3, 50)}, (RuntimeError, "one number for each row")),
        ({"temperature": "hot"}, (TypeError, "argument 'temperature'")),
        ({"out": torch.empty(4)}, (RuntimeError, r"out must be torch.float32, \(3,\)")),
        ({"out": 1}, (TypeError, "argument 'out' must be Tensor")),
        ({"logits": torch.ones(3, 50, requires_grad=True), "out": torch.empty(3)}, (RuntimeError, "automatic differentiation")),
    ],
)
def test_refusals(change, error):
    given = {"logits": torch.ones(3, 50), "ids": torch.ones(3, dtype=torch.int64)} | change
    with pytest.raises(error[0], match=error[1]):
        token_log_probs(given.pop("logits"), given.pop("ids"), **given)


def test_ids_out_of_range_are_refused_on_the_cpu(by_torch):
    with pytest.raises(IndexError, match=r"id 50 is out of range of 50 columns; give ids from 0 to 49, or ignore_index, -100"):
        token_log_probs(random(3, 50), torch.tensor([1, 50, 2]))


def test_nothing_to_compute(place):
    assert token_log_probs(random(0, 50).to(place), ids_of(0).to(place)).shape == (0,)
    picked, entropies = everything(random(2, 0).to(place), torch.full((2,), -100, device=place))
    assert (picked.tolist(), entropies.tolist()) == ([0, 0], [0, 0])


def test_plans_and_explanations():
    planned = plan(4096, 128256, "bfloat16", "ascend/910b3", form="token_log_probs")
    assert "log-probabilities of tokens" in repr(planned)
    x, ids = torch.empty(8, 5, 300, device="meta")[:, :-1], torch.empty(8, 4, dtype=torch.int64, device="meta")
    told = explain(x, ids=ids, entropy=True, temperature=0.7, device="ascend/910b3")
    assert "log-probabilities of tokens and entropy, 1 of each of 32 rows of 300 columns" in told
    assert "nothing is computed" in explain(x, ids=ids)
    with pytest.raises(ValueError, match="scale and temperature alone"):
        explain(x, ids=ids, causal=True)
