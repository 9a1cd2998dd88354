"""A sampler: each sequence of a batch has its temperature, 0 for the likeliest token; on a GPU, in one CUDA graph.

    python examples/sampler.py

No temperature is looked at on the host, so that greedy sequences and others change places from one replay to the next.
"""

import torch

from portable_softmax import softmax


class Sampler:
    """Draws a token for each sequence.

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
        """Returns one token for each sequence, (batch,).

        Args:
            logits: (batch, vocabulary).
            temperatures: (batch,); 0 for the token of the largest logit, by lot among equals.
        """
        self.logits.copy_(logits)
        self.temperatures.copy_(temperatures.unsqueeze(1))
        if self._graph is None:
            return self._draw()
        self._graph.replay()
        return self.tokens.clone()

    def _draw(self) -> torch.Tensor:
        """Draws as torch.multinomial does, which waits for the device: the first of clocks that run at the weights' rates."""
        weights = softmax(self.logits, dtype=torch.float32, temperature=self.temperatures)
        return weights.div_(torch.empty_like(weights).exponential_()).argmax(dim=-1)

    def _capture(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):  # the kernel is compiled: _draw has run
            self.tokens = self._draw()


def main() -> None:
    """Draws from 4 tokens at several temperatures, and prints how often each came."""
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
