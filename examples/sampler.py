"""A sampler with per-sequence temperatures, 0 for the most likely token; on a GPU, in one CUDA graph.

    python examples/sampler.py

The host reads no temperature, so greedy and other sequences can change places between replays.
"""

import torch

from portable_softmax import softmax


class Sampler:
    """Draws one token per sequence.

    Args:
        batch: the number of sequences.
        vocabulary: the number of tokens to choose from.
        device: where the logits are.
        dtype: their type.
    """

    def __init__(self, batch: int, vocabulary: int, device: torch.device | str, dtype: torch.dtype = torch.bfloat16) -> None:
        self.logits = torch.zeros(batch, vocabulary, device=device, dtype=dtype)
        self.temperatures = torch.ones(batch, 1, device=device)
        self.tokens = self._draw()
        self._graph: torch.cuda.CUDAGraph | None = None
        if self.logits.is_cuda:
            self._capture()

    def __call__(self, logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
        """Returns one token per sequence, (batch,).

        Args:
            logits: (batch, vocabulary).
            temperatures: (batch,); 0 for the token with the largest logit, at random among equal ones.
        """
        self.logits.copy_(logits)
        self.temperatures.copy_(temperatures.unsqueeze(1))
        if self._graph is None:
            return self._draw()
        self._graph.replay()
        return self.tokens.clone()

    def _draw(self) -> torch.Tensor:
        """Draws by the exponential race; torch.multinomial would wait for the device."""
        weights = softmax(self.logits, dtype=torch.float32, temperature=self.temperatures)
        return weights.div_(torch.empty_like(weights).exponential_()).argmax(dim=-1)

    def _capture(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):  # the kernel is compiled: _draw has run
            self.tokens = self._draw()


def main() -> None:
    """Draws from 4 tokens at several temperatures, and prints their frequencies."""
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
    torch.manual_seed(0)
    logits = torch.tensor([2.0, 1.0, 0.0, 2.0]).log_softmax(0)
    batch, copies = torch.tensor([0.0, 0.5, 1.0, 10.0]), 4096
    sampler = Sampler(len(batch) * copies, len(logits), device, torch.float32)
    print(f"shares of {len(logits)} tokens among those drawn; the first and the last are equally likely, also at temperature 0")
    for name, turn in (("first", batch), ("transposed", batch.flip(0))):  # temperatures change, and the graph stays
        tokens = sampler(logits.expand(len(batch) * copies, -1), turn.repeat_interleave(copies)).cpu()
        for temperature, drawn in zip(turn.tolist(), tokens.view(-1, copies), strict=True):
            shares = drawn.bincount(minlength=len(logits)) / copies
            print(f"{name} batch, temperature {temperature:4}: " + "  ".join(f"{share:.3f}" for share in shares.tolist()))


if __name__ == "__main__":
    main()
