"""Softmax and LogSoftmax as modules, like torch's."""

import torch

from portable_softmax.api.functional import log_softmax, softmax


class Softmax(torch.nn.Module):
    """Module of softmax along `dim`, like torch.nn.Softmax; dim is -1 if none is given, where torch would guess and warn."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Computes functional.softmax of a tensor of any shape."""
        return softmax(input, self.dim)

    def extra_repr(self) -> str:
        """Names the dim in the module's repr."""
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """Module of log_softmax along `dim`, like torch.nn.LogSoftmax; dim is -1 if none is given."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Computes functional.log_softmax of a tensor of any shape."""
        return log_softmax(input, self.dim)
