"""Random problems of every kind, for any device."""

import random
from collections.abc import Iterator
from typing import get_args

import torch

from portable_softmax import Device
from portable_softmax.planning.operands import FORMS
from portable_softmax.planning.problem import MAX_COLS, NONE, Causal, Problem, Scores
from portable_softmax.runtime.bind import problem_of_tensors

DTYPES = torch.float16, torch.bfloat16, torch.float32
INNER = 2, 3, 7, 15, 16, 31, 64, 96, 197, 200, 333, 512, 1001, 1024  # rows that lie side by side
MAX_ROWS = 2**20


def random_problems(device: Device, seed: int) -> Iterator[Problem]:
    """Yields problems without end: rows, padded, across, heads, scores, in place, in all types and directions."""
    draw = random.Random(seed)
    while True:
        backward, dtype, other = draw.random() < 0.5, draw.choice(DTYPES), draw.choice(DTYPES)
        y_dtype = draw.choice((dtype, dtype, other))
        x = _laid_out(draw, dtype)
        dim = draw.choice(range(1, x.dim()))
        result = x if y_dtype == dtype and draw.random() < 0.1 else torch.empty(x.shape, dtype=y_dtype, device="meta")
        y = [torch.empty_strided(x.shape, result.stride(), dtype=dtype, device="meta")] if backward else []
        scores, mask = _scores(draw, x, dim) if draw.random() < 0.2 else (NONE, None)
        if backward:  # y has what a mask hides
            scores, mask = Scores(scale=scores.scale, mask=scores.mask and "bool"), None
        about = {"form": draw.choice(FORMS), "batch_invariant": draw.random() < 0.1, "backward": backward, "scores": scores}
        try:
            problem = problem_of_tensors((result, x, *y), dim=dim, device=device, mask=mask, **about)
        except ValueError:
            continue  # larger than any memory
        if problem is not None:
            yield problem


def _laid_out(draw: random.Random, dtype: torch.dtype) -> torch.Tensor:
    """Returns x, or dy, without memory, in one of the layouts that kernels take without a copy."""
    n_cols, n_rows, inner = min(MAX_COLS, _length(draw, draw.choice((8, 12, 17, 31)))), _length(draw, 20), draw.choice(INNER)
    outer, lines = max(1, n_rows // inner), (draw.choice((1, 5)), 8 * n_cols, draw.choice((77, 333, 1001)))  # of an odd length
    heads = draw.choice((1, 4)), draw.choice((2, 16)), min(n_rows, 2048), n_cols
    shapes = (n_rows, n_cols), (outer, n_cols, inner), lines, heads
    shape, order = draw.choice(((shapes[0], (0, 1)), (shapes[0], (1, 0)), (shapes[1], (0, 1, 2)), (shapes[1], (0, 2, 1)),
                                (shapes[2], (0, 1, 2)), (shapes[3], (0, 2, 1, 3))))  # fmt: skip
    padding = draw.choice((0, 0, 0, 1, 8))
    sizes, start = [shape[at] for at in order], draw.choice((0, padding))
    whole = torch.empty((*sizes[:-1], sizes[-1] + padding), dtype=dtype, device="meta")
    return whole[..., start : start + sizes[-1]].permute([order.index(at) for at in range(len(order))])


def _scores(draw: random.Random, x: torch.Tensor, dim: int) -> tuple[Scores, torch.Tensor | None]:
    """Returns scores of x, and their mask or None."""
    sizes, dtype = [draw.choice((1, size)) for size in x.shape], draw.choice((torch.bool, x.dtype))
    mask = draw.choice((None, torch.empty(sizes, dtype=dtype, device="meta").expand(x.shape)))
    causal = draw.choice((None, *get_args(Causal))) if dim == x.dim() - 1 else None
    kind = None if mask is None else str(dtype).removeprefix("torch.")
    return Scores(scale=draw.choice((None, "number", "rows")), mask=kind, causal=causal, sink=draw.random() < 0.2), mask


def _length(draw: random.Random, power: int) -> int:
    """Returns a length of at most 2**power with a uniform logarithm, often near a power of two or a multiple of 8."""
    length = int(2 ** draw.uniform(0, power))
    return max(1, draw.choice((length, length // 8 * 8, 1 << length.bit_length() - 1)) + draw.choice((-1, 0, 0, 0, 1)))
