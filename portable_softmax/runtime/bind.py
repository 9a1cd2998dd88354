"""Problems of tensors, and their launches: kernels are bound to sizes and workspace, and called with operands."""

import itertools
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from portable_softmax.devices.device import Device
from portable_softmax.planning.operands import problem_of
from portable_softmax.planning.plan import LaunchPlan
from portable_softmax.planning.problem import NONE, VECTOR_BYTES, Problem
from portable_softmax.runtime.compile import Start
from portable_softmax.runtime.kernel import Kernel

Sizes = Mapping[str, int] | None

NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float16, torch.bfloat16, torch.float32)}
PACKED = 1024  # ids that a program packs into bits
# Both halves of a launch's tag, read as float32, lie from 2**64 on: so large are few elements of any other tensor, and
# none of zeroed memory. Both grow from launch to launch, and repeat after 2**26 launches.
_LEAST, _SPAN, _STEP = 0x5F800000, 2**28, 3 << 32 | 1
_first = (_LEAST + secrets.randbelow(_SPAN)) << 32 | _LEAST + secrets.randbelow(_SPAN)
_tags = itertools.repeat(range(_first, _first + 2**26 * _STEP, _STEP))
# Returns the tag of one launch, a positive number of 64 bits.
next_tag: Callable[[], int] = itertools.chain.from_iterable(_tags).__next__


def problem_of_tensors(
    tensors: Sequence[Tensor], *, dim: int, device: Device, mask: Tensor | None = None, **about: Any
) -> Problem | None:
    """Returns the problem of a launch on tensors and a mask as they are laid out; None if these must be copied first.

    Tensors are those of x's shape: the result, x or dy, y, and x of a gradient with a softcap; or x alone, for numbers per row.
    They may be on meta. The mask is that of a call, and dim at least 0. `about` are form, scores, log_probs, backward and
    batch_invariant: see Problem. Contiguous rows and masks are never copied.
    """
    scores, of_tokens, places = about.get("scores", NONE), about.get("log_probs") is not None, None
    result, source, *others = tensors if len(tensors) > 1 else [*tensors, *tensors]
    types, starts = (NAMES[source.dtype], NAMES[result.dtype]), [t.data_ptr() for t in (result, source, *others)]
    if about.get("backward"):  # the result is dx, of x's type, and the source dy, of y's
        types = types[::-1]
    if mask is not None:
        mask = expanded(mask, source, dim)
        places = mask.stride()
    problem = problem_of(
        source.shape,
        dim,
        [t.stride() for t in (result, source, *others)],
        types,
        may_scatter=of_tokens or device.vendor.scattered_rows or bool(scores),
        mask=places,
        mask_aligned=mask is not None and scores.mask != "bits" and mask.data_ptr() % VECTOR_BYTES == 0,
        starts_aligned=not any(start % VECTOR_BYTES for start in starts),
        overwrites=not of_tokens and starts[0] in starts[1:] and (starts[0] != 0 or result is source),
        **about,
    )
    if problem is None or (problem.across and of_tokens) or (problem.batch_invariant and not _is_like_contiguous(problem)):
        return None  # kernels of log-probabilities read rows alone
    return problem


def _is_like_contiguous(problem: Problem) -> bool:
    """True if rows have the accesses of contiguous ones, so that the bits of a row do not depend on where it lies."""
    is_one_level = not problem.across and (problem.depth == 1 or problem.numbered)
    return is_one_level and problem.starts_aligned and problem.vector == math.gcd(problem.n_cols, problem.widest)


def expanded(mask: Tensor, x: Tensor, dim: int) -> Tensor:
    """Returns a mask in the shape of x, by strides of 0; one of bits, which is int32, has its words along dim."""
    along = x.shape[dim] if mask.dtype is not torch.int32 else mask.shape[dim - x.dim()]
    return mask.expand(*x.shape[:dim], along, *x.shape[dim + 1 :])


def bind(
    plan: LaunchPlan, kernels: Sequence[tuple[Kernel, Start]], where: torch.device, sizes: Sizes = None
) -> Callable[..., None]:
    """Returns launch(*operands), of one kernel, or of two of which the first reduces splits; absent operands are None.

    Kernels are the results of `loaded`: two have the same parameters but for C. Operands are in the order of Kernel.operands,
    `where` is their device, and sizes are n_ids and ignored of log-probabilities, by name. The launch is on the current stream
    of the device, which must be the current one (`on_device`). Words for the splits of rows belong to a call: they are
    allocated on that stream, as its result is, and have a tag of their own. A graph replays a launch with the same tag, so
    while one is captured they are cleared on the stream too; a second kernel reads what the first one wrote.
    """
    problem, tiling, grid, (first, start) = plan.problem, plan.tiling, (plan.num_programs, 1, 1), kernels[0]
    values = {**_sizes_of(problem, first.config), **(sizes or {})}
    last = [values.get(name, constexpr) for name, constexpr in first.parameters[len(first.operands) :]]
    if "words_ptr" not in first.types:
        return lambda *operands: start(grid, (*operands, *last))
    assert [first.parameters[at][0] for at in (len(first.operands), -2)] == ["words_ptr", "tag"], "sizes are between them"
    n_words = 4 * tiling.splits * problem.tiles(tiling.tile_rows) * tiling.tile_rows
    is_capturing = getattr(getattr(torch, where.type), "is_current_stream_capturing", bool)
    steps = [(start, kernel.parameters[-1][1]) for kernel, start in kernels]

    def launch(*operands: Any) -> None:
        words, tag = torch.empty(n_words, dtype=torch.int64, device=where), next_tag()
        if len(steps) == 1 and is_capturing():
            words.zero_()
        for start, config in steps:
            start(grid, (*operands, words, *last[1:-2], tag, config))

    return launch


def _sizes_of(problem: Problem, config: Any) -> dict[str, int]:
    """Returns the values of kernels' integer parameters by name, in the units in which they are passed."""
    assert problem.levels, "the problem of a bucket has no strides: a launch is that of a call's problem (LaunchPlan.resized)"
    (_, (_, batch, *_)), (n_heads, (_, head, *_)), (n_lines, (_, step, *_)), _ = problem.levels
    n_queries, query, col = (problem.inner, 1, step) if problem.across else (n_lines, step, 1)
    sizes = {"n_rows": problem.n_rows, "n_cols": problem.n_cols // config.ROW_UNIT}
    sizes |= {"n_heads": n_heads, "n_queries": n_queries // config.COL_UNIT}
    sizes |= {"x_batch": batch // config.UNIT, "x_head": head // config.UNIT}
    sizes |= {"x_query": query // config.ROW_UNIT, "x_col": col // config.COL_UNIT}
    if config.MASK:
        unit, (batch, head, line, element) = config.MASK_UNIT, (strides[-1] for _, strides in problem.levels)
        col, query = (line, element) if problem.across else (element, line // unit)
        sizes |= {"m_col": col, "m_query": query, "m_head": head // unit, "m_batch": batch // unit}
    return sizes


def pack(ids: Tensor, n_cols: int) -> Tensor:
    """Returns a mask of n_cols bits, int32 [..., ceil(n_cols / 32)], of int64 ids [..., K]; its device is the current one."""
    from portable_softmax.kernels.scores import pack_kernel  # slow to import

    n_words = -(-n_cols // 32)
    words = torch.zeros((*ids.shape[:-1], n_words), dtype=torch.int32, device=ids.device)
    pack_kernel[(-(-ids.numel() // PACKED),)](words, ids, ids.numel(), ids.shape[-1], n_cols, n_words, PACKED)
    return words
