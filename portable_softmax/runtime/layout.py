"""Layouts that kernels read, in place or after a copy, and launches bound to them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.runtime.launch import bind_problem, problem_from

Copy = Callable[[Tensor, int], Tensor]


def bind(
    tensors: tuple[Tensor, ...], n_results: int, dim: int, device: Device, mask: Tensor | None = None,
    sizes: Mapping[str, int] | None = None, **about: Any,
) -> Callable[..., None]:  # fmt: skip
    """Plans, compiles and returns launch(*tensors, *more): `more` are a mask, tensors of rows and numbers, in a kernel's order.

    The device must be the current one when it is called: see guard.py.

    Args:
        tensors: those of x's shape, the result first.
        n_results: 1, or 0 if none is written.
        dim: the axis of rows.
        device: where they are.
        mask: as the caller passed it.
        sizes: integers that only this kernel has, by name.
        about: what Problem describes of the computation.
    """
    whole_mask = None if mask is None else expanded(mask, tensors[0], dim)
    copy, copies_mask, problem = described(tensors, dim, device, whole_mask, **about)
    launch = bind_problem(problem, device, tensors[0].device, sizes)
    if copy is None:
        return launch
    shape, like = tensors[0].shape, copy(_without_memory(tensors[-1]), dim)
    room, direct = like.stride(), n_results == 1 and like.stride() == tensors[0].stride() and _is_aligned(tensors[0])

    def on_copies(*operands: Any) -> None:
        inputs = [copy(t, dim) for t in operands[n_results : len(tensors)]]
        more = operands[len(tensors) :]
        if copies_mask:
            more = (copy(expanded(more[0], operands[0], dim), dim), *more[1:])
        if direct or not n_results:
            launch(*operands[:n_results], *inputs, *more)
            return
        result = torch.empty_strided(shape, room, dtype=operands[0].dtype, device=operands[0].device)
        launch(result, *inputs, *more)
        operands[0].copy_(result)

    return on_copies


def described(
    tensors: tuple[Tensor, ...], dim: int, device: Device, mask: Tensor | None = None, *, backward: bool = False, **about: Any
) -> tuple[Copy | None, bool, Problem]:
    """Returns (how inputs are copied first or None, True if the mask is too, the problem) of a launch.

    Args:
        tensors: those of x's shape, the result first; on meta too.
        dim: the axis of rows.
        device: which the launch is for.
        mask: of that shape, by strides of 0.
        backward, about: see Problem.
    """
    ways: list[tuple[Copy | None, bool]] = [(None, False), (_contiguous, False), (_in_rows, False), (_in_rows, True)]
    for copy, copies_mask in ways:
        laid_out = tensors if copy is None else tuple(copy(_without_memory(t), dim) for t in tensors)
        hidden = copy(_without_memory(mask), dim) if copies_mask and copy and mask is not None else mask
        operands = laid_out if len(laid_out) > 1 else laid_out * 2
        problem = problem_from(operands, dim, device, hidden, backward=backward, **about)
        if problem and (not problem.batch_invariant or _as_if_contiguous(problem)):
            break
    assert problem, "contiguous rows are read as they are laid out"
    return copy, copies_mask, problem


def _as_if_contiguous(problem: Problem) -> bool:
    """True if rows start on the multiple that their length alone implies, so that all are read alike."""
    if problem.across or (problem.depth > 1 and not problem.numbered):
        return False
    return problem.aligned and problem.vector == math.gcd(problem.n_cols, problem.widest)


def expanded(mask: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns a mask in the shape of x, by strides of 0; one of bits has its words along dim."""
    along = x.shape[dim] if mask.dtype is not torch.int32 else mask.shape[dim - x.dim()]
    return mask.expand(*x.shape[:dim], along, *x.shape[dim + 1 :])


def _without_memory(t: Tensor) -> Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def _is_aligned(t: Tensor) -> bool:
    return t.is_meta or t.data_ptr() % VECTOR_BYTES == 0


def _contiguous(t: Tensor, dim: int) -> Tensor:
    """Copies a tensor that is not contiguous, or does not start on a multiple of VECTOR_BYTES, as the launch expects it to."""
    return t if t.is_contiguous() and _is_aligned(t) else t.clone(memory_format=torch.contiguous_format)


def _in_rows(t: Tensor, dim: int) -> Tensor:
    """Copies a tensor so that its rows follow each other."""
    return t.movedim(dim, -1).clone(memory_format=torch.contiguous_format).movedim(-1, dim)
