"""Launches of log-probabilities and their gradient: tensors and numbers in the order of the kernels' parameters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from portable_softmax.operators.launch import allocation, device_of, is_launched, row_shape
from portable_softmax.operators.softmax_launch import factors, fields_of
from portable_softmax.planning.log_probs import LogProbs
from portable_softmax.planning.scores import Scores
from portable_softmax.runtime.layout import bind


def log_probs(inputs: Any, options: Any, invariant: bool) -> Callable[..., Any] | None:
    """Returns run(inputs), which launches calls like this one; None if no kernel computes them.

    `run` returns (log-probabilities, statistics of rows, logsumexp or None, entropies or None).

    Args:
        inputs: (x, ids, scale, temperature, softcap), of plain tensors.
        options: (dim, ignore_index, entropy, lse).
        invariant: the bits of a row must not depend on other rows.
    """
    dim, ignore_index, entropy, lse = options
    fields = problem_fields(inputs, torch.float32, invariant, entropy=entropy, lse=lse)
    if fields is None or not is_launched(inputs[0], dim):
        return None
    launch, tail = _bound(inputs, dim, ignore_index, None, fields)
    x, ids = inputs[:2]
    shape = torch.Size([2 if entropy else 1, *x.shape[:dim], *x.shape[dim + 1 :]])
    empty, empty_statistics = allocation(ids.shape, torch.float32, x), allocation(shape, torch.float32, x)

    def run(inputs: Any) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        x, ids, scale, temperature, _ = inputs
        picked, statistics = empty(x), empty_statistics(x)
        rows, numbers = tail(x, scale, temperature)
        launch(x, *rows, *statistics.unbind(), _ids(ids), picked, *numbers)
        total, entropies = (
            statistics.select(0, 0).clone() if lse else None,
            statistics.select(0, 1).clone() if entropy else None,
        )
        return picked, statistics, total, entropies

    return run


def log_probs_gradient(
    inputs: Any, options: tuple[int, int], in_place: bool, lse: bool, entropy: bool
) -> Callable[..., Tensor] | None:
    """Returns run(inputs, statistics, dpicked, dlse, dentropy), which launches the gradient of x; None if no kernel does.

    Args:
        inputs: (x, ids, scale, temperature, softcap), of plain tensors.
        options: (dim, ignore_index).
        in_place: the gradient is written over x.
        lse, entropy: logsumexp and entropies have a gradient.
    """
    (x, ids), (dim, ignore_index) = inputs[:2], options
    many = (ids.shape[-1] if ids.dim() == x.dim() else 1) != 1
    empty = allocation(x.shape, x.dtype, x)
    result = x if in_place else empty(x)
    about = {"gradient": True, "many": many, "entropy": entropy, "lse": lse}
    fields = problem_fields(inputs, None, False, **about)
    if fields is None or not is_launched(x, dim) or (in_place and 0 in x.stride()):  # which torch's copy refuses
        return None
    launch, tail = _bound(inputs, dim, ignore_index, result, fields)

    def run(inputs: Any, statistics: Tensor, dpicked: Tensor, dlse: Tensor | None, dentropy: Tensor | None) -> Tensor:
        x, ids, scale, temperature, _ = inputs
        dx = x.detach() if in_place else empty(x)
        rows, numbers = tail(x, scale, temperature)
        more = [t.contiguous() for t in (dentropy, dlse) if t is not None]
        launch(dx, x, *rows, *statistics.contiguous()[: 1 + entropy].unbind(), _ids(ids), dpicked.contiguous(), *more, *numbers)
        return dx

    return run


def problem_fields(inputs: Any, y_dtype: torch.dtype | None, invariant: bool, **about: bool) -> dict[str, Any] | None:
    """Returns what Problem describes of a launch, `about` being fields of LogProbs; None if no kernel computes these scores."""
    _, _, scale, temperature, softcap = inputs
    found = fields_of(scale, temperature, softcap)
    if found is None:
        return None
    scores, wanted = Scores(**found), LogProbs(**about)
    return {"form": "log_softmax", "batch_invariant": invariant, "scores": scores, "log_probs": wanted, "y_dtype": y_dtype}


def _bound(
    inputs: Any, dim: int, ignore_index: int, result: Tensor | None, fields: dict[str, Any]
) -> tuple[Callable[..., None], Callable[..., Any]]:
    """Returns (the launch, what makes (tensors of rows, numbers) of x, scale and temperature)."""
    x, ids = inputs[:2]
    tensors = (x,) if result is None else (result, x)
    sizes = {"n_ids": ids.shape[-1] if ids.dim() == x.dim() else 1, "ignored": ignore_index}
    launch = bind(tensors, len(tensors) - 1, dim, device_of(x), sizes=sizes, **fields)
    scores, shape = fields["scores"], row_shape(x, dim)
    return launch, lambda x, scale, temperature: factors(scores, scale, temperature, shape, x)


def _ids(ids: Tensor) -> Tensor:
    return ids if ids.dtype is torch.int64 and ids.is_contiguous() else ids.to(torch.int64).contiguous()
