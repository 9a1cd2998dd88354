"""Eager attention with scale, softcap, mask and sinks fused into the softmax, for transformers and other models.

    python examples/attention.py

`attention` has the signature of transformers' attention functions, and `register` makes it available to models by name.
Unfused, scale, softcap, mask and sinks take a pass over the scores each.
"""

from typing import Any

import torch

from portable_softmax import softmax

NAME = "portable_softmax"


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the attention's output, (batch, rows, heads, size), and its weights, (batch, heads, rows, columns).

    Args:
        module: the calling module; dropout is active if its `training` is True.
        query: (batch, heads, rows, size).
        key, value: (batch, heads or a divisor of it, columns, size).
        attention_mask: broadcasts against the weights: boolean, True to keep an element, or floating-point, which is added.
            None: causal attention, unless there is one row or `is_causal` is False.
        scaling: factor of the scores; 1 / sqrt(size) if None.
        dropout: the fraction of weights that are dropped in training.
        is_causal: True for causal attention without a mask; that of the module if None.
        softcap: cap of cap * tanh(scores / cap).
        s_aux: (heads,); sinks, additional logits of every row without a value.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, dim=1) if groups > 1 else tensor for tensor in (key, value))
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    weights = softmax(
        query @ key.transpose(2, 3),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        softcap=softcap,
        mask=attention_mask,
        causal=attention_mask is None and is_causal and query.shape[2] > 1,
        sink=s_aux,
        masked_rows="zero",  # padding attends to nothing
    ).to(value.dtype)
    weights = torch.nn.functional.dropout(weights, dropout, module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def register(name: str = NAME) -> None:
    """Makes `attention` available to transformers' models: model.set_attn_implementation(name)."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, sdpa_mask)  # boolean masks, and None where `causal` suffices


class Attention(torch.nn.Module):
    """Self-attention with sinks, with `attention` or another function of its signature."""

    def __init__(self, size: int, heads: int, function: Any = attention) -> None:
        super().__init__()
        self.heads, self.function = heads, function
        self.qkv = torch.nn.Linear(size, 3 * size)
        self.out = torch.nn.Linear(size, size)
        self.sinks = torch.nn.Parameter(torch.zeros(heads))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the output for x of (batch, rows, size)."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        out, _ = self.function(self, query, key, value, mask, softcap=30.0, s_aux=self.sinks)
        return self.out(out.flatten(2))


def eager(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    softcap: float,
    s_aux: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes `attention` by one PyTorch operator per step."""
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    scores = softcap * torch.tanh(scores / softcap)
    if mask is None:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    scores = scores.masked_fill(~mask, -torch.inf)
    sinks = s_aux.view(-1, 1, 1).expand(*scores.shape[:-1], 1)
    weights = torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]
    return (weights @ value).transpose(1, 2), weights


def main() -> None:
    """Compares a module's outputs and gradients by `attention` with those by torch's operators."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    torch.manual_seed(0)
    module = Attention(size=256, heads=8).to(device)
    x = torch.randn(2, 48, 256, device=device)
    x[1, :16] = 0  # padding
    padding = (torch.arange(48, device=device) >= torch.tensor([[0], [16]], device=device)).view(2, 1, 1, 48)
    below = torch.ones(48, 48, dtype=torch.bool, device=device).tril()
    for name, mask in (("causal", None), ("padded", padding & below)):
        results = {}
        for function in (attention, eager):
            module.function = function
            y = module(x, mask)
            results[function] = y.detach(), *torch.autograd.grad(y.square().sum(), list(module.parameters()))
        worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(*results.values(), strict=True))
        print(f"{name}: outputs and gradients are those of torch's operators, but for {worst:.0e}")


if __name__ == "__main__":
    main()
