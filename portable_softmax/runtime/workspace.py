"""Memory in which programs that share a row exchange their numbers, and the numbers of launches; see kernels/exchange.py."""

import itertools
import secrets
from collections.abc import Callable
from typing import Any

import torch

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem

# Numbers of launches: from a random one on, far apart, so that in neither half of one any other tensor's elements are likely.
_numbers = itertools.count(secrets.randbits(64), 0x9E3779B97F4A7C15)
_NEVER_ZERO = 1 << 32 | 1  # bits of both halves: zeroed memory holds no launch's words


def with_words(launch: Callable[..., Any], problem: Problem, tiling: Tiling, where: torch.device) -> Callable[..., Any]:
    """Returns `launch(*operands)` with words for each part of each row after them, and a number that no launch had before.

    The words belong to the call: they are allocated on the current stream, as its result is. A graph replays its launch with
    the same number, so while one is captured they are cleared on the stream too.
    """
    n_words = problem.tiles(tiling.tile_rows) * tiling.words_per_tile
    is_capturing = getattr(getattr(torch, where.type), "is_current_stream_capturing", lambda: False)

    def shared(*operands: Any) -> None:
        words = torch.empty(n_words, dtype=torch.int64, device=where)
        if is_capturing():
            words.zero_()
        launch(*operands, words, next_number())

    return shared


def next_number() -> int:
    """Returns a signed number of 64 bits for one launch; each half differs from that of any recent launch, and is not 0."""
    return (next(_numbers) % 2**64 | _NEVER_ZERO) - 2**63
