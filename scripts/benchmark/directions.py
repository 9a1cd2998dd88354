"""Directions that the benchmark times. Each has the call, the bytes that it must move, and the right result."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from benchmark.providers import Provider
from portable_probe.closeness import allowed_error, allowed_of_terms, distance, softmax_in_float64
from portable_probe.trial import wide_rows

Timed = Callable[[], torch.Tensor]
Expected = tuple[torch.Tensor, torch.Tensor]


class Inputs(NamedTuple):
    """Operands of a cell, all [n_rows, n_cols] and of one type."""

    x: torch.Tensor
    y: torch.Tensor  # softmax of x
    dy: torch.Tensor

    @classmethod
    def random(cls, n_rows: int, n_cols: int, dtype: str, device: str) -> "Inputs":
        """Makes operands: x from `wide_rows`, and gradients from a normal distribution."""
        kind = getattr(torch, dtype)
        x, dy = wide_rows(n_rows, n_cols, kind, device), torch.randn(n_rows, n_cols, dtype=kind, device=device)
        return cls(x, torch.softmax(x, -1), dy)

    def rows(self, part: slice) -> "Inputs":
        """Returns some rows of all operands."""
        return Inputs(*(each[part] for each in self))


class Direction(NamedTuple):
    """Direction of a softmax: its inputs and its result.

    Args:
        streams: matrices that are read or written; GB/s counts them.
        call: the timed call; None if a provider has none.
        expected: the result in float64, and the error that is allowed.
    """

    streams: int
    call: Callable[[Provider, Inputs], Timed | None]
    expected: Callable[[Inputs], Expected]


def _forward(provider: Provider, given: Inputs) -> Timed:
    return lambda: provider.forward(given.x)


def _backward(provider: Provider, given: Inputs) -> Timed | None:
    gradient = provider.backward
    return gradient and (lambda: gradient(given.dy, given.y))


def _both(provider: Provider, given: Inputs) -> Timed | None:
    softmax, leaf = provider.differentiable, given.x.detach().requires_grad_()
    return softmax and (lambda: torch.autograd.grad(softmax(leaf), leaf, given.dy)[0])


def _log_softmax(provider: Provider, given: Inputs) -> Timed | None:
    log_softmax = provider.log_softmax
    return log_softmax and (lambda: log_softmax(given.x))


def recorded(provider: Provider, given: Inputs) -> Timed | None:
    """Returns a forward call like that of a training step; only the time on the host differs."""
    softmax, leaf = provider.differentiable, given.x.detach().requires_grad_()
    return softmax and (lambda: softmax(leaf))


def _softmax_expected(given: Inputs) -> Expected:
    y = softmax_in_float64(given.x)
    return y, allowed_error(y, given.x.dtype)


def _log_softmax_expected(given: Inputs) -> Expected:
    shifted = given.x.double() - given.x.double().amax(-1, keepdim=True)
    result = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return result, allowed_of_terms(result, given.x.dtype, 1.0, given.x.dtype)


def _gradient_expected(given: Inputs) -> Expected:
    """Allows an error relative to the terms of the sum, because terms of both signs cancel."""
    dy, y = given.dy.double(), given.y.double()
    result = y * (dy - (dy * y).sum(-1, keepdim=True))
    terms = y * (dy.abs() + (dy * y).abs().sum(-1, keepdim=True))
    return result, allowed_of_terms(result, given.dy.dtype, terms, given.dy.dtype)


def _both_expected(given: Inputs) -> Expected:
    """Allows twice the error, because y is rounded in between."""
    result, allowed = _gradient_expected(given._replace(y=softmax_in_float64(given.x)))
    return result, 2 * allowed


DIRECTIONS = {
    "forward": Direction(2, _forward, _softmax_expected),  # x -> y
    "backward": Direction(3, _backward, _gradient_expected),  # dy, y -> dx
    "both": Direction(5, _both, _both_expected),  # forward, then backward: y is written and read again
    "log_softmax": Direction(2, _log_softmax, _log_softmax_expected),
}


def worst_error(result: torch.Tensor, given: Inputs, direction: Direction) -> float:
    """Returns the largest error in units of the allowed error; inf for nan. It takes a few rows at a time, to save memory."""
    rows_at_once = max(1, 2**26 // result.shape[-1])
    worst = 0.0
    for start in range(0, len(result), rows_at_once):
        part = slice(start, start + rows_at_once)
        worst = max(worst, distance(result[part], *direction.expected(given.rows(part))).worst)
    return worst
