"""linear_token_log_probs: as the logits in float64, chunk by chunk, with what a trainer wraps around it; what is refused."""

import pytest
import torch
from calls import in_double
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from portable_softmax import linear_token_log_probs, token_log_probs
from portable_softmax.api import linear_log_probs

pytestmark = [pytest.mark.kernel, pytest.mark.xdist_group("compilers")]

ERRORS = {torch.float32: 2e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}
CASES = {  # (shape of rows, H, V, K, dtype, whether there is a bias, options)
    "one chunk": ((7,), 16, 37, (), torch.float32, True, {}),
    "one row": ((), 16, 37, (), torch.float32, False, {"chunk_rows": 5}),
    "no rows": ((3, 0), 16, 37, (), torch.float32, True, {}),
    "double": ((3, 5), 16, 37, (2,), torch.float64, True, {"chunk_rows": 4, "entropy": True, "softcap": 2.0}),
    "all results": ((2, 4), 16, 37, (3,), torch.float32, True, {"chunk_rows": 3, "entropy": True, "return_lse": True}),
    "bfloat16": ((3, 5), 32, 300, (), torch.bfloat16, True, {"chunk_rows": 4, "scale": 0.7, "softcap": 5.0}),
    "per row": ((3, 5), 32, 300, (), torch.bfloat16, False, {"chunk_rows": 2, "temperature": 1.0 + torch.arange(5.0)[:, None]}),
    "sum in float32": ((12,), 32, 300, (), torch.bfloat16, True, {"chunk_rows": 1, "accumulate": torch.float32}),
    "float16": ((2, 9), 24, 515, (), torch.float16, False, {"chunk_rows": 1, "scale": torch.tensor(0.5)}),
}


def leaves_of(case, where):
    """Returns (leaves, ids, options) of a case; the first rows have ignored ids, which fill chunks of their own."""
    lead, width, n_cols, many, dtype, has_bias, options = case
    torch.manual_seed(0)
    shapes = (*lead, width), (n_cols, width), (n_cols,)
    leaves = [torch.randn(s, device=where).div(s[-1] ** 0.25).to(dtype).requires_grad_() for s in shapes[: 2 + has_bias]]
    ids = torch.randint(n_cols, (*lead, *many), device=where)
    ids.view(-1)[:4] = -100 if ids.dim() else 0
    return leaves, ids, {n: o.to(where) if isinstance(o, torch.Tensor) else o for n, o in options.items()}


def outcome(function, leaves, *more, **options):
    """Returns results, and gradients of a loss that all of them are part of."""
    hidden, weight, bias = (*leaves, None)[:3]
    ys = function(hidden, weight, *more, bias=bias, **options)
    ys = ys if isinstance(ys, tuple) else (ys,)
    loss = sum(y.double().sin().sum() for y in ys)
    return *ys, *(g.to(t.dtype) for g, t in zip(torch.autograd.grad(loss, leaves), leaves, strict=True))


def of_all_logits(hidden, weight, ids, bias=None, **options):
    options = {n: o for n, o in options.items() if n not in ("chunk_rows", "accumulate")}
    return in_double("log_probs", linear(hidden, weight, bias), -1, {"ids": ids, **options})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_and_gradients_are_those_of_all_logits_in_float64(case, where):
    leaves, ids, options = leaves_of(case, where)
    actual = outcome(linear_token_log_probs, leaves, ids, **options)
    exact = outcome(of_all_logits, [t.detach().double().requires_grad_() for t in leaves], ids, **options)
    for ours, double in zip(actual, exact, strict=True):
        largest = double.abs().max().item() if double.numel() else 1.0
        torch.testing.assert_close(ours.double(), double, rtol=0, atol=ERRORS[leaves[0].dtype] * max(1.0, largest))
    assert [y.dtype for y in actual[-len(leaves) :]] == [t.dtype for t in leaves]


def test_chunks_without_a_token_and_frozen_weights_cost_no_product(where, monkeypatch):
    (hidden, weight, _), ids, _ = leaves_of(CASES["one chunk"], where)
    products, mm = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda *tensors, **out: products.append(len(tensors[0])) or mm(*tensors, **out))
    ids[2:6] = -100
    y = linear_token_log_probs(hidden, weight.requires_grad_(False), ids, chunk_rows=2)
    y.sum().backward()
    assert products == [1, 1, 1]  # the logits, the logits again, and the gradient of hidden
    assert (hidden.grad[:6] == 0).all()
    monkeypatch.setattr(linear_log_probs, "CHUNK_BYTES", 300 * 37 * 4)  # for the most rows that are a multiple of 128
    linear_token_log_probs(hidden.detach()[:1].expand(600, -1), weight, ids[:1].expand(600) * 0)
    assert products[3:] == [256, 256, 88]


def test_autocast_checkpoints_and_compilers(where):
    leaves, ids, options = leaves_of(CASES["all results"], where)
    plain = outcome(linear_token_log_probs, leaves, ids, **options)

    def again(*inputs, **options):
        return checkpoint(linear_token_log_probs, *inputs, **options, use_reentrant=False)

    torch._dynamo.reset()
    compiled = torch.compile(lambda *inputs, **options: linear_token_log_probs(*inputs, **options), backend="eager")
    for function in (again, compiled):
        torch.testing.assert_close(outcome(function, leaves, ids, **options), plain, rtol=0, atol=0)
    with torch.autocast(where.type, torch.bfloat16):
        low = outcome(linear_token_log_probs, leaves, ids, **options)
        torch.testing.assert_close(low[0], token_log_probs(linear(leaves[0], *leaves[1:]), ids), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(low, plain, rtol=0.05, atol=0.05)
    assert all(y.dtype is torch.float32 for y in low)
    with torch.no_grad():
        assert not linear_token_log_probs(*leaves[:2], ids).requires_grad


def test_a_gradient_that_cannot_be_computed_is_refused(where):
    (hidden, weight, _), ids, _ = leaves_of(CASES["one chunk"], where)
    y = linear_token_log_probs(hidden, weight, ids).sum()
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        torch.autograd.grad(y, hidden, create_graph=True, retain_graph=True)
    weight.untyped_storage().resize_(0)
    with pytest.raises(NotImplementedError, match="'weight' has no storage"):
        y.backward()
