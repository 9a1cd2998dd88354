"""Softmax and LogSoftmax as modules, like torch's."""

from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.api.functional import log_softmax, softmax


class Softmax(torch.nn.Module):
    """Module of softmax along `dim`, like torch.nn.Softmax; dim is -1 if none is given, where torch would guess and warn.

    Args:
        dim: the axis along which the result sums to 1.
        scale, temperature: numbers, as functional.softmax has them; tensors are given to each call.
        causal, softcap, masked_rows: as functional.softmax has them.

    Raises:
        TypeError: `scale` or `temperature` is a tensor.
    """

    _function: Callable[..., torch.Tensor] = staticmethod(softmax)

    def __init__(
        self,
        dim: int = -1,
        *,
        scale: float | None = None,
        temperature: float | None = None,
        causal: bool | str = False,
        softcap: float | None = None,
        masked_rows: str = "nan",
    ) -> None:
        super().__init__()
        for name, given in (("scale", scale), ("temperature", temperature)):
            if isinstance(given, torch.Tensor):
                raise TypeError(f"{type(self).__name__}(): argument '{name}' must be a number; give a tensor to each call")
        self.dim = dim
        self.scale, self.temperature, self.causal, self.softcap = scale, temperature, causal, softcap
        self.masked_rows = masked_rows

    def forward(
        self,
        input: torch.Tensor,
        mask: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
        temperature: torch.Tensor | None = None,
        sink: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Computes functional.softmax of a tensor of any shape; tensors that are given stand for the module's numbers."""
        given = {"mask": mask, "scale": scale, "temperature": temperature, "sink": sink}
        tensors = {name: each for name, each in given.items() if each is not None}
        return self._function(input, self.dim, **self._options() | tensors)

    def _options(self) -> dict[str, Any]:
        """Returns what is not the default."""
        numbers = {"scale": self.scale, "temperature": self.temperature, "softcap": self.softcap}
        options: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
        options |= {"causal": self.causal} if self.causal is not False else {}
        return options | ({"masked_rows": self.masked_rows} if self.masked_rows != "nan" else {})

    def extra_repr(self) -> str:
        """Names the dim in the module's repr, and what else was chosen."""
        return ", ".join(f"{name}={each!r}" for name, each in ({"dim": self.dim} | self._options()).items())


class LogSoftmax(Softmax):
    """Module of log_softmax along `dim`, like torch.nn.LogSoftmax; arguments are those of Softmax."""

    _function = staticmethod(log_softmax)
