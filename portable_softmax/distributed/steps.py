"""Both steps of a sharded softmax on one device, by a kernel each, or by torch for tensors on the CPU.

Operands a and b are those of kernels/formulas.py: both are x forward; dy and y backward. Rows are numbered as their
elements lie in a contiguous tensor. kernels/shards.py describes statistics.
"""

import math

import torch

from portable_softmax.invariance import is_batch_invariant
from portable_softmax.operators.arguments import check_layout
from portable_softmax.operators.call import Call
from portable_softmax.operators.launching import bound, by_torch
from portable_softmax.planning.problem import FORMS


def statistics_like(a: torch.Tensor, dim: int, dtype: torch.dtype, backward: bool) -> torch.Tensor:
    """Allocates one group of statistics for the rows of `a`: [1, 2, n_rows], or [1, 1, n_rows] for a gradient.

    Args:
        a: any shape.
        dim: the axis of the softmax, counted from 0.
        dtype: type of the softmax's result.
        backward: True for a gradient.
    """
    compute = torch.float64 if dtype == torch.float64 else torch.float32
    n_rows = math.prod([*a.shape[:dim], *a.shape[dim + 1 :]])
    return a.new_empty((1, 1 if backward else 2, n_rows), dtype=compute)


def check(form: str, *tensors: torch.Tensor) -> None:
    """Raises a ValueError if there is no such form, and a LayoutError for tensors that are not strided."""
    if form not in FORMS:
        raise ValueError(f"form {form!r} was asked for; there are {', '.join(FORMS)}")
    for each in tensors:
        check_layout(form, each)


def reduce_shard(a: torch.Tensor, b: torch.Tensor, dim: int, dtype: torch.dtype, form: str, backward: bool) -> torch.Tensor:
    """Computes one group of statistics of a shard; those of a shard of no columns change no other's.

    Args:
        a, b: any shape of at least one dimension, any strides.
        dim: the axis of the softmax, counted from 0.
        dtype: type of the softmax's result, which an input is rounded to first.
        form: softmax, log_softmax or softmin.
        backward: True for a gradient.

    Returns:
        [1, 2, n_rows], or [1, 1, n_rows] for a gradient: float32, but float64 for float64.

    Raises:
        ValueError, LayoutError: the cases of `check`.
        DtypeError, DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    check(form, a, b)
    statistics = statistics_like(a, dim, dtype, backward)
    if not a.numel():
        statistics.zero_()
        if not backward:
            statistics[:, 0] = -torch.inf
    elif by_torch(a):
        _reduce_by_torch(a, b, dim, dtype, form, statistics)
    else:
        call = Call(form, dim, dtype, is_batch_invariant(), backward=backward, step="reduce")
        operands = (a, b, statistics) if backward else (a, statistics)
        bound(call, operands)(*operands)
    return statistics


def map_shard(
    a: torch.Tensor, b: torch.Tensor, statistics: torch.Tensor, out: torch.Tensor, dim: int, form: str, backward: bool
) -> None:
    """Writes the results of a shard.

    Args:
        a, b: as of reduce_shard.
        statistics: [groups, 2, n_rows], contiguous, or [groups, 1, n_rows] for a gradient; of all groups.
        out: of the same shape, any strides.
        dim: the axis of the softmax, counted from 0.
        form: softmax, log_softmax or softmin.
        backward: True for a gradient.

    Raises:
        ValueError, LayoutError: the cases of `check`.
        DtypeError, DeviceError, PlanError, CompileError: the kernel cannot run on the device.
    """
    check(form, a, b, statistics, out)
    if not a.numel():
        return
    if by_torch(a):
        _map_by_torch(a, b, statistics, out, dim, form, backward)
    else:
        dtype = b.dtype if backward else out.dtype
        call = Call(form, dim, dtype, is_batch_invariant(), backward=backward, step="map")
        operands = (a, b, statistics) if backward else (a, statistics)
        bound(call, operands, out)(out, *operands)


def _input(x: torch.Tensor, dtype: torch.dtype, form: str) -> torch.Tensor:
    x = x.to(dtype).to(torch.promote_types(dtype, torch.float32))
    return -x if form == "softmin" else x


def _base_of(first: torch.Tensor) -> torch.Tensor:
    return torch.where(first == -torch.inf, 0.0, first)


def combined(firsts: torch.Tensor, seconds: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Returns what groups' sums are, by the maximum of all of them: to be added up. All -inf gives 0."""
    return seconds * (firsts - _base_of(first)).exp()


def _reduce_by_torch(
    a: torch.Tensor, b: torch.Tensor, dim: int, dtype: torch.dtype, form: str, statistics: torch.Tensor
) -> None:
    if statistics.shape[1] == 1:
        a = a.to(statistics.dtype)
        statistics[0, 0] = (a if form == "log_softmax" else a * b).sum(dim).flatten()
        return
    x = _input(a, dtype, form)
    first = x.amax(dim, keepdim=True)
    statistics[0, 0], statistics[0, 1] = first.flatten(), (x - _base_of(first)).exp().sum(dim).flatten()


def _map_by_torch(
    a: torch.Tensor, b: torch.Tensor, statistics: torch.Tensor, out: torch.Tensor, dim: int, form: str, backward: bool
) -> None:
    rows = [*a.shape[:dim], 1, *a.shape[dim + 1 :]]
    if backward:
        first, a, b = statistics.sum(0).view(rows), a.to(statistics.dtype), b.to(statistics.dtype)
        dx = a - b.exp() * first if form == "log_softmax" else b * (a - first)
        out.copy_(-dx if form == "softmin" else dx)
        return
    first = statistics[:, 0].amax(0)
    second = combined(statistics[:, 0], statistics[:, 1], first).sum(0).view(rows)
    shifted = _input(a, out.dtype, form) - first.view(rows)
    out.copy_(shifted - second.log() if form == "log_softmax" else shifted.exp() / second)
