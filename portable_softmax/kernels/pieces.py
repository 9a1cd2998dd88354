"""A tile's columns in PIECES of a power of two each, as Triton has no tensors of another length.

So a program holds little more than its row, not up to twice as much; and as the pieces' operations are written one after
another, not all loads first, the compiler keeps fewer registers alive. A tile of one piece is a tensor, one of several a
tuple of them, which Triton 3.2 does not have.
"""

import triton
import triton.language as tl


@triton.jit
def joined(tile, piece, PIECE: tl.constexpr, PIECES: tl.constexpr):
    """The tile with one more piece."""
    if PIECES == 1:
        more = piece
    elif PIECE == 0:
        more = (piece,)
    else:
        more = tile + (piece,)  # noqa: RUF005 - Triton does not know (*tile, piece)
    return more


@triton.jit
def get(tile, PIECE: tl.constexpr, PIECES: tl.constexpr):
    return tile if PIECES == 1 else tile[PIECE]


@triton.jit
def max_of(tile, PIECES: tl.constexpr, AXIS: tl.constexpr):
    """The maximum of each row."""
    most = get(tile, 0, PIECES)
    for k in tl.static_range(1, PIECES):
        most = tl.maximum(most, get(tile, k, PIECES))
    return tl.max(most, axis=AXIS)
