"""Random problems of every kind, for any device."""

import random
from collections.abc import Iterator, Sequence
from typing import get_args

import torch

from portable_softmax import Device
from portable_softmax.planning.problem import FORMS, MAX_COLS, Causal, Problem, Scores
from portable_softmax.runtime.launch import problem_from
from portable_softmax.runtime.layout import described

Operands = tuple[torch.Tensor, ...]
DTYPES = torch.float16, torch.bfloat16, torch.float32
# rows that lie side by side
NEIGHBOURS = 2, 3, 5, 7, 15, 16, 31, 49, 64, 96, 128, 197, 200, 256, 333, 500, 512, 1001, 1023, 1024
MOST_ROWS = 2**20
IN_PLACE, SCORED = 0.1, 0.2  # of all problems


def random_problems(device: Device, seed: int) -> Iterator[Problem]:
    """Yields problems without end: rows, padded, across, heads, scores, in place, in all types and directions."""
    draw = random.Random(seed)
    while True:
        backward, batch_invariant = draw.random() < 0.5, draw.random() < 0.1
        operands = _operands(draw, backward, DTYPES)
        dim, form = draw.choice(range(1, operands[0].dim())), draw.choice(FORMS)
        try:
            problem = (_scored if draw.random() < SCORED else _plain)(draw, operands, dim, form, batch_invariant, device)
        except ValueError:
            continue  # larger than any memory
        if problem:
            yield problem


def _plain(draw: random.Random, operands: Operands, dim: int, form: str, invariant: bool, device: Device) -> Problem | None:
    """Returns the problem of a plain softmax; None where a copy is planned instead."""
    problem = problem_from(operands, dim, device, form=form, backward=len(operands) == 3, batch_invariant=invariant)
    if problem is None or (invariant and (problem.across or problem.depth > 1)):
        return None
    return problem


def _scored(draw: random.Random, operands: Operands, dim: int, form: str, invariant: bool, device: Device) -> Problem | None:
    """Returns the problem of a softmax of scores, as a call of them describes it; None where a copy is planned instead."""
    shape, x = operands[0].shape, operands[1]
    mask = torch.empty([draw.choice((1, size)) for size in shape], dtype=draw.choice((torch.bool, x.dtype)), device="meta")
    kind = draw.choice((None, str(mask.dtype).removeprefix("torch.")))
    causal = draw.choice((None, *get_args(Causal))) if dim == len(shape) - 1 else None
    scores = Scores(scale=draw.choice((None, "number", "rows")), mask=kind, causal=causal, sink=draw.random() < 0.2)
    if not scores:
        return None
    about = {"form": form, "scores": scores, "batch_invariant": invariant, "backward": len(operands) == 3}
    copy, _, problem = described(operands, dim, device, mask.expand(shape) if kind else None, **about)
    return problem if copy is None else None


def _operands(draw: random.Random, backward: bool, dtypes: Sequence[torch.dtype]) -> Operands:
    """Returns (y, x), or (dx, dy, y), without memory, in one of the layouts that kernels take without a copy."""
    n_cols = min(MAX_COLS, _length(draw, draw.choice((8, 12, 17, 31))))
    n_rows, inner = min(MOST_ROWS, _length(draw, 20)), draw.choice(NEIGHBOURS)
    y_dtype = draw.choice(dtypes)
    x_dtype = draw.choice((y_dtype, y_dtype, y_dtype, draw.choice(dtypes)))
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
