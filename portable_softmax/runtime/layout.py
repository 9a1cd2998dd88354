"""Layouts that kernels read, in place or after a copy, and launches of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, Problem
from portable_softmax.runtime.bind import Sizes, bind, loaded
from portable_softmax.runtime.kernel import WIDE_ROWS, Kernel
from portable_softmax.runtime.plans import choice_of

NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float16, torch.bfloat16, torch.float32)}


def bind_call(
    tensors: tuple[Tensor, ...], dim: int, device: Device, mask: Tensor | None = None, sizes: Sizes = None, **about: Any
) -> tuple[list[str], Callable[..., None]]:
    """Plans and compiles calls with tensors of the same shapes, strides, types and alignment; returns operands and a launch.

    Arguments are those of `described`; sizes are n_ids and ignored of log-probabilities. It raises PlanError or CompileError.
    """
    last, problem = described(tensors, dim, device, mask, **about)
    choice = choice_of(problem, device)
    plan = choice.resized(problem)
    if problem.n_rows >= WIDE_ROWS:  # rows are numbered in 64 bits; all other kernels are those of the bucket
        choice = plan
    kernels = loaded(choice.problem, plan.tiling, device)
    launch, kernel = bind(plan, kernels, tensors[0].device, sizes), kernels[0].kernel
    if last is not None:
        launch = _on_copies(launch, kernel, dim, last)
    return kernel.operands, launch


def _on_copies(launch: Callable[..., None], kernel: Kernel, dim: int, last: int) -> Callable[..., None]:
    """Returns a launch on copies of operands in the shape of x, in which a dimension is innermost."""
    places = {name: at for at, name in enumerate(kernel.operands) if name in kernel.types}
    copied = [places[name] for name in ("result_ptr", "dx_ptr", "dy_ptr", "y_ptr", "x_ptr") if name in places]
    mask = places.get("mask_ptr") if last == dim else None

    def run(*operands: Any) -> None:
        passed = list(operands)
        for at in copied:
            passed[at] = _packed(operands[at], last)
        if mask is not None:
            passed[mask] = _packed(_expanded(operands[mask], passed[copied[0]], dim), last)
        launch(*passed)
        if passed[0] is not operands[0]:
            operands[0].copy_(passed[0])

    return run


def described(
    tensors: tuple[Tensor, ...], dim: int, device: Device, mask: Tensor | None = None, **about: Any
) -> tuple[int | None, Problem]:
    """Returns (the dimension that is innermost in copies of operands, None without copies; the problem) of a launch.

    The mask, as the caller passed it, is copied too if that dimension is `dim`, which is at least 0. Tensors are those of x's
    shape, the result first, on meta too. `about` are form, scores, log_probs, batch_invariant and backward: see Problem.
    """
    masks = [] if mask is None else [_expanded(mask, tensors[0], dim)]
    for last in (None, -1, dim):
        if last is not None:
            tensors = tuple(_packed(t.to("meta"), last) for t in tensors)
        if last == dim:
            masks = [_packed(t.to("meta"), last) for t in masks]
        if problem := _problem_of(tensors, masks, dim, device, about):
            return last, problem
    raise AssertionError("contiguous rows are read as they are laid out")


def _problem_of(
    tensors: tuple[Tensor, ...], masks: Sequence[Tensor], dim: int, device: Device, about: Mapping[str, Any]
) -> Problem | None:
    """Returns the problem of tensors and up to one mask, in one shape; None if kernels do not read them as they are."""
    scores, of_tokens = about.get("scores", NONE), about.get("log_probs") is not None
    result, x, *others = tensors if len(tensors) > 1 else tensors * 2  # log-probabilities have no result of x's shape
    types, starts = (NAMES[x.dtype], NAMES[result.dtype]), [t.data_ptr() for t in (result, x, *others)]
    if about.get("backward"):  # dx has the type of x, and dy that of y
        types = types[::-1]
    problem = problem_of(
        x.shape,
        dim,
        [t.stride() for t in (result, x, *others)],
        types,
        may_scatter=of_tokens or device.vendor.scattered_rows or bool(scores),
        mask=next((mask.stride() for mask in masks), None),
        mask_aligned=scores.mask != "bits" and all(map(_is_aligned, masks)),
        aligned=not any(start % VECTOR_BYTES for start in starts),
        in_place=not of_tokens and starts[0] in starts[1:] and (starts[0] != 0 or result is x),
        **about,
    )
    if problem is None or (problem.across and of_tokens) or (problem.batch_invariant and not _is_like_contiguous(problem)):
        return None  # kernels of log-probabilities read rows alone
    return problem


def _is_like_contiguous(problem: Problem) -> bool:
    """True if rows have the accesses of contiguous ones, so that the bits of a row do not depend on where it lies."""
    is_one_level = not problem.across and (problem.depth == 1 or problem.numbered)
    return is_one_level and problem.aligned and problem.vector == math.gcd(problem.n_cols, problem.widest)


def _expanded(mask: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns a mask in the shape of x, by strides of 0; one of bits has its words along dim."""
    along = x.shape[dim] if mask.dtype is not torch.int32 else mask.shape[dim - x.dim()]
    return mask.expand(*x.shape[:dim], along, *x.shape[dim + 1 :])


def _is_aligned(t: Tensor) -> bool:
    return t.data_ptr() % VECTOR_BYTES == 0


def _packed(t: Tensor, last: int) -> Tensor:
    """Returns a tensor that is aligned, and contiguous if a dimension is moved behind the others: itself, or a copy."""
    moved = t.movedim(last, -1)
    if moved.is_contiguous() and _is_aligned(t):
        return t
    return moved.clone(memory_format=torch.contiguous_format).movedim(-1, last)
