"""Plain softmaxes, their gradients, and log-probabilities of tokens: operands, calls, and a check against float64."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch

from benchmark.problems import Problem
from benchmark.providers import load
from benchmark.timing import Timed
from portable_probe.closeness import allowed_error, allowed_of_terms, distance

Expected = tuple[torch.Tensor, torch.Tensor]
MAX_CHECKED = 2**27  # elements of a result
LAST_DIM = ("liger", "quack")  # providers for contiguous rows alone


class Inputs(NamedTuple):
    """Operands of a softmax along a dim, all of one shape and type."""

    x: torch.Tensor
    y: torch.Tensor  # softmax of x
    dy: torch.Tensor
    dim: int

    @classmethod
    def random(cls, problem: Problem, where: str) -> "Inputs":
        """Makes operands: half of x spans a range of about 100, and a third of it is far from 0."""
        shape = list(problem.shape)
        for one, other in [problem.exchanged] if problem.exchanged else ():
            shape[one], shape[other] = shape[other], shape[one]
        x, dy = (torch.randn(shape, dtype=getattr(torch, problem.dtype), device=where) for _ in range(2))
        x[1::2] *= 12
        x[2::3] -= 300
        x, dy = (tensor.transpose(*problem.exchanged) if problem.exchanged else tensor for tensor in (x, dy))
        return cls(x, torch.softmax(x.contiguous(), problem.dim), dy, problem.dim)

    def matrices(self, result: torch.Tensor) -> "tuple[Inputs, torch.Tensor]":
        """Returns the operands and a result as rows."""
        x, y, dy, result = (tensor.movedim(self.dim, -1).flatten(0, -2) for tensor in (self.x, self.y, self.dy, result))
        return Inputs(x, y, dy, 1), result

    def rows(self, part: slice) -> "Inputs":
        """Returns some rows of matrices."""
        return Inputs(self.x[part], self.y[part], self.dy[part], 1)


class Tokens(NamedTuple):
    """Operands of log-probabilities of tokens."""

    x: torch.Tensor  # logits, [n_rows, n_cols]
    ids: torch.Tensor  # [n_rows]
    weights: torch.Tensor  # gradients of log-probabilities, [n_rows], float32

    @classmethod
    def random(cls, problem: Problem, where: str) -> "Tokens":
        """Makes operands; logits are spread like a model's, and gradients are equal in a mean over all tokens."""
        n_rows, n_cols = problem.shape
        x = torch.randn(n_rows, n_cols, dtype=getattr(torch, problem.dtype), device=where).mul_(3)
        weights = torch.randn(n_rows, device=where)
        weights = torch.full_like(weights, 1 / n_rows) if problem.direction == "token_both" else weights
        return cls(x, torch.randint(n_cols, (n_rows,), device=where), weights)

    def matrices(self, result: torch.Tensor) -> "tuple[Tokens, torch.Tensor]":
        """Returns the operands and a result, which are rows."""
        return self, result

    def rows(self, part: slice) -> "Tokens":
        """Returns some rows of all operands."""
        return Tokens(*(tensor[part] for tensor in self))


def timed(problem: Problem, where: str, names: Iterable[str]) -> Timed:
    """Makes a problem's operands and the calls of the providers that have the direction."""
    inputs = (Tokens if problem.direction in TOKENS else Inputs).random(problem, where)
    rows = problem.dim == len(problem.shape) - 1 and not problem.exchanged
    providers = load(name for name in names if rows or name not in LAST_DIM)
    calls = {name: made[problem.direction](inputs) for name, made in providers.items() if problem.direction in made}
    return Timed(calls, partial(_error_of, inputs, EXPECTED[problem.direction]))


def _error_of(inputs: Any, expected: Callable[[Any, torch.dtype], Expected], result: Any) -> float:
    """Returns the largest error in units of the allowed error.

    A cross-entropy is as right as the log-probability, which is of the other sign.
    """
    inputs, result = inputs.matrices(torch.stack(result, -1) if isinstance(result, tuple) else result)
    error = _worst(inputs, expected, result)
    return error if error <= 1 else min(error, _worst(inputs, expected, -result))


def _worst(inputs: Any, expected: Callable[[Any, torch.dtype], Expected], result: torch.Tensor) -> float:
    """Checks a few rows at a time, to save memory, and every so-manieth of large tensors, to save time."""
    n_rows, n_cols = inputs.x.shape
    step = max(1, n_rows * n_cols // MAX_CHECKED)
    rows_at_once = step * max(1, MAX_CHECKED // 2 // n_cols)
    parts = [slice(start, start + rows_at_once, step) for start in range(0, n_rows, rows_at_once)]
    return max(distance(result[part], *expected(inputs.rows(part), result.dtype)).worst for part in parts)


def _softmax(inputs: Inputs, dtype: torch.dtype) -> Expected:
    y = inputs.x.double().softmax(-1)
    return y, allowed_error(y, dtype)


def _log_softmax(inputs: Inputs, dtype: torch.dtype) -> Expected:
    shifted = inputs.x.double() - inputs.x.double().amax(-1, keepdim=True)
    result = shifted - shifted.exp().sum(-1, keepdim=True).log()
    return result, allowed_of_terms(result, dtype, 1.0, dtype)


def _gradient(inputs: Inputs, dtype: torch.dtype) -> Expected:
    """Allows an error relative to the terms of the sum, because terms of both signs cancel."""
    dy, y = inputs.dy.double(), inputs.y.double()
    result = y * (dy - (dy * y).sum(-1, keepdim=True))
    terms = y * (dy.abs() + (dy * y).abs().sum(-1, keepdim=True))
    return result, allowed_of_terms(result, dtype, terms, dtype)


def _both(inputs: Inputs, dtype: torch.dtype) -> Expected:
    """Allows twice the error, because y is rounded in between."""
    result, allowed = _gradient(inputs._replace(y=inputs.x.double().softmax(-1)), dtype)
    return result, 2 * allowed


def _log_probs(inputs: Tokens) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns log-probabilities of all columns, of ids, and the size of what these are a difference of, [n_rows]."""
    logs = torch.log_softmax(inputs.x.double(), -1)
    return logs, logs.gather(-1, inputs.ids.unsqueeze(-1)).squeeze(-1), 1 + logs.amax(-1) - logs.amin(-1)


def _token(inputs: Tokens, dtype: torch.dtype) -> Expected:
    _, picked, size = _log_probs(inputs)
    return picked, allowed_of_terms(picked, dtype, size)


def _token_entropy(inputs: Tokens, dtype: torch.dtype) -> Expected:
    logs, picked, size = _log_probs(inputs)
    results = torch.stack((picked, -(logs.exp() * logs).sum(-1)), -1)
    return results, allowed_of_terms(results, dtype, size.unsqueeze(-1))


def _token_gradient(inputs: Tokens, dtype: torch.dtype) -> Expected:
    logs, _, _ = _log_probs(inputs)
    weights = inputs.weights.double().unsqueeze(-1)
    result = (-weights * logs.exp()).scatter_add_(-1, inputs.ids.unsqueeze(-1), weights)
    size = (weights.abs() * logs.exp()).scatter_add_(-1, inputs.ids.unsqueeze(-1), weights.abs()) * (1 + logs.abs())
    return result, allowed_of_terms(result, dtype, size)


TOKENS = {
    "token_log_probs": _token,
    "token_entropy": _token_entropy,  # with log-probabilities
    "token_backward": _token_gradient,  # dx from gradients of [n_rows]
    "token_both": _token_gradient,  # mean cross-entropy, and its gradient
}
EXPECTED: dict[str, Callable[[Any, torch.dtype], Expected]] = {
    "forward": _softmax,  # x -> y
    "backward": _gradient,  # dy, y -> dx
    "both": _both,  # forward, then backward: y is written and read again
    "log_softmax": _log_softmax,
    **TOKENS,
}
