"""Computes eager attention with one pass over its scores: `python examples/attention.py`."""

import math

import torch

from portable_softmax import softmax

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")


class Attention(torch.nn.Module):
    """Attention that returns its weights, with a sink for each head: scale, cap, mask and sink are parts of the softmax."""

    def __init__(self, width: int, heads: int, softcap: float | None = None) -> None:
        super().__init__()
        self.heads, self.softcap = heads, softcap
        self.project, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.sinks = torch.nn.Parameter(torch.zeros(heads))

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Computes the result and the weights of [batch, length, width]; padding is [batch, length], True for a token."""
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = softmax(
            q @ k.mT,
            scale=1 / math.sqrt(q.shape[-1]),
            softcap=self.softcap,
            mask=padding[:, None, None, :],  # broadcast by strides: no copy of [batch, heads, length, length]
            causal=True,
            sink=self.sinks,
            masked_rows="zero",
        )
        return self.out((weights @ v).transpose(1, 2).flatten(2)), weights


def by_torch(scores: torch.Tensor, padding: torch.Tensor, sinks: torch.Tensor, scale: float, softcap: float) -> torch.Tensor:
    """Computes the same weights step by step: each step reads and writes all scores."""
    scores = softcap * torch.tanh(scores * scale / softcap)
    seen = torch.ones_like(scores, dtype=torch.bool).tril() & padding[:, None, None, :]
    scores = scores.masked_fill(~seen, -torch.inf)
    sinks = sinks.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, sinks), -1), -1)[..., :-1]


torch.manual_seed(0)
model = Attention(width=32, heads=4, softcap=20.0).to(HERE)
x = torch.randn(2, 24, 32, device=HERE)
padding = torch.arange(24, device=HERE) < torch.tensor([[24], [17]], device=HERE)
result, weights = model(x, padding)

q, k, _ = model.project(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
expected = by_torch(q @ k.mT, padding, model.sinks, 1 / math.sqrt(8), 20.0)
assert torch.allclose(weights, expected, atol=1e-5)
print(f"weights of {tuple(weights.shape)} on {HERE}: as torch's, step by step")

result.square().sum().backward()
grown = torch.autograd.grad(expected.square().sum(), model.sinks)[0]
again = torch.autograd.grad(model(x, padding)[1].square().sum(), model.sinks)[0]
assert torch.allclose(again, grown, atol=1e-4)
print(f"gradients of x and of {model.sinks.numel()} sinks: as torch's")
