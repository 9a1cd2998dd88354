"""Problems of tensors that kernels read in place, and launches of problems."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, Problem
from portable_softmax.runtime.bind import Sizes, bind, loaded
from portable_softmax.runtime.plans import choice_of

NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float16, torch.bfloat16, torch.float32)}


def problem_in_place(
    tensors: Sequence[Tensor], *, dim: int, device: Device, mask: Tensor | None = None, **about: Any
) -> Problem | None:
    """Returns the problem of a launch on tensors and a mask as they are laid out; None if kernels do not read these in place.

    Tensors are those of x's shape, the result first, on meta too; the mask is that of a call, and dim at least 0. `about` are
    form, scores, log_probs, batch_invariant and backward: see Problem. Contiguous rows and masks are read in place.
    """
    scores, of_tokens, places = about.get("scores", NONE), about.get("log_probs") is not None, None
    result, x, *others = tensors if len(tensors) > 1 else [*tensors, *tensors]  # log-probabilities have no result of x's shape
    types, starts = (NAMES[x.dtype], NAMES[result.dtype]), [t.data_ptr() for t in (result, x, *others)]
    if about.get("backward"):  # dx has the type of x, and dy that of y
        types = types[::-1]
    if mask is not None:
        mask = expanded(mask, x, dim)
        places = mask.stride()
    problem = problem_of(
        x.shape,
        dim,
        [t.stride() for t in (result, x, *others)],
        types,
        may_scatter=of_tokens or device.vendor.scattered_rows or bool(scores),
        mask=places,
        mask_aligned=mask is not None and scores.mask != "bits" and is_aligned(mask),
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


def prepare_launch(
    problem: Problem, device: Device, where: torch.device, sizes: Sizes = None
) -> tuple[tuple[str, ...], Callable[..., None]]:
    """Plans, compiles, loads and binds a problem: returns the names of operands, and a launch; PlanError or CompileError."""
    choice = choice_of(problem, device)
    plan = choice.resized(problem)
    kernels = loaded(choice.problem, plan.tiling, device)
    return kernels[0][0].operands, bind(plan, kernels, where, sizes)


def expanded(mask: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns a mask in the shape of x, by strides of 0; one of bits, which is int32, has its words along dim."""
    along = x.shape[dim] if mask.dtype is not torch.int32 else mask.shape[dim - x.dim()]
    return mask.expand(*x.shape[:dim], along, *x.shape[dim + 1 :])


def is_aligned(t: Tensor) -> bool:
    """True if a tensor starts on a multiple of 16 bytes."""
    return t.data_ptr() % VECTOR_BYTES == 0
