"""The reference beside compositions in float64 that share nothing with it, and finite differences; batch_invariant."""

import pytest
import torch
from exact import BIAS, IGNORED, OPTIONS, ROWS, X, expected, log_probs, log_probs_gradient
from torch.autograd import gradcheck, gradgradcheck

from portable_softmax import log_softmax, softmax, softmin, token_log_probs
from portable_softmax.invariance import batch_invariant, is_batch_invariant, set_batch_invariant

FUNCTIONS = {"softmax": softmax, "log_softmax": log_softmax, "softmin": softmin}
IDS, INF = torch.tensor([[0, 4, IGNORED], [1, 2, 9]]), float("inf")
ROW = torch.tensor([2.0, -1, 0, 0, 1])  # in rows with equals, masked logits, and numbers that are inf or far above a softcap
HOSTILE = torch.stack([ROW.clamp(max=1), ROW.where(ROW == 0, -INF), ROW * 100, ROW * INF, ROW.where(ROW < 2, INF), ROW - INF])


@pytest.mark.parametrize("x", [X, HOSTILE.double().view(2, 3, 5)], ids=["random", "hostile"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
def test_results_are_those_of_an_independent_composition(x, options):
    for name, function in FUNCTIONS.items():
        torch.testing.assert_close(function(x, **options), expected(name, x, **options), equal_nan=True)
    factors = {name: factor for name, factor in options.items() if name in ("scale", "temperature", "softcap")}
    exact = [values for values, _ in log_probs(x, IDS[..., None], **factors)]
    leaf, dys = x.clone().requires_grad_(), torch.randn(3, *IDS.shape).double().unbind()
    results = token_log_probs(leaf, IDS, **factors, ignore_index=IGNORED, return_lse=True, entropy=True)
    torch.testing.assert_close(results, (exact[0][..., 0], *exact[1:]), rtol=1e-6, atol=1e-6, equal_nan=True)
    gradient, _ = log_probs_gradient(x, IDS[..., None], dys[0][..., None], *dys[1:], **factors)
    torch.testing.assert_close(torch.autograd.grad(results, leaf, dys)[0], gradient, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", [*FUNCTIONS, "log_probs"])
def test_derivatives_are_those_of_finite_differences(name):
    tensors = [t.clone().requires_grad_() for t in (X, ROWS, BIAS, torch.randn(3, 1).double())]

    def call(x, rows, bias, sink):
        if name in FUNCTIONS:
            return FUNCTIONS[name](x, scale=rows, mask=bias, sink=sink, softcap=2.0, temperature=rows + 1)
        options = {"softcap": 2.0, "entropy": True, "return_lse": True, "ignore_index": IGNORED}
        return token_log_probs(x, IDS.clamp(max=4), temperature=rows, **options)

    assert gradcheck(call, tensors, check_forward_ad=True, check_batched_grad=name in FUNCTIONS)
    assert gradgradcheck(call, tensors)


@pytest.mark.kernel
@pytest.mark.parametrize("options", [{"sink": 0.3}, {"causal": True}, {"masked_rows": "zero"}, {"mask": bool}], ids=str)
def test_elements_without_weight_have_gradients_of_0(where, options):
    seen, x = torch.tensor([[True, False, True], [False] * 3, [True] * 3]), torch.tensor([[1.0, 2, 0], [1, 2, 3], [1, INF, 2]])
    mask = (seen if "mask" in options else torch.where(seen, 0.0, -INF)).to(where)
    first = [True, False, "causal" not in options]
    for dtype in (torch.float32, torch.float64):  # by a kernel, and by the reference
        leaf = x.to(where, dtype, copy=True).requires_grad_()
        log_softmax(leaf, **{**options, "mask": mask}).sum().backward()
        assert (leaf.grad != 0).tolist() == [first, [False] * 3, [False] * 3]  # the last one is nan


def test_what_has_no_elements():
    assert softmax(torch.empty(0, 3)).shape == (0, 3)
    assert softmax(torch.empty(3, 0), scale=2.0).shape == (3, 0)
    assert softmax(torch.empty(3, 0), mask=torch.empty(3, 0, dtype=torch.int32)).shape == (3, 0)
    assert token_log_probs(torch.empty(2, 4), torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0)
    assert softmax(torch.tensor(3.0), 0, scale=2.0) == 1
    assert softmax(torch.tensor(0.0), scale=torch.tensor(2.0), sink=0.0) == 0.5


@pytest.mark.kernel
@pytest.mark.parametrize("n_cols", [7, 782, 5000])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_row_and_its_gradient_are_the_same_in_any_batch(where, n_cols, dtype):
    x, ids = torch.randn(70, n_cols, device=where).to(dtype), torch.zeros(70, dtype=torch.long, device=where)
    unaligned = torch.empty(70 * n_cols + 1, dtype=dtype, device=where)[1:].view(70, n_cols).copy_(x)

    def results(call, part):
        leaf = part.detach().requires_grad_()
        with batch_invariant():
            y = call(leaf)
        gradient = torch.autograd.grad(y.float().square().sum(), leaf)[0]  # outside of the context
        return (y, gradient) if y.dim() > 1 else (y,)

    for call in (softmax, log_softmax, lambda x: token_log_probs(x, ids[: len(x)])):
        whole = results(call, x)
        for part in (x[5:6], x[5:6].clone(), x[3:10][2:3], unaligned[5:6], x.t().contiguous().t()[5:6]):
            assert all(torch.equal(one, of_all[5:6]) for one, of_all in zip(results(call, part), whole, strict=True))


def test_the_flag_and_its_context():
    with batch_invariant():
        with batch_invariant(False):
            assert not is_batch_invariant()
        assert is_batch_invariant()
    for flag in (True, False):
        set_batch_invariant(flag)
        assert is_batch_invariant() is flag
    assert batch_invariant()(is_batch_invariant)()
    with pytest.raises(TypeError, match="batch_invariant"), batch_invariant(1):
        pass
