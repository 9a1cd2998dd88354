"""The softmax, and log-probabilities of tokens, of a DTensor: local where each rank holds whole rows, else as of a shard."""

from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.experimental import register_sharding

from portable_softmax.distributed.entry import sharded
from portable_softmax.distributed.log_probs import NAME
from portable_softmax.distributed.log_probs import sharded as sharded_log_probs
from portable_softmax.operators.arguments import int_of, wrap_dim
from portable_softmax.operators.dispatch import call
from portable_softmax.operators.library import operator
from portable_softmax.operators.log_probs.call import Given
from portable_softmax.operators.log_probs.call import call as token_log_probs
from portable_softmax.planning.problem import FORMS


def of_dtensor(form: str, x: Any, dim: int, dtype: torch.dtype | None) -> torch.Tensor:
    """Computes the softmax of a DTensor, and gives a DTensor of the same placements, but no partial ones.

    Partial placements are redistributed first, as replicated ones: that is an all-reduce of the whole tensor.

    Args:
        form: softmax, log_softmax or softmin.
        x: a DTensor, of any mesh and placements.
        dim: the axis along which the result sums to 1; it may be sharded over any number of the mesh's dimensions.
        dtype: as of api.functional.softmax.

    Raises:
        IndexError, TypeError, ValueError, RuntimeError: the cases of entry.sharded.
    """
    dim, mesh = wrap_dim(int_of(form, dim), x.dim()), x.device_mesh
    placements = tuple(Replicate() if each.is_partial() else each for each in x.placements)
    if placements != x.placements:
        x = x.redistribute(placements=placements)
    groups = [mesh.get_group(at) for at, each in enumerate(placements) if getattr(each, "dim", None) == dim]
    part = x.to_local() if is_dynamo_compiling() else _Part.apply(x)
    y = sharded(form, part, dim, dtype, groups) if groups else call(form, part, dim, dtype)
    return _whole(y, mesh, placements, x.shape)


def log_probs_of_dtensor(x: Any, ids: Any, given: Given, out: Any) -> Any:
    """Computes log-probabilities of tokens, and what else is asked for, of a DTensor of logits; gives DTensors.

    Results have the placements of x, but for its own dim, of which they are replicated; partial ones are replicated first.

    Args:
        x: logits, of any mesh and placements.
        ids: a DTensor of that mesh, or a tensor that all ranks have alike.
        given: as log_probs.sharded takes it.
        out: None.

    Raises:
        TypeError, RuntimeError: the cases of log_probs.sharded.
        ValueError: there is an `out`, or a scale or temperature is a tensor.
    """
    if out is not None:
        raise ValueError(f"{NAME}() of a DTensor was asked for with out=; give none")
    if any(isinstance(each, torch.Tensor) for each in (given.scale, given.temperature)):
        raise ValueError(f"{NAME}() of a DTensor was asked for with one number for each row; apply it to logits first")
    dim, mesh = wrap_dim(int_of(NAME, given.dim), x.dim()), x.device_mesh
    placements = tuple(Replicate() if each.is_partial() else each for each in x.placements)
    x = x if placements == x.placements else x.redistribute(placements=placements)
    at = [getattr(each, "dim", None) for each in placements]
    rows = [Replicate() if each in (None, dim) else Shard(each - (each > dim)) for each in at]
    if not isinstance(ids, DTensor):
        ids = DTensor.from_local(ids, mesh, [Replicate()] * mesh.ndim, run_check=False)
    part = x.to_local() if is_dynamo_compiling() else _Part.apply(x)
    tokens = ids.redistribute(placements=rows).to_local()
    groups = [mesh.get_group(k) for k, each in enumerate(at) if each == dim]
    if groups:
        _, offsets = compute_local_shape_and_global_offset(x.shape, mesh, placements)
        found = sharded_log_probs(part, tokens, given, None, groups, offsets[dim])
    else:
        found = token_log_probs(part, tokens, *given, None)
    others = torch.Size([*x.shape[:dim], *x.shape[dim + 1 :]])
    shapes = ids.shape, *([others] if given.entropy else []), ids.shape
    every = found if isinstance(found, tuple) else (found,)
    wholes = tuple(_whole(each, mesh, tuple(rows), shape) for each, shape in zip(every, shapes, strict=False))
    return wholes if isinstance(found, tuple) else wholes[0]


def _whole(part: torch.Tensor, mesh: Any, placements: tuple[Any, ...], shape: torch.Size) -> torch.Tensor:
    strides = torch.empty(shape, device="meta").stride()
    result: torch.Tensor = DTensor.from_local(part, mesh, placements, run_check=False, shape=shape, stride=strides)
    return result


class _Part(torch.autograd.Function):
    """Does what DTensor.to_local does, but for the strides of the gradient, which that one reckons as of even shards.

    A leaf's gradient with other strides than the leaf is copied by autograd, and torch 2.11 replicates a copy of uneven shards.
    """

    @staticmethod
    def forward(ctx: Any, x: Any) -> torch.Tensor:
        ctx.mesh, ctx.placements, ctx.shape = x.device_mesh, x.placements, x.shape
        part: torch.Tensor = x.to_local()
        return part.view_as(part)

    @staticmethod
    def backward(ctx: Any, dx: torch.Tensor) -> torch.Tensor:
        return _whole(dx, ctx.mesh, ctx.placements, ctx.shape)


def _register_rules() -> None:
    """Tells DTensor how the package's operators keep their shards, for calls that go to an operator itself.

    There a dim that is sharded is gathered first: an operator has no group.
    """

    def forward(x: Any, dim: int = -1, dtype: torch.dtype | None = None) -> Any:
        return [([each], [each, None, None]) for each in _kept(x, dim)]

    def backward(dy: Any, y: Any, dim: int, x_dtype: torch.dtype) -> Any:
        return [([each], [each, each, None, None]) for each in _kept(y, dim)]

    for form in FORMS:
        register_sharding(operator(form))(forward)
        register_sharding(operator(f"{form}_backward"))(backward)


def _kept(x: Any, dim: int) -> list[Any]:
    """Returns the placements with which a rank holds whole rows."""
    dim = wrap_dim(dim, x.ndim)
    return [Replicate(), *(Shard(each) for each in range(x.ndim) if each != dim)]


_register_rules()
