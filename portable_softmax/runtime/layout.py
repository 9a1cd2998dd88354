"""Layouts that kernels read, in place or after a copy, and launches of them."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, Problem
from portable_softmax.runtime.bind import bind
from portable_softmax.runtime.kernel import WIDE_ROWS, kernels_of
from portable_softmax.runtime.plans import choice_of

_kept_kernels = functools.lru_cache(maxsize=4096)(kernels_of)  # of buckets, for a new number of rows


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
    is_wide = problem.n_rows >= WIDE_ROWS
    kernels = kernels_of(plan.problem, plan.tiling, device) if is_wide else _kept_kernels(choice.problem, plan.tiling, device)
    launch = bind(plan, kernels, device, tensors[0].device, sizes)
    if last is not None:
        inputs = range(1, len(tensors)) if problem.stores else range(2, 3)  # of the launch's operands
        launch = _on_copies(launch, inputs, dim, last, mask is not None and last == dim)
    return kernels[0].operands, launch


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
    scores, of_tokens, backward = about.get("scores", NONE), about.get("log_probs") is not None, about.get("backward")
    operands = tensors if len(tensors) > 1 else tensors * 2  # log-probabilities have no result of x's shape
    types = [name_of(t.dtype) for t in operands[:2]]  # of y and x, or of dx and dy, which has y's type
    whole_mask = None if mask is None else _expanded(mask, tensors[0], dim)
    for last in (None, -1, dim):
        if last is not None:
            operands = tuple(_packed(_without_memory(t), last) for t in operands)
        if last == dim and whole_mask is not None:
            whole_mask = _packed(_without_memory(whole_mask), last)
        result, *others = operands
        problem = problem_of(
            result.shape,
            dim,
            [t.stride() for t in operands],
            (types[0], types[1]) if backward else (types[1], types[0]),
            scattered=bool(scores) or of_tokens or device.vendor.scattered_rows,
            mask=None if whole_mask is None else whole_mask.stride(),
            mask_aligned=whole_mask is not None and scores.mask != "bits" and _is_aligned(whole_mask),
            aligned=all(map(_is_aligned, operands)),
            in_place=not of_tokens and any(t is result or (t.data_ptr() == result.data_ptr() != 0) for t in others),
            **about,
        )
        if problem is None or (problem.across and of_tokens):  # kernels of log-probabilities read rows alone
            continue
        is_one_level = not problem.across and (problem.depth == 1 or problem.numbered)
        as_if_contiguous = is_one_level and problem.aligned and problem.vector == math.gcd(problem.n_cols, problem.widest)
        if as_if_contiguous or not problem.batch_invariant:  # which reads all rows alike
            return last, problem
    raise AssertionError("contiguous rows are read as they are laid out")


def name_of(dtype: torch.dtype) -> str:
    """Returns torch's name of a type, without `torch.`."""
    return str(dtype).removeprefix("torch.")


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
