"""Samples tokens at each request's own temperature, in one CUDA graph where there is one: `python examples/sampler.py`."""

import torch

from portable_softmax import softmax

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
REQUESTS, TOKENS = 4, 1000


def sample(logits: torch.Tensor, temperatures: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes a token for each row of logits, and the probabilities that it was drawn from.

    Args:
        logits: [requests, tokens].
        temperatures: [requests, 1]; a row of 0 is greedy, and needs no branch of its own.
        noise: [requests, tokens], drawn from an exponential distribution.
    """
    probabilities = softmax(logits, temperature=temperatures, dtype=torch.float32)
    return (probabilities / noise).argmax(-1), probabilities


torch.manual_seed(0)
logits = torch.randn(REQUESTS, TOKENS, device=HERE).bfloat16()
noise = torch.empty(REQUESTS, TOKENS, device=HERE)
temperatures = torch.tensor([[0.0], [0.7], [1.0], [1e30]], device=HERE)


def check(tokens: torch.Tensor, probabilities: torch.Tensor) -> None:
    """Compares greedy rows with argmax, and all others with torch's softmax."""
    greedy = temperatures[:, 0] == 0
    assert torch.equal(tokens[greedy], logits[greedy].float().argmax(-1))
    expected = torch.softmax(logits.float() / temperatures, -1)
    assert torch.allclose(probabilities[~greedy], expected[~greedy], rtol=1e-4, atol=1e-7)


check(*sample(logits, temperatures, noise.exponential_()))
print(f"{REQUESTS} requests on {HERE}, one of them greedy: sampled in one launch")

if HERE.type == "cuda":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tokens, probabilities = sample(logits, temperatures, noise)
    for changed in ([0.0, 0.0, 0.5, 2.0], [1.0, 0.0, 0.0, 1e-30]):  # which rows are greedy changes between replays
        temperatures.copy_(torch.tensor(changed, device=HERE).view(-1, 1))
        logits.copy_(torch.randn_like(logits))
        noise.exponential_()
        graph.replay()
        check(tokens, probabilities)
    print("CUDA graph: temperatures change between replays")
else:
    print("CUDA graph: there is no CUDA device here")
