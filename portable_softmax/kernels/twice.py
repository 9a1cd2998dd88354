"""Rows, and parts of rows, that a program reads once more for their results, as it holds no more than a piece of them."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import mask_of, pointers
from portable_softmax.kernels.directions import add_shares, add_tile, finish, load, lowest, scale_from, shares, weights
from portable_softmax.kernels.exponents import base_of
from portable_softmax.kernels.tiles import store


@triton.jit
def reduce_long(
    a, b, edge_a, edge_b, rows, lead, n_rows, n_cols, a_stride, b_stride, out_ptr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, TILE_COLS: tl.constexpr, AXIS: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(first, second) of rows that are longer than a tile, tile by tile."""
    first, second = tl.full((rows.shape[0],), lowest(BACKWARD), COMPUTE), tl.zeros((rows.shape[0],), COMPUTE)
    if RAGGED:
        first, second = add_tile(first, second, tl.expand_dims(edge_a, 0), tl.expand_dims(edge_b, 0), 1, BACKWARD, LOG, EXACT)
    for col in tl.range(0, n_cols, TILE_COLS):
        cols = col + tl.arange(0, TILE_COLS)
        mask = mask_of(rows, cols, lead, n_rows, n_cols, True, PADDED, VECTOR, RAGGED, AXIS)
        tile_a, tile_b = load(a, b, cols, mask, a_stride, b_stride, out_ptr, AXIS, BACKWARD, NEGATE, COMPUTE)
        first, second = add_tile(first, second, tile_a, tile_b, AXIS, BACKWARD, LOG, EXACT)
    return first, second


@triton.jit
def reduce_part(
    a, b, edge_a, edge_b, rows, lead, first_col, n_cols, out_ptr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, TILE_COLS: tl.constexpr, PIECES: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(first, second) of a part of a row, to the bit as `reduce` finds them in a tile, but a piece at a time: in few registers."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    if BACKWARD:
        peak = tl.zeros((1,), COMPUTE)
        base = peak
    else:
        most = tl.full((1, WIDTH), -float("inf"), COMPUTE)
        for col in tl.range(first_col, past, WIDTH):
            cols = col + tl.arange(0, WIDTH)
            mask = mask_of(rows, cols, lead, 0, n_cols, True, PADDED, VECTOR, RAGGED, 1)
            piece_a, piece_b = load(a, b, cols, mask, 0, 0, out_ptr, 1, BACKWARD, NEGATE, COMPUTE)
            most = tl.maximum(most, piece_a)
        peak = tl.max(most, axis=1)
        if RAGGED:
            peak = tl.maximum(peak, tl.max(edge_a, axis=0))
        base = base_of(peak)
    sums = tl.full((1, WIDTH), -0.0, COMPUTE)  # which changes no number that is added to it, 0.0 included
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        mask = mask_of(rows, cols, lead, 0, n_cols, True, PADDED, VECTOR, RAGGED, 1)
        piece_a, piece_b = load(a, b, cols, mask, 0, 0, out_ptr, 1, BACKWARD, NEGATE, COMPUTE)
        sums = add_shares(sums, piece_a, weights(piece_a, piece_b, base, 1, BACKWARD, EXACT), BACKWARD, LOG)
    total = tl.sum(sums, axis=1)
    if RAGGED:
        total += tl.sum(shares(edge_a, weights(edge_a, edge_b, base, None, BACKWARD, EXACT), BACKWARD, LOG), axis=0)
    first, second = (total, peak) if BACKWARD else (peak, total)
    return tl.max(first, axis=0), tl.max(second, axis=0)


@triton.jit
def store_again(
    out, a, b, base, first, second, rows, lead, first_col, width, n_rows, n_cols, out_stride, a_stride, b_stride, out_ptr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """The results of `width` columns of rows, to the bit as `store_tile` gives them, WIDTH at a time."""
    scale, rest = scale_from(base, first, second, PARTS, BACKWARD, EXACT)
    last = first_col + (width - 1) // WIDTH * WIDTH
    for done in tl.range(0, width, WIDTH):
        cols = (last - done if PARTS == 1 else first_col + done) + tl.arange(0, WIDTH)
        mask = mask_of(rows, cols, lead, n_rows, n_cols, True, PADDED, VECTOR, RAGGED, AXIS)
        tile_a, tile_b = load(a, b, cols, mask, a_stride, b_stride, out_ptr, AXIS, BACKWARD, NEGATE, COMPUTE)
        tile_b = weights(tile_a, tile_b, base, AXIS, BACKWARD, EXACT)
        result = finish(tile_a, tile_b, first, second, scale, rest, AXIS, BACKWARD, LOG, NEGATE, EXACT)
        store(pointers(out, cols, out_stride, AXIS), result, mask)
