"""Modules like torch's."""

import torch

from portable_softmax.torch_api.functional import log_softmax, softmax


class Softmax(torch.nn.Module):
    """softmax along `dim` as a module, as torch.nn.Softmax; dim -1 where torch would guess and warn."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """log_softmax along `dim` as a module, as torch.nn.LogSoftmax; dim -1 where torch would guess and warn."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return log_softmax(input, self.dim)
