"""Gradients of rows that are read two by two: every second row of an odd length starts within a word, no pair of them does."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import piece_of, pointers, rows_of, starts_of
from portable_softmax.kernels.directions import add_shares, along, gradient, load
from portable_softmax.kernels.pieces import get, joined
from portable_softmax.kernels.tiles import store


@triton.jit
def walk_pairs(
    dx_ptr, dy_ptr, y_ptr, n_rows, row_length, LAST_ALONE: tl.constexpr, VECTOR: tl.constexpr, PADDED: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr, PIECES: tl.constexpr, WALK: tl.constexpr,
    LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """The gradient's body where rows of an odd length follow each other directly, two of them being a pair.

    Tiles have TILE_ROWS pairs, and TILE_COLS columns of both rows together. LAST_ALONE: the number of rows is odd; of the last
    one, whole words are read as those of a pair are, and then the one element that is left.
    """
    n_cols, n_pairs = row_length * VECTOR, (n_rows + 1) // 2
    tiles = (n_pairs + TILE_ROWS - 1) // TILE_ROWS
    for tile in tl.range(tl.program_id(0), tiles if WALK else tl.program_id(0) + 1, tl.num_programs(0) if WALK else 1):
        _, line, pairs = rows_of(tile, tiles, n_pairs, TILE_ROWS, 1, True)
        cols = tl.arange(0, TILE_COLS // PIECES)
        dy = starts_of(dy_ptr, 0, line, 1, n_cols, 0, 0, VECTOR, False, 1, 1, 1, True)
        y = starts_of(y_ptr, 0, line, 1, n_cols, 0, 0, VECTOR, False, 1, 1, 1, True)
        dx = starts_of(dx_ptr, 0, line, 1, n_cols, 0, 0, VECTOR, False, 1, 1, 1, True)
        tile_dy = None
        tile_y = None
        first = tl.zeros((TILE_ROWS, TILE_COLS // PIECES), COMPUTE)
        second = first
        for k in tl.static_range(PIECES):
            piece, mask, is_first = columns_of(pairs, cols, n_pairs, row_length, k, PIECES, LAST_ALONE, VECTOR, PADDED)
            piece_dy, piece_y = load(dy, y, piece, mask, 0, 0, 1, 1, True, NEGATE, COMPUTE, COMPUTE)
            tile_dy, tile_y = joined(tile_dy, piece_dy, k, PIECES), joined(tile_y, piece_y, k, PIECES)
            first = tl.where(is_first, add_shares(first, piece_dy, piece_y, True, LOG), first)
            second = tl.where(is_first, second, add_shares(second, piece_dy, piece_y, True, LOG))
        first, second = tl.sum(first, axis=1), tl.sum(second, axis=1)
        if LAST_ALONE:
            if tile == tiles - 1:
                first = finish_last(dx_ptr, dy_ptr, y_ptr, n_rows, row_length, pairs == n_pairs - 1, first, LOG, NEGATE, EXACT)
        for k in tl.static_range(PIECES):
            piece, mask, is_first = columns_of(pairs, cols, n_pairs, row_length, k, PIECES, LAST_ALONE, VECTOR, PADDED)
            total = tl.where(is_first, along(first, 1), along(second, 1))
            result = gradient(get(tile_dy, k, PIECES), get(tile_y, k, PIECES), total, LOG, NEGATE, EXACT)
            store(pointers(dx, piece, 0, 1), result, mask)


@triton.jit
def columns_of(
    pairs, cols, n_pairs, row_length, PIECE: tl.constexpr, PIECES: tl.constexpr, LAST_ALONE: tl.constexpr,
    VECTOR: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    """(columns, mask, which are of the first row) of a piece of pairs; of half a pair, whole words of its one row."""
    cols, mask = piece_of(pairs, cols, 0, n_pairs, row_length * VECTOR, PIECE, PIECES, 1, VECTOR, False, PADDED, 1)
    if LAST_ALONE:
        mask = mask & (tl.expand_dims(pairs < n_pairs - 1, 1) | (cols // VECTOR < row_length // VECTOR))
    return cols, mask, cols < row_length


@triton.jit
def finish_last(
    dx_ptr, dy_ptr, y_ptr, n_rows, row_length, is_last, first, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr
):
    """Adds the last element of the last row to the sum of the rest, stores its gradient, and returns all of the sums."""
    at = n_rows * row_length - 1
    dy, y = tl.load(dy_ptr + at).to(first.dtype), tl.load(y_ptr + at).to(first.dtype)
    first = tl.where(is_last, add_shares(first, dy, y, True, LOG), first)
    total = tl.sum(tl.where(is_last, first, 0.0), axis=0)
    store(dx_ptr + at, gradient(dy, y, total, LOG, NEGATE, EXACT), None)
    return first
