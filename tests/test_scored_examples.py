"""examples/attention.py and sampler.py do what they say, in models of transformers where it is installed."""

import importlib.util
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]


def load(name):
    spec = importlib.util.spec_from_file_location(f"examples_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_same_attention(where, mask):
    """Outputs and all gradients are those of torch's operators."""
    example = load("attention")
    torch.manual_seed(0)
    module, found = example.Attention(size=32, heads=2).to(where), []
    with torch.no_grad():
        module.sinks.copy_(torch.tensor([1.0, -2.0]))
    x = torch.randn(2, 5, 32).to(where)
    for function in (example.attention, example.eager):
        module.function = function
        y = module(x, mask)
        found.append((y.detach(), *torch.autograd.grad(y.square().sum(), list(module.parameters()))))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def padding(where):
    """The first two of the second sequence are no tokens."""
    below = torch.ones(5, 5, dtype=torch.bool).tril()
    return (below & (torch.arange(5) >= torch.tensor([0, 2]).view(2, 1, 1, 1))).to(where)


def test_attention_is_torchs_on_the_cpu():
    for mask in (None, padding("cpu")):
        assert_same_attention("cpu", mask)


@pytest.mark.kernel
@pytest.mark.parametrize("padded", [False, True])
def test_attention_is_torchs_by_the_kernel(where, padded):
    assert_same_attention(where, padding(where) if padded else None)


def assert_drawn(where):
    """Each sequence is drawn by its own temperature, which changes from call to call."""
    example = load("sampler")
    torch.manual_seed(0)
    each = 4096
    logits = torch.tensor([2.0, 1.0, -1.0, 2.5])
    sampler = example.Sampler(3 * each, 4, where, torch.float32)
    for temperatures in ((0.0, 0.7, 3.0), (3.0, 0.0, 0.7)):
        rows = torch.tensor(temperatures).repeat_interleave(each).to(where)
        tokens = sampler(logits.to(where).expand(3 * each, 4), rows).cpu().view(3, each)
        for temperature, drawn in zip(temperatures, tokens, strict=True):
            share = drawn.bincount(minlength=4) / each
            expected = torch.softmax(logits / temperature, 0) if temperature else torch.tensor([0.0, 0, 0, 1])
            assert (share - expected).abs().max() <= 5 * 0.5 / each**0.5  # five standard deviations
            assert temperature or share[3] == 1


def test_a_sampler_draws_by_its_temperatures_on_the_cpu():
    assert_drawn("cpu")


@pytest.mark.kernel
def test_a_sampler_draws_by_its_temperatures(where):
    assert_drawn(where)


@pytest.mark.kernel
@pytest.mark.accelerator
@pytest.mark.backends("cuda", "hip")
def test_a_sampler_is_one_graph(where):
    """Its tensors lie where they did, and the caller's result is not overwritten by the next call."""
    sampler = load("sampler").Sampler(2, 300, where)
    assert sampler._graph is not None
    logits, cold = torch.randn(2, 300, device=where), torch.zeros(2, device=where)
    first = sampler(logits, cold)
    assert torch.equal(first, logits.bfloat16().argmax(1))
    sampler(-logits, cold)
    assert torch.equal(first, logits.bfloat16().argmax(1))
