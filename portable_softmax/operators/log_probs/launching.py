"""Log-probabilities and their gradient by one launch each; or by torch, for tensors on the CPU."""

from collections.abc import Callable

import torch

from portable_softmax.operators.arguments import device_of
from portable_softmax.operators.launching import bound, by_torch
from portable_softmax.operators.log_probs import by_torch as torchs
from portable_softmax.operators.log_probs.asked import Asked, AskedGradient, call_of, call_of_gradient
from portable_softmax.runtime.allocation import allocator
from portable_softmax.runtime.guard import guard_of

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Run = Callable[..., Results]


def forward(asked: Asked, batch_invariant: bool) -> Results:
    """Computes log-probabilities of chosen elements.

    Args:
        asked: what of; x is copied only if its strides or `batch_invariant` need it.
        batch_invariant: True if a row's bits may not depend on the other rows.

    Returns:
        (log-probabilities, of the shape of ids; numbers of rows, of `asked.statistics_shape`; ranks, int64, of the shape of
        ids, or of no elements where none are asked for).

    Raises:
        IndexError, DtypeError, DeviceError, PlanError, CompileError: the cases of api.log_probs.token_log_probs.
    """
    if by_torch(asked.x):
        return torchs.forward(asked)
    run, factors = bound_forward(asked, batch_invariant)
    return run(asked.x, asked.ids, *factors)


def bound_forward(asked: Asked, batch_invariant: bool) -> tuple[Run, tuple[torch.Tensor, ...]]:
    """Returns run(x, ids, *factors, picked=None), which computes calls like this one, and the factors that it takes.

    It writes log-probabilities to `picked` if that is given: contiguous, of the shape of ids.
    """
    call, (x, *factors) = call_of(asked, batch_invariant)
    ids, dtype, empty = asked.ids, asked.compute, allocator(x.device)
    if not x.numel():
        return _of_nothing(asked), ()
    current, number, made_current = guard_of(device_of(x))
    ids_shape, ids_strides = tuple(ids.shape), ids.stride()
    shape = tuple(asked.statistics_shape)
    strides = x.new_empty(shape, device="meta").stride()
    ranked = asked.rank
    probe = x.new_empty(0, dtype=dtype)
    launch = bound(call, (x, *factors, probe, ids, probe, *((ids,) if ranked else ())))

    def run(x: torch.Tensor, ids: torch.Tensor, *factors: torch.Tensor, picked: torch.Tensor | None = None) -> Results:
        if current() != number:
            with made_current():
                return run(x, ids, *factors, picked=picked)
        picked = empty(ids_shape, ids_strides, dtype) if picked is None else picked
        statistics = empty(shape, strides, dtype)
        if ranked:
            ranks = empty(ids_shape, ids_strides, torch.int64).zero_()
            launch(x, *factors, statistics, ids, picked, ranks)
        else:
            ranks = empty((0,), (1,), torch.int64)
            launch(x, *factors, statistics, ids, picked)
        return picked, statistics, ranks

    return run, tuple(factors)


def backward(given: AskedGradient, out: torch.Tensor | None = None) -> torch.Tensor:
    """Computes the gradient of x.

    Args:
        given: what of.
        out: what it is written to: of the shape and type of x, and any strides; x itself, or memory of no operand.

    Returns:
        `out`, or a new contiguous tensor.

    Raises:
        DtypeError, DeviceError, PlanError, CompileError: no kernel computes it.
    """
    x, numbers = given.x, (given.statistics, given.ids, given.dpicked)
    if by_torch(x):
        dx = torchs.backward(given)
        return dx if out is None else out.copy_(dx)
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    if x.numel():
        call, operands = call_of_gradient(given.asked)
        operands = (*operands, *numbers) if given.dentropy is None else (*operands, *numbers, given.dentropy)
        bound(call, operands, out)(out, *operands)
    return out


def _of_nothing(asked: Asked) -> Run:
    """Returns what computes results of rows without elements: nan, but 0 for ids that are ignored."""

    def run(x: torch.Tensor, ids: torch.Tensor, *, picked: torch.Tensor | None = None) -> Results:
        found = torch.where(ids == asked.ignore_index, 0.0, float("nan")).to(asked.compute)
        statistics = x.new_zeros(asked.statistics_shape, dtype=asked.compute)
        ranks = torch.zeros_like(ids if asked.rank else ids.flatten()[:0])
        return found if picked is None else picked.copy_(found), statistics, ranks

    return run
