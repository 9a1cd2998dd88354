"""A step of GRPO: tokens are sampled, and the trainer replays their masks, so that its ratio is 1 at the first step.

    python examples/policy_gradient.py

The rollout samples the rows of one position at a time, as an engine does; the trainer computes all positions of a few sequences
at once. So the two sides split their rows differently, and may run on other devices or with another layout.
"""

import torch
from torch import Tensor

from portable_softmax import batch_invariant, sample_token, token_log_probs

TEMPERATURE, KEPT = 0.8, 20


class Policy(torch.nn.Module):
    """A model of one hidden layer: the logits of the next token depend on the last one and its position."""

    def __init__(self, vocabulary: int, length: int, width: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Returns logits of the shape of tokens, and the vocabulary."""
        return self.head(torch.tanh(self.tokens(tokens) + self.places(places))).float()


@torch.no_grad()
def rollout(policy: Policy, start: Tensor, length: int, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Samples sequences with top-k; returns (tokens, their log-probabilities, ids of kept tokens), [sequences, length, ...]."""
    tokens, log_probs, kept = [start], [], []
    for place in range(length):
        logits = policy(tokens[-1], torch.tensor(place, device=start.device))
        few = logits.topk(KEPT, dim=-1).indices
        mask = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, few, True)
        drawn, log_prob = sample_token(logits, temperature=TEMPERATURE, mask=mask, seed=seeds, position=place)
        tokens.append(drawn)
        log_probs.append(log_prob)
        kept.append(few)
    return torch.stack(tokens, 1), torch.stack(log_probs, 1), torch.stack(kept, 1)


def loss_of(policy: Policy, tokens: Tensor, old: Tensor, kept: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (clipped loss, ratios) of all positions of some sequences."""
    places = torch.arange(tokens.shape[1] - 1, device=tokens.device)
    logits = policy(tokens[:, :-1], places)
    log_probs = token_log_probs(logits, tokens[:, 1:], temperature=TEMPERATURE, kept=kept, grad_inplace=True)
    ratios = (log_probs - old).exp()
    gains = torch.minimum(ratios * advantages, ratios.clamp(0.8, 1.2) * advantages)
    return -gains.mean(), ratios.detach()


def main() -> None:
    """Makes two steps with the same samples, and prints ratios and the probability of the token that is rewarded."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    torch.manual_seed(0)
    policy, wanted = Policy(100, 8).to(device, torch.float64), 7  # rounded to float32, its products are the same in any batch
    optimizer = torch.optim.SGD(policy.parameters(), lr=5.0)
    start, seeds = torch.zeros(64, dtype=torch.int64, device=device), torch.arange(64, device=device)
    with batch_invariant():
        tokens, old, kept = rollout(policy, start, 8, seeds)
        rewards = (tokens[:, 1:] == wanted).float().sum(1, keepdim=True)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        for step in range(2):
            ratios = []
            for part in (slice(0, 48), slice(48, 64)):  # the trainer's own batches
                loss, ratio = loss_of(policy, tokens[part], old[part], kept[part], advantages[part])
                loss.backward()
                ratios.append(ratio)
            ratio = torch.cat(ratios)
            print(f"step {step}: ratios from {ratio.min():.6f} to {ratio.max():.6f}; rewarded tokens {rewards.mean():.2f} of 8")
            optimizer.step()
            optimizer.zero_grad()
        tokens, _, _ = rollout(policy, start, 8, seeds)
        print(f"after them: rewarded tokens {(tokens[:, 1:] == wanted).float().sum(1).mean():.2f} of 8")


if __name__ == "__main__":
    main()
