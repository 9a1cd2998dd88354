"""Gradients of rows that are read two by two: every second row of an odd length starts within a word, no pair of them does."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import piece_of, pointers, rows_of, starts_of
from portable_softmax.kernels.directions import add_shares, along, gradient
from portable_softmax.kernels.pieces import get
from portable_softmax.kernels.tiles import load_tile, store


@triton.jit
def walk_pairs(
    dx_ptr, dy_ptr, y_ptr, n_pairs, n_pair_vectors,
    VECTOR: tl.constexpr, PADDED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr, PIECES: tl.constexpr,
    WALK: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """The gradient's body where a line is a pair: two rows, the second directly after the first, and so are pairs.

    Tiles have TILE_ROWS pairs, and TILE_COLS columns of both rows together.
    """
    n_cols = n_pair_vectors * VECTOR
    tiles = (n_pairs + TILE_ROWS - 1) // TILE_ROWS if WALK else tl.program_id(0) + 1
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0) if WALK else 1):
        _, line, pairs = rows_of(tile, tiles, n_pairs, TILE_ROWS, 1, True)
        cols = tl.arange(0, TILE_COLS // PIECES)
        dy = starts_of(dy_ptr, 0, line, 1, n_cols, 0, 0, VECTOR, False, 1, 1, 1, True)
        y = starts_of(y_ptr, 0, line, 1, n_cols, 0, 0, VECTOR, False, 1, 1, 1, True)
        dx = starts_of(dx_ptr, 0, line, 1, n_cols, 0, 0, VECTOR, False, 1, 1, 1, True)
        tile_dy, tile_y = load_tile(
            dy, y, pairs, cols, 0, n_pairs, n_cols, 0, 0,
            PIECES, 1, VECTOR, False, PADDED, 1, 1, True, NEGATE, COMPUTE, COMPUTE,
        )  # fmt: skip
        sums = tl.zeros((TILE_ROWS, TILE_COLS // PIECES), COMPUTE)
        others = sums
        for k in tl.static_range(PIECES):
            mine = in_first(cols, n_cols, k)
            sums = tl.where(mine, add_shares(sums, get(tile_dy, k, PIECES), get(tile_y, k, PIECES), True, LOG), sums)
            others = tl.where(mine, others, add_shares(others, get(tile_dy, k, PIECES), get(tile_y, k, PIECES), True, LOG))
        first, second = tl.sum(sums, axis=1), tl.sum(others, axis=1)
        for k in tl.static_range(PIECES):
            total = tl.where(in_first(cols, n_cols, k), along(first, 1), along(second, 1))
            result = gradient(get(tile_dy, k, PIECES), get(tile_y, k, PIECES), total, LOG, NEGATE, EXACT)
            piece, mask = piece_of(pairs, cols, 0, n_pairs, n_cols, k, PIECES, 1, VECTOR, False, PADDED, 1)
            store(pointers(dx, piece, 0, 1), result, mask)


@triton.jit
def in_first(cols, n_cols, PIECE: tl.constexpr):
    """Tells which columns of a piece belong to the first row of each pair: [1, cols]; `cols` are those of the first piece."""
    return tl.expand_dims(cols + PIECE * cols.shape[0] < n_cols // 2, 0)
