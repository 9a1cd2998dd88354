"""Random problems of every kind, for any device."""

import random
from collections.abc import Iterator
from typing import get_args

import torch

from portable_softmax import Device
from portable_softmax.planning.problem import FORMS, MAX_COLS, Causal, Problem, Scores
from portable_softmax.runtime.layout import described

DTYPES = torch.float16, torch.bfloat16, torch.float32
# rows that lie side by side
NEIGHBOURS = 2, 3, 5, 7, 15, 16, 31, 49, 64, 96, 128, 197, 200, 256, 333, 500, 512, 1001, 1023, 1024
MOST_ROWS = 2**20
IN_PLACE, SCORED = 0.1, 0.2  # of all problems


def random_problems(device: Device, seed: int) -> Iterator[Problem]:
    """Yields problems without end: rows, padded, across, heads, scores, in place, in all types and directions."""
    draw = random.Random(seed)
    while True:
        backward, invariant = draw.random() < 0.5, draw.random() < 0.1
        operands = _operands(draw, backward)
        dim, form, mask = draw.choice(range(1, operands[0].dim())), draw.choice(FORMS), None
        about = {"form": form, "batch_invariant": invariant, "backward": backward}
        try:
            if draw.random() < SCORED:
                about["scores"], mask = _scores(draw, operands[1], dim)
            copy, problem = described(operands, dim, device, mask, **about)
        except ValueError:
            continue  # larger than any memory
        if copy is None:
            yield problem


def _scores(draw: random.Random, x: torch.Tensor, dim: int) -> tuple[Scores, torch.Tensor | None]:
    """Returns scores of x, and their mask or None."""
    sizes, dtype = [draw.choice((1, size)) for size in x.shape], draw.choice((torch.bool, x.dtype))
    mask = draw.choice((None, torch.empty(sizes, dtype=dtype, device="meta").expand(x.shape)))
    causal = draw.choice((None, *get_args(Causal))) if dim == x.dim() - 1 else None
    kind = None if mask is None else str(dtype).removeprefix("torch.")
    return Scores(scale=draw.choice((None, "number", "rows")), mask=kind, causal=causal, sink=draw.random() < 0.2), mask


def _operands(draw: random.Random, backward: bool) -> tuple[torch.Tensor, ...]:
    """Returns (y, x), or (dx, dy, y), without memory, in one of the layouts that kernels take without a copy."""
    n_cols = min(MAX_COLS, _length(draw, draw.choice((8, 12, 17, 31))))
    n_rows, inner = min(MOST_ROWS, _length(draw, 20)), draw.choice(NEIGHBOURS)
    y_dtype = draw.choice(DTYPES)
    x_dtype = draw.choice((y_dtype, y_dtype, y_dtype, draw.choice(DTYPES)))
    shape, order = draw.choice(
        (
            ((n_rows, n_cols), (0, 1)),
            ((n_rows, n_cols), (1, 0)),
            ((max(1, n_rows // inner), n_cols, inner), (0, 1, 2)),
            ((max(1, n_rows // inner), n_cols, inner), (0, 2, 1)),
            ((draw.choice((1, 5)), 8 * n_cols, draw.choice((77, 333, 1001))), (0, 1, 2)),  # lines of an odd length
            ((draw.choice((1, 4)), draw.choice((2, 16)), min(n_rows, 2048), n_cols), (0, 2, 1, 3)),
        )
    )
    padding = draw.choice((0, 0, 0, 1, 8))
    start = draw.choice((0, padding))

    def laid(dtype: torch.dtype) -> torch.Tensor:
        sizes = [shape[at] for at in order]
        whole = torch.empty((*sizes[:-1], sizes[-1] + padding), dtype=dtype, device="meta")
        return whole[..., start : start + sizes[-1]].permute([order.index(at) for at in range(len(order))])

    x = laid(y_dtype if backward else x_dtype)  # or dy
    if x_dtype == y_dtype and draw.random() < IN_PLACE:
        result = x
    else:
        result = torch.empty(shape, dtype=x_dtype if backward else y_dtype, device="meta")
    return (result, x, torch.empty_strided(shape, result.stride(), dtype=y_dtype, device="meta")) if backward else (result, x)


def _length(draw: random.Random, power: int) -> int:
    """Returns a length of at most 2**power with a uniform logarithm, often near a power of two or a multiple of 8."""
    length = int(2 ** draw.uniform(0, power))
    return max(1, draw.choice((length, length // 8 * 8, 1 << length.bit_length() - 1)) + draw.choice((-1, 0, 0, 0, 1)))
