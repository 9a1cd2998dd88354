"""Drop-in replacements for functions of TRL, verl and vLLM that compute log-probabilities and entropies, by token_log_probs.

    python examples/log_probs.py

Logits are read once, and once more for their gradient, without a [tokens, vocabulary] result. All results are float32.
"""

import torch

from portable_softmax import token_log_probs


def selective_log_softmax(logits: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Returns the log-probabilities of tokens, as TRL's function of this name.

    Args:
        logits: (..., vocabulary).
        index: (...), or (..., k) for k tokens of each row.
    """
    return token_log_probs(logits, index)


def entropy_from_logits(logits: torch.Tensor, chunk_size: int = 128) -> torch.Tensor:
    """Returns the entropies of rows, as TRL's and verl's functions of this name; those of masked vocabularies too.

    Args:
        logits: (..., vocabulary).
        chunk_size: rows of a chunk; ignored.
    """
    nothing = logits.new_empty((*logits.shape[:-1], 0), dtype=torch.int64)
    _, entropies = token_log_probs(logits, nothing, entropy=True)
    return entropies


def logprobs_from_logits(logits: torch.Tensor, labels: torch.Tensor, inplace_backward: bool = True) -> torch.Tensor:
    """Returns the log-probabilities of labels, as verl's function of this name.

    Args:
        logits: (..., vocabulary).
        labels: (...).
        inplace_backward: True to write the gradient over logits.
    """
    return token_log_probs(logits, labels, grad_inplace=inplace_backward)


def compute_token_logprobs(logits: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
    """Returns log-probabilities (n, k), as the function of this name in vLLM's sampler.

    Args:
        logits: (n, vocabulary), of 16 or 32 bits.
        token_ids: (n, k).
    """
    return token_log_probs(logits, token_ids)


def compute_topk_logprobs(
    logits: torch.Tensor, num_logprobs: int, sampled_token_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (ids, their log-probabilities, ranks of the sampled ones), as vLLM's sampler does.

    Args:
        logits: (n, vocabulary).
        num_logprobs: the number of most likely tokens to return after the sampled one.
        sampled_token_ids: (n,).
    """
    likeliest = logits.topk(num_logprobs, dim=-1).indices
    token_ids = torch.cat((sampled_token_ids.unsqueeze(-1), likeliest), dim=-1)
    ranks = (logits > logits.gather(-1, sampled_token_ids.unsqueeze(-1))).sum(-1)
    return token_ids, token_log_probs(logits, token_ids), ranks


def main() -> None:
    """Compares a training step with torch's formula, and prints the result of a sampler."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    torch.manual_seed(0)
    logits = (3 * torch.randn(2, 6, 1000)).to(device, torch.bfloat16).requires_grad_()
    tokens = torch.randint(0, 1000, (2, 6)).to(device)
    shifted, chosen = logits[:, :-1], tokens[:, 1:]  # no copy is made of the slice
    log_probs = selective_log_softmax(shifted, chosen)
    formula = shifted.double().log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    (gradient,) = torch.autograd.grad(log_probs.sum(), logits)
    error = (log_probs - formula).abs().max()
    print(f"log-probabilities of 10 tokens, at most {error:.0e} from float64; gradient {gradient.dtype}")
    print(f"entropies of {tuple(entropy_from_logits(shifted).shape)} rows, from {entropy_from_logits(shifted).min():.3f} on")
    ids, values, ranks = compute_topk_logprobs(logits.detach()[0], 2, tokens[0])
    for row, first, rank in zip(ids.tolist(), values.tolist(), ranks.tolist(), strict=True):
        print(f"token {row[0]:3}, {rank:3} above it: " + "  ".join(f"{value:7.3f}" for value in first))


if __name__ == "__main__":
    main()
