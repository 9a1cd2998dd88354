"""Layouts that kernels read, in place or after a copy, and launches of them."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.planner import launch_of
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, Problem
from portable_softmax.runtime.bind import Launch
from portable_softmax.runtime.plans import choice_of

Copy = Callable[[Tensor, int], Tensor]


def bind_call(
    tensors: tuple[Tensor, ...],
    dim: int,
    device: Device,
    mask: Tensor | None = None,
    sizes: Mapping[str, int] | None = None,
    **about: Any,
) -> Launch:
    """Plans and compiles the launch of calls with tensors of the same shapes, strides, types and alignment.

    Arguments are those of `described`; sizes are n_ids and ignored of log-probabilities.

    Raises:
        PlanError, CompileError: the kernel cannot run on the device.
    """
    copy, copies_mask, problem = described(tensors, dim, device, mask, **about)
    copied = copy and _copies(tensors, dim, copy, copies_mask, problem.stores)
    choice, where = choice_of(problem, device), tensors[0].device
    plan = launch_of(choice, problem, device)
    return Launch(plan, device, where, like=choice.problem, sizes=sizes, copied=copied)


def _copies(
    tensors: tuple[Tensor, ...], dim: int, copy: Copy, copies_mask: bool, stores: bool
) -> Callable[[tuple[Any, ...]], list[Any]]:
    """Returns a function of a launch's operands that returns those that its kernels read and write in their place."""
    inputs = range(1, len(tensors)) if stores else range(2, 2 + len(tensors))  # a mask is behind the first
    room = copy(_without_memory(tensors[-1]), dim).stride()
    replaces_result = stores and not (room == tensors[0].stride() and _is_aligned(tensors[0]))

    def copied(operands: tuple[Any, ...]) -> list[Any]:
        passed = list(operands)
        for at in inputs:
            passed[at] = copy(operands[at], dim)
        if copies_mask:
            x, mask = operands[inputs[0] : inputs[0] + 2]
            passed[inputs[0] + 1] = copy(_expanded(mask, x, dim), dim)
        if replaces_result:
            passed[0] = torch.empty_strided(operands[0].shape, room, dtype=operands[0].dtype, device=operands[0].device)
        return passed

    return copied


def described(
    tensors: tuple[Tensor, ...], dim: int, device: Device, mask: Tensor | None = None, **about: Any
) -> tuple[Copy | None, bool, Problem]:
    """Returns (how inputs are copied first or None, True if the mask is too, the problem) of a launch.

    Args:
        tensors: those of x's shape, the result first; on meta too.
        dim: the axis of rows.
        device: which the launch is for.
        mask: as the caller passed it.
        about: form, scores, log_probs, batch_invariant and backward; see Problem.
    """
    whole_mask = None if mask is None else _expanded(mask, tensors[0], dim)
    ways: list[tuple[Copy | None, bool]] = [(None, False), (_contiguous, False), (_in_rows, False), (_in_rows, True)]
    for copy, copies_mask in ways:
        operands = tensors
        if copy is not None:
            operands = tuple(copy(_without_memory(t), dim) for t in tensors)
        if copy is not None and copies_mask and whole_mask is not None:
            whole_mask = copy(_without_memory(whole_mask), dim)
        problem = problem_from(operands, dim, device, whole_mask, **about)
        if problem and (not problem.batch_invariant or _as_if_contiguous(problem)):
            return copy, copies_mask, problem
    raise AssertionError("contiguous rows are read as they are laid out")


def problem_from(
    tensors: tuple[Tensor, ...], dim: int, device: Device, mask: Tensor | None = None, **about: Any
) -> Problem | None:
    """Returns the problem of a launch, None if operands must be copied first; arguments as of `described`."""
    scores, of_tokens = about.get("scores", NONE), about.get("log_probs") is not None
    operands = tensors if len(tensors) > 1 else tensors * 2  # log-probabilities have no result of x's shape
    y, x = operands[:2]
    if about.get("backward"):
        x, y = y, x  # dx, and dy, which is of the type of y
    problem = problem_of(
        x.shape,
        dim,
        [operand.stride() for operand in operands],
        (name_of(x.dtype), name_of(y.dtype)),
        scattered=bool(scores) or of_tokens or device.vendor.scattered_rows,
        mask=None if mask is None else mask.stride(),
        mask_aligned=mask is not None and scores.mask != "bits" and mask.data_ptr() % VECTOR_BYTES == 0,
        aligned=all(operand.data_ptr() % VECTOR_BYTES == 0 for operand in operands),
        in_place=not of_tokens and any(_at_one_place(operands[0], operand) for operand in operands[1:]),
        **about,
    )
    return None if problem and problem.across and of_tokens else problem  # kernels of log-probabilities read rows alone


def name_of(dtype: torch.dtype) -> str:
    """Returns torch's name of a type, without `torch.`."""
    return str(dtype).removeprefix("torch.")


def _expanded(mask: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns a mask in the shape of x, by strides of 0; one of bits has its words along dim."""
    along = x.shape[dim] if mask.dtype is not torch.int32 else mask.shape[dim - x.dim()]
    return mask.expand(*x.shape[:dim], along, *x.shape[dim + 1 :])


def _at_one_place(a: Tensor, b: Tensor) -> bool:
    """True if two tensors start at one address; on meta, where none has memory, at one address of the same storage."""
    stored = not a.is_meta or a.untyped_storage()._cdata == b.untyped_storage()._cdata
    return stored and a.data_ptr() == b.data_ptr()


def _as_if_contiguous(problem: Problem) -> bool:
    """True if rows start on the multiple that their length alone implies, so that all are read alike."""
    if problem.across or (problem.depth > 1 and not problem.numbered):
        return False
    return problem.aligned and problem.vector == math.gcd(problem.n_cols, problem.widest)


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
