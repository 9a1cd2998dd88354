"""Layouts that kernels read, in place or after a copy, and launches of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, Problem
from portable_softmax.runtime.bind import bind, loaded
from portable_softmax.runtime.kernel import WIDE_ROWS
from portable_softmax.runtime.plans import choice_of

NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float16, torch.bfloat16, torch.float32)}


def bind_call(
    tensors: tuple[Tensor, ...],
    dim: int,
    device: Device,
    mask: Tensor | None = None,
    sizes: Mapping[str, int] | None = None,
    **about: Any,
) -> tuple[list[str], Callable[..., None]]:
    """Plans and compiles calls with tensors of the same shapes, strides, types and alignment; returns operands and a launch.

    Arguments are those of `described`; sizes are n_ids and ignored of log-probabilities. It raises PlanError or CompileError.
    """
    last, problem = described(tensors, dim, device, mask, **about)
    choice = choice_of(problem, device)
    plan = choice.resized(problem)
    compiled_for = plan.problem if problem.n_rows >= WIDE_ROWS else choice.problem  # all of a bucket have the same kernels
    kernels = loaded(compiled_for, plan.tiling, device)
    launch = bind(plan, kernels, tensors[0].device, sizes)
    if last is not None:
        inputs = range(1, len(tensors)) if problem.stores else range(2, 3)  # of the launch's operands
        launch = _on_copies(launch, inputs, dim, last, mask is not None and last == dim)
    return kernels[0].kernel.operands, launch


def _on_copies(launch: Callable[..., None], inputs: range, dim: int, last: int, copies_mask: bool) -> Callable[..., None]:
    """Returns a launch of inputs, and a result of their shape, that are copied."""
    x, mask = inputs[0], inputs[0] + 1

    def run(*operands: Any) -> None:
        passed, result = list(operands), operands[0]
        for at in inputs:
            passed[at] = _packed(operands[at], last)
        if copies_mask:
            passed[mask] = _packed(_expanded(operands[mask], operands[x], dim), last)
        if x == 1 and not _is_packed(result, last):  # a result of x's shape
            passed[0] = torch.empty_like(passed[x], dtype=result.dtype)
        launch(*passed)
        if passed[0] is not result:
            result.copy_(passed[0])

    return run


def described(
    tensors: tuple[Tensor, ...], dim: int, device: Device, mask: Tensor | None = None, **about: Any
) -> tuple[int | None, Problem]:
    """Returns (the dimension that is innermost in copies of inputs, None without copies; the problem) of a launch.

    The mask, as the caller passed it, is copied too if that dimension is `dim`, which is at least 0. Tensors are those of x's
    shape, the result first, on meta too. `about` are form, scores, log_probs, batch_invariant and backward: see Problem.
    """
    masks = [] if mask is None else [_expanded(mask, tensors[0], dim)]
    problem = _problem_of(tensors, masks, dim, device, about)
    if problem:
        return None, problem
    for last in (-1, dim):
        tensors = tuple(_packed(_without_memory(t), last) for t in tensors)
        if last == dim:
            masks = [_packed(_without_memory(t), last) for t in masks]
        if problem := _problem_of(tensors, masks, dim, device, about):
            return last, problem
    raise AssertionError("contiguous rows are read as they are laid out")


def _problem_of(
    tensors: Sequence[Tensor], masks: Sequence[Tensor], dim: int, device: Device, about: Mapping[str, Any]
) -> Problem | None:
    """Returns the problem of tensors and up to one mask, in one shape; None if kernels do not read them as they are."""
    result, *inputs = tensors
    x = inputs[0] if inputs else result  # log-probabilities have no result of x's shape
    scores, of_tokens = about.get("scores", NONE), about.get("log_probs") is not None
    types = NAMES[x.dtype], NAMES[result.dtype]
    if about.get("backward"):  # dx has the type of x, and dy that of y
        types = types[::-1]
    problem = problem_of(
        result.shape,
        dim,
        [result.stride(), x.stride(), *[t.stride() for t in inputs[1:]]],
        types,
        scattered=of_tokens or device.vendor.scattered_rows or bool(scores),
        mask=next((mask.stride() for mask in masks), None),
        mask_aligned=scores.mask != "bits" and all(map(_is_aligned, masks)),
        aligned=all(map(_is_aligned, tensors)),
        in_place=not of_tokens and any(t is result or t.data_ptr() == result.data_ptr() != 0 for t in inputs),
        **about,
    )
    if problem is None or (problem.across and of_tokens):  # kernels of log-probabilities read rows alone
        return None
    return problem if not problem.batch_invariant or _is_like_contiguous(problem) else None


def _is_like_contiguous(problem: Problem) -> bool:
    """True if rows have the accesses of contiguous ones, so that the bits of a row do not depend on where it lies."""
    is_one_level = not problem.across and (problem.depth == 1 or problem.numbered)
    return is_one_level and problem.aligned and problem.vector == math.gcd(problem.n_cols, problem.widest)


def _expanded(mask: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns a mask in the shape of x, by strides of 0; one of bits has its words along dim."""
    along = x.shape[dim] if mask.dtype is not torch.int32 else mask.shape[dim - x.dim()]
    return mask.expand(*x.shape[:dim], along, *x.shape[dim + 1 :])


def _without_memory(t: Tensor) -> Tensor:
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")


def _is_aligned(t: Tensor) -> bool:
    return t.data_ptr() % VECTOR_BYTES == 0


def _is_packed(t: Tensor, last: int) -> bool:
    """True if a tensor is aligned, and contiguous if a dimension is moved behind the others."""
    return t.movedim(last, -1).is_contiguous() and _is_aligned(t)


def _packed(t: Tensor, last: int) -> Tensor:
    """Returns a tensor as it is if it is packed, else a copy that is."""
    return t if _is_packed(t, last) else t.movedim(last, -1).clone(memory_format=torch.contiguous_format).movedim(-1, last)
