"""Lets a model that calls torch.softmax use this package, without a change to it: `python examples/patch_model.py`."""

import torch
import torch.nn.functional as F

from portable_softmax import Softmax, patch_torch

HERE = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")


class Attention(torch.nn.Module):
    """Self-attention whose scores somebody else wrote down with F.softmax."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.qkv, self.heads = torch.nn.Linear(width, 3 * width), heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes [batch, length, width] from the same."""
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return (F.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)


torch.manual_seed(0)
model = Attention(32, 4).to(HERE)
x = torch.randn(2, 24, 32, device=HERE)
expected = model(x)

with patch_torch():  # torch.softmax, F.softmax, Tensor.softmax and their kin, in the whole process
    result = model(x)
    result.square().sum().backward()
print(
    f"patched: largest difference {(result - expected).abs().max().item():.1e}, gradients {model.qkv.weight.grad is not None}"
)
assert torch.allclose(result, expected, atol=1e-5)

# The other way: modules of this package, which need no patch.
head = torch.nn.Sequential(torch.nn.Linear(32, 100), Softmax(dim=-1)).to(HERE)
print(f"module: rows sum to {head(x).sum(-1).mean().item():.3f}")
