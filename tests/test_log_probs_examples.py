"""examples/log_probs.py gives what the functions of its names give, by plain formulas, with the shapes of callers."""

import pytest
import torch
from test_scored_examples import load

from portable_softmax.devices.detect import interpreting

by_kernel = pytest.mark.kernel
SHAPES = {"a batch of sequences": (2, 5, 301), "tokens": (7, 301), "one row": (301,)}


@pytest.fixture(params=["torch", pytest.param("kernel", marks=by_kernel)])
def place(request):
    return torch.device("cpu") if request.param == "torch" else request.getfixturevalue("where")


@pytest.fixture
def logits(request, place):
    torch.manual_seed(0)
    return lambda shape, dtype: (3 * torch.randn(shape)).to(place, dtype)


def formula(logits, ids):
    """Log-probabilities in float64 as trainers write them: gather, less logsumexp."""
    return logits.double().gather(-1, ids) - logits.double().logsumexp(-1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_trl_and_verl(logits, shape, dtype):
    example, x = load("log_probs"), logits(shape, dtype).requires_grad_()
    ids = torch.randint(0, shape[-1], shape[:-1]).to(x.device)
    exact = formula(x, ids.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(example.selective_log_softmax(x, ids), exact.float(), rtol=1e-5, atol=1e-5)
    several = torch.randint(0, shape[-1], (*shape[:-1], 4)).to(x.device)
    torch.testing.assert_close(example.selective_log_softmax(x, several), formula(x, several).float(), rtol=1e-5, atol=1e-5)
    p = x.double().softmax(-1)
    entropies = x.double().logsumexp(-1) - (p * x.double()).sum(-1)
    torch.testing.assert_close(example.entropy_from_logits(x), entropies.float(), rtol=1e-5, atol=1e-5)
    (dx,) = torch.autograd.grad(exact.sum() + entropies.sum(), x)
    ours = example.logprobs_from_logits(x, ids, inplace_backward=False).sum() + example.entropy_from_logits(x).sum()
    torch.testing.assert_close(torch.autograd.grad(ours, x)[0], dx, rtol=1e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-6)
    alone = torch.autograd.grad(example.logprobs_from_logits(x, ids, inplace_backward=False).sum(), x)[0]
    assert torch.equal(torch.autograd.grad(example.logprobs_from_logits(x, ids).sum(), x)[0], alone)
    assert torch.equal(x, alone) is (interpreting() or not x.is_cpu), "a launch writes the gradient in place of logits"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_vllms_sampler(logits, dtype):
    example, x = load("log_probs"), logits((6, 301), dtype)
    sampled = torch.arange(6).to(x.device) * 50
    ids, found, ranks = example.compute_topk_logprobs(x, 3, sampled)
    assert (ids.shape, found.shape, ranks.shape) == ((6, 4), (6, 4), (6,))
    torch.testing.assert_close(found, formula(x, ids).float(), rtol=1e-5, atol=1e-5)
    assert torch.equal(found, example.compute_token_logprobs(x, ids))
    assert torch.equal(ranks, (x > x.gather(-1, sampled.unsqueeze(-1))).sum(-1))
