"""The softmax of a shard, whose rows are completed by the other ranks of process groups, and its gradient."""

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.distributed import ProcessGroup, all_gather_object
from torch.distributed.distributed_c10d import DebugLevel, get_debug_level

from portable_softmax.distributed.exchange import Group, Groups, exchanged
from portable_softmax.distributed.operators import map_shard, reduce_shard
from portable_softmax.errors import DtypeError
from portable_softmax.invariance import in_context, is_batch_invariant
from portable_softmax.operators.arguments import (
    KERNEL_DTYPES,
    autocast_dtype,
    converted,
    read,
)


def sharded(
    form: str,
    x: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None,
    groups: Sequence[ProcessGroup],
) -> torch.Tensor:
    """Computes the softmax of rows of which each rank of the groups holds a part, in two launches and one collective or two.

    Every rank calls it with the same arguments but for x, whose shapes may differ along `dim` alone, and may be 0 there.
    Differentiable once, in reverse mode, with one more collective.

    Args:
        form: softmax, log_softmax or softmin.
        x: this rank's part, any strides; its type is one of api.functional.softmax.
        dim: the axis along which the results of all ranks sum to 1.
        dtype: as of api.functional.softmax.
        groups: process groups whose ranks together hold each row, as a mesh has them: one for each of its dimensions.

    Returns:
        A contiguous tensor of the shape of x: this rank's part of the result.

    Raises:
        TypeError: `groups` are something else.
        IndexError, DtypeError, LayoutError, DeviceError, PlanError, CompileError: the cases of api.functional.softmax.
        RuntimeError: a rank is lost, or its shapes differ; as torch.distributed finds it, at latest at the group's timeout.
        ValueError: shapes differ, and TORCH_DISTRIBUTED_DEBUG is INFO or DETAIL: then they are compared first.
    """
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{form}(): argument 'input' must be Tensor, not {type(x).__name__}")
    if hasattr(x, "device_mesh"):
        raise ValueError(
            f"{form} of a DTensor was asked for with a group; its mesh says which ranks hold its rows: give no group"
        )
    dim, dtype = read(form, x, dim, dtype)
    form, x = converted(form, x, dtype)
    dtype = dtype or autocast_dtype(x)
    if not {x.dtype, dtype} <= KERNEL_DTYPES:
        raise DtypeError(f"{form} of {x.dtype} as {dtype} was asked for; name a floating-point dtype of 16, 32 or 64 bits")
    result: torch.Tensor = _Sharded.apply(x, dim, dtype, form, named(groups, f"{form} of {dtype} along dim {dim}", x, dim))
    return result


def named(groups: Sequence[Any], asked: str, x: torch.Tensor, dim: int) -> Groups:
    """Returns groups as collectives know them, but those of one rank; what is asked is compared first where torch debugs."""
    checked = [checked_group(each) for each in groups]
    if not is_dynamo_compiling() and get_debug_level() != DebugLevel.OFF:
        for each in checked:
            _compare(each, asked, [*x.shape[:dim], "...", *x.shape[dim + 1 :]])
    return tuple([Group(each.group_name, each.size()) for each in checked if each.size() > 1])


def _compare(group: ProcessGroup, *said: Any) -> None:
    """Compares what the ranks of a group are about to do.

    Raises:
        ValueError: it differs; on all ranks.
    """
    everyones: list[Any] = [None] * group.size()
    all_gather_object(everyones, said, group)
    if any(each != said for each in everyones):
        raise ValueError(
            f"ranks of one group differ in what they compute: {'; '.join(f'{form}, {shape}' for form, shape in everyones)}"
        )


def checked_group(group: Any) -> ProcessGroup:
    """Returns a process group, or raises a TypeError for what is none."""
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group is a torch.distributed.ProcessGroup that this rank belongs to, not {type(group).__name__}")
    return group


class _Sharded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int, dtype: torch.dtype, form: str, groups: Groups) -> torch.Tensor:
        y = x.new_empty(x.shape, dtype=dtype)
        _compute(x, x, y, dim, dtype, form, groups, False)
        ctx.save_for_backward(y)
        ctx.dim, ctx.x_dtype, ctx.form, ctx.groups = dim, x.dtype, form, groups
        ctx.invariant = None if is_dynamo_compiling() else is_batch_invariant()
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[Any, ...]:
        (y,) = ctx.saved_tensors
        with contextlib.nullcontext() if ctx.invariant is None else in_context(ctx.invariant):
            dx = _Gradient.apply(dy, y, ctx.dim, ctx.x_dtype, ctx.form, ctx.groups)
        return dx, None, None, None, None


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, dy: torch.Tensor, y: torch.Tensor, dim: int, x_dtype: torch.dtype, form: str, groups: Groups
    ) -> torch.Tensor:
        dx = y.new_empty(y.shape, dtype=x_dtype)
        _compute(dy, y, dx, dim, y.dtype, form, groups, True)
        return dx

    @staticmethod
    def backward(ctx: Any, ddx: torch.Tensor) -> tuple[Any, ...]:
        raise RuntimeError("a second derivative of a sharded softmax was asked for; it has only a first one")


def _compute(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, dim: int, dtype: torch.dtype, form: str, groups: Groups, backward: bool
) -> None:
    """Reduces, makes whole rows' numbers of each shard's, and maps."""
    if not out.dim():  # a number is a row of one
        a, b, out = a.view(1), b.view(1), out.view(1)
    if not math.prod([*out.shape[:dim], *out.shape[dim + 1 :]]):
        return  # no rows, on any rank
    numbers = exchanged(reduce_shard(a, b, dim, dtype, form, backward), groups)
    map_shard(a, b, numbers, out, dim, form, backward)
