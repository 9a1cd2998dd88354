"""Softmax and LogSoftmax: subclasses of torch's modules, with the options of the functions."""

from typing import Any

import torch

from portable_softmax.api.functional import log_softmax, softmax


class _WithOptions:
    """Module that calls a function with stored options."""

    function: Any

    def __init__(self, dim: int = -1, **options: Any) -> None:
        super().__init__(dim)  # type: ignore[call-arg]
        if unknown := options.keys() - {"scale", "temperature", "causal", "softcap", "masked_rows"}:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {min(unknown)!r}")
        if tensors := [name for name, option in options.items() if isinstance(option, torch.Tensor)]:
            raise TypeError(f"{type(self).__name__}(): argument '{tensors[0]}' must be a number; pass a tensor to each call")
        self.options = options

    def forward(self, input: torch.Tensor, **tensors: Any) -> torch.Tensor:
        """Computes the function of a tensor; keyword arguments, such as a mask, extend or replace the module's options."""
        result: torch.Tensor = self.function(input, self.dim, **self.options | tensors)  # type: ignore[attr-defined]
        return result

    def extra_repr(self) -> str:
        """Returns dim and the options as text."""
        return ", ".join(f"{name}={option!r}" for name, option in ({"dim": self.__dict__["dim"]} | self.options).items())


class Softmax(_WithOptions, torch.nn.Softmax):
    """Applies `softmax` along `dim`; a subclass of torch.nn.Softmax whose default `dim` is -1.

    Args:
        dim: the dimension along which the result sums to 1.
        options: scale, temperature, causal, softcap and masked_rows of `softmax`, but no tensors: pass them to calls.
    """

    function = staticmethod(softmax)


class LogSoftmax(_WithOptions, torch.nn.LogSoftmax):
    """Applies `log_softmax` along `dim`; a subclass of torch.nn.LogSoftmax. Arguments are those of `Softmax`."""

    function = staticmethod(log_softmax)
