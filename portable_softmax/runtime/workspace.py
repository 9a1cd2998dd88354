"""Memory in which programs that share a row exchange their numbers, and the numbers of launches; see kernels/exchange.py."""

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import torch

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem
from portable_softmax.runtime.allocation import allocator

# Both halves of a launch's number, read as float32, lie from 2**64 on: so large are few elements of any other tensor, and
# none of zeroed memory. Both grow from launch to launch, and differ from those of any recent launch.
_LEAST, _SPAN = 0x5F800000, 2**28
_STEPS = 2371, 2389


def with_workspace(
    launches: Sequence[Callable[..., Any]], problem: Problem, tiling: Tiling, where: torch.device
) -> Callable[..., Any]:
    """Returns a call of `launches`, all with its operands, words for each split of each row, and a unique number.

    The words belong to the call: they are allocated on the current stream, as its result is. A graph replays a launch with the
    same number, so while one is captured they are cleared on the stream too; a second launch reads what the first one wrote.
    """
    shape, strides = (
        (2 * (problem.pairs + problem.is_sample) * tiling.splits * problem.tiles(tiling.tile_rows) * tiling.tile_rows,),
        (1,),
    )
    dtype = torch.int64 if len(launches) == 1 else torch.float32
    is_capturing = getattr(getattr(torch, where.type), "is_current_stream_capturing", lambda: False)
    empty = allocator(where)

    def shared(*operands: Any) -> None:
        words, number = empty(shape, strides, dtype), next_number()
        if len(launches) == 1 and is_capturing():
            words.zero_()
        for launch in launches:
            launch(*operands, words, number)

    return shared


def _run() -> range:
    """Returns the numbers of many launches, from a random one on."""
    high, low = (_LEAST + secrets.randbelow(_SPAN) for _ in range(2))
    first, step = high << 32 | low, _STEPS[0] << 32 | _STEPS[1]
    return range(first, first + _SPAN // max(_STEPS) * step, step)


_numbers = itertools.chain.from_iterable(iter(_run, None))  # one run after another
# Returns a positive number of 64 bits for one launch; its halves differ from those of any recent launch, and are not 0.
next_number: Callable[[], int] = _numbers.__next__
