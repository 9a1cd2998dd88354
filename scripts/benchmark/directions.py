"""Directions that the benchmark times. Each has its operands, the call and the right result."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmark.providers import Provider
from portable_probe.closeness import allowed_error, allowed_of_terms, distance, softmax_in_float64
from portable_probe.verify import wide_rows

Timed = Callable[[], Any]
Expected = tuple[torch.Tensor, torch.Tensor]
MOST_CHECKED = 2**27  # elements of a result


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
        return Inputs(*(tensor[part] for tensor in self))


class Tokens(NamedTuple):
    """Operands of log-probabilities of tokens."""

    x: torch.Tensor  # logits, [n_rows, n_cols]
    ids: torch.Tensor  # [n_rows]
    weights: torch.Tensor  # gradients of log-probabilities, [n_rows], float32

    @classmethod
    def random(cls, n_rows: int, n_cols: int, dtype: str, device: str) -> "Tokens":
        """Makes operands; logits are spread like a model's."""
        x = torch.randn(n_rows, n_cols, dtype=getattr(torch, dtype), device=device).mul_(3)
        return cls(x, torch.randint(n_cols, (n_rows,), device=device), torch.randn(n_rows, device=device))

    @classmethod
    def of_loss(cls, n_rows: int, n_cols: int, dtype: str, device: str) -> "Tokens":
        """Makes the operands of a mean over all tokens, with equal gradients of log-probabilities."""
        inputs = cls.random(n_rows, n_cols, dtype, device)
        return inputs._replace(weights=torch.full_like(inputs.weights, 1 / n_rows))

    def rows(self, part: slice) -> "Tokens":
        """Returns some rows of all operands."""
        return Tokens(*(tensor[part] for tensor in self))


class Direction(NamedTuple):
    """Direction of a softmax, or log-probabilities of tokens: its operands and its result.

    Args:
        call: the timed call of a provider with operands; None if it has none.
        expected: the result in float64, and the error that is allowed in a dtype, of operands.
        inputs: makes operands of rows, columns, a dtype and a device.
    """

    call: Callable[[Provider, Any], Timed | None]
    expected: Callable[[Any, torch.dtype], Expected]
    inputs: Callable[[int, int, str, str], Any] = Inputs.random


def _forward(provider: Provider, inputs: Inputs) -> Timed | None:
    forward = provider.forward
    return forward and (lambda: forward(inputs.x))


def _backward(provider: Provider, inputs: Inputs) -> Timed | None:
    gradient = provider.backward
    return gradient and (lambda: gradient(inputs.dy, inputs.y))


def _both(provider: Provider, inputs: Inputs) -> Timed | None:
    softmax, leaf = provider.differentiable, inputs.x.detach().requires_grad_()
    return softmax and (lambda: torch.autograd.grad(softmax(leaf), leaf, inputs.dy)[0])


def _log_softmax(provider: Provider, inputs: Inputs) -> Timed | None:
    log_softmax = provider.log_softmax
    return log_softmax and (lambda: log_softmax(inputs.x))


def recorded(provider: Provider, inputs: Inputs) -> Timed | None:
    """Returns a forward call like that of a training step; only the time on the host differs."""
    softmax, leaf = provider.differentiable, inputs.x.detach().requires_grad_()
    return softmax and (lambda: softmax(leaf))


def _softmax_expected(inputs: Inputs, dtype: torch.dtype) -> Expected:
    y = softmax_in_float64(inputs.x)
    return y, allowed_error(y, dtype)


def _log_softmax_expected(inputs: Inputs, dtype: torch.dtype) -> Expected:
    shifted = inputs.x.double() - inputs.x.double().amax(-1, keepdim=True)
    result = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return result, allowed_of_terms(result, dtype, 1.0, dtype)


def _gradient_expected(inputs: Inputs, dtype: torch.dtype) -> Expected:
    """Allows an error relative to the terms of the sum, because terms of both signs cancel."""
    dy, y = inputs.dy.double(), inputs.y.double()
    result = y * (dy - (dy * y).sum(-1, keepdim=True))
    terms = y * (dy.abs() + (dy * y).abs().sum(-1, keepdim=True))
    return result, allowed_of_terms(result, dtype, terms, dtype)


def _both_expected(inputs: Inputs, dtype: torch.dtype) -> Expected:
    """Allows twice the error, because y is rounded in between."""
    result, allowed = _gradient_expected(inputs._replace(y=softmax_in_float64(inputs.x)), dtype)
    return result, 2 * allowed


def _token_log_probs(provider: Provider, inputs: Tokens) -> Timed | None:
    log_probs = provider.token_log_probs
    return log_probs and (lambda: log_probs(inputs.x, inputs.ids))


def _token_entropy(provider: Provider, inputs: Tokens) -> Timed | None:
    both = provider.token_entropy
    return both and (lambda: both(inputs.x, inputs.ids))


def _token_backward(provider: Provider, inputs: Tokens) -> Timed | None:
    gradient = provider.token_backward
    return gradient and gradient(inputs.x, inputs.ids, inputs.weights)


def _token_both(provider: Provider, inputs: Tokens) -> Timed | None:
    """Takes logits of its own, as some write the gradient over them."""
    loss = provider.cross_entropy
    leaf = (inputs.x.clone() if provider.overwrites else inputs.x.detach()).requires_grad_()
    return loss and (lambda: torch.autograd.grad(loss(leaf, inputs.ids), leaf)[0])


def _log_probs(inputs: Tokens) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns log-probabilities of all columns, of ids, and the size of what these are a difference of, [n_rows]."""
    logs = torch.log_softmax(inputs.x.double(), -1)
    return logs, logs.gather(-1, inputs.ids.unsqueeze(-1)).squeeze(-1), 1 + logs.amax(-1) - logs.amin(-1)


def _token_expected(inputs: Tokens, dtype: torch.dtype) -> Expected:
    _, picked, size = _log_probs(inputs)
    return picked, allowed_of_terms(picked, dtype, size)


def _token_entropy_expected(inputs: Tokens, dtype: torch.dtype) -> Expected:
    logs, picked, size = _log_probs(inputs)
    results = torch.stack((picked, -(logs.exp() * logs).sum(-1)), -1)
    return results, allowed_of_terms(results, dtype, size.unsqueeze(-1))


def _token_gradient_expected(inputs: Tokens, dtype: torch.dtype) -> Expected:
    logs, _, _ = _log_probs(inputs)
    weights = inputs.weights.double().unsqueeze(-1)
    result = (-weights * logs.exp()).scatter_add_(-1, inputs.ids.unsqueeze(-1), weights)
    size = (weights.abs() * logs.exp()).scatter_add_(-1, inputs.ids.unsqueeze(-1), weights.abs()) * (1 + logs.abs())
    return result, allowed_of_terms(result, dtype, size)


DIRECTIONS = {
    "forward": Direction(_forward, _softmax_expected),  # x -> y
    "backward": Direction(_backward, _gradient_expected),  # dy, y -> dx
    "both": Direction(_both, _both_expected),  # forward, then backward: y is written and read again
    "log_softmax": Direction(_log_softmax, _log_softmax_expected),
    "token_log_probs": Direction(_token_log_probs, _token_expected, Tokens.random),
    "token_entropy": Direction(_token_entropy, _token_entropy_expected, Tokens.random),  # with log-probabilities
    "token_backward": Direction(_token_backward, _token_gradient_expected, Tokens.random),  # dx from gradients of [n_rows]
    "token_both": Direction(_token_both, _token_gradient_expected, Tokens.of_loss),  # mean cross-entropy, and its gradient
}


def worst_error(result: Any, inputs: Any, direction: Direction) -> float:
    """Returns the largest error in units of the allowed error; inf for nan.

    A cross-entropy is as right as the log-probability, which is of the other sign.
    """
    result = torch.stack(result, -1) if isinstance(result, tuple) else result
    error = _worst(result, inputs, direction)
    return error if error <= 1 else min(error, _worst(result, inputs, direction, -1))


def _worst(result: torch.Tensor, inputs: Any, direction: Direction, sign: int = 1) -> float:
    """Takes a few rows at a time, to save memory, and of large tensors every so-manieth, to save time."""
    n_rows, n_cols = inputs.x.shape
    step = max(1, n_rows * n_cols // MOST_CHECKED)
    rows_at_once = step * max(1, MOST_CHECKED // 2 // n_cols)
    worst = 0.0
    for start in range(0, n_rows, rows_at_once):
        part = slice(start, start + rows_at_once, step)
        worst = max(worst, distance(sign * result[part], *direction.expected(inputs.rows(part), result.dtype)).worst)
    return worst
