"""Rows, and parts of rows, that a program reads once more for their results, as it holds a piece of them at a time."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import mask_of, pointers
from portable_softmax.kernels.directions import add_shares, add_tile, finish, load, nothing, scale_from, shares, weights
from portable_softmax.kernels.exponents import add, base_of
from portable_softmax.kernels.tiles import store


@triton.jit
def load_at(
    a, b, rows, first_col, lead, n_rows, n_cols, a_stride, b_stride, WIDTH: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr,
    BACKWARD: tl.constexpr, NEGATE: tl.constexpr, ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(a, b, columns, mask) of WIDTH columns of rows."""
    cols = first_col + tl.arange(0, WIDTH)
    mask = mask_of(rows, cols, lead, n_rows, n_cols, True, PADDED, VECTOR, RAGGED, AXIS)
    tile_a, tile_b = load(a, b, cols, mask, a_stride, b_stride, AXIS, BACKWARD, NEGATE, ROUND, COMPUTE)
    return tile_a, tile_b, cols, mask


@triton.jit
def reduce_long(
    a, b, edge_a, edge_b, rows, lead, n_rows, n_cols, a_stride, b_stride, TILE_COLS: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(first, second) of rows that are longer than a tile, tile by tile."""
    first = tl.full((rows.shape[0],), 0.0 if BACKWARD else -float("inf"), COMPUTE)
    second = tl.zeros((rows.shape[0],), COMPUTE)
    if RAGGED:
        if BACKWARD:
            first += tl.sum(shares(edge_a, edge_b, BACKWARD, LOG), axis=0)
        else:
            first, second = add(first, second, tl.expand_dims(edge_a, 0), 1.0, 1, EXACT)
    for col in tl.range(0, n_cols, TILE_COLS):
        tile_a, tile_b, _, _ = load_at(
            a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, TILE_COLS,
            VECTOR, RAGGED, PADDED, AXIS, BACKWARD, NEGATE, ROUND, COMPUTE,
        )  # fmt: skip
        first, second = add_tile(first, second, tile_a, tile_b, AXIS, BACKWARD, LOG, EXACT)
    return first, second


@triton.jit
def reduce_part(
    a, b, edge_a, edge_b, rows, lead, first_col, past_col, n_cols, WIDTH: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(first, second) of a part of a row, to the bit as `reduce` finds them, but a piece at a time: in few registers."""
    peak = tl.zeros((1,), COMPUTE)
    if not BACKWARD:
        most = tl.full((1, WIDTH), -float("inf"), COMPUTE)
        for col in tl.range(first_col, past_col, WIDTH):
            x, _, _, _ = load_at(
                a, b, rows, col, lead, 1, n_cols, 0, 0, WIDTH, VECTOR, RAGGED, PADDED, 1, BACKWARD, NEGATE, ROUND, COMPUTE
            )
            most = tl.maximum(most, x)
        peak = tl.max(most, axis=1)
        if RAGGED:
            peak = tl.maximum(peak, tl.max(edge_a, axis=0))
    base = base_of(peak)
    sums = tl.full((1, WIDTH), nothing(n_cols, COMPUTE), COMPUTE)
    for col in tl.range(first_col, past_col, WIDTH):
        piece_a, piece_b, _, _ = load_at(
            a, b, rows, col, lead, 1, n_cols, 0, 0, WIDTH, VECTOR, RAGGED, PADDED, 1, BACKWARD, NEGATE, ROUND, COMPUTE
        )
        sums = add_shares(sums, piece_a, weights(piece_a, piece_b, base, 1, BACKWARD, EXACT), BACKWARD, LOG)
    total = tl.sum(sums, axis=1)
    if RAGGED:
        total += tl.sum(shares(edge_a, weights(edge_a, edge_b, base, None, BACKWARD, EXACT), BACKWARD, LOG), axis=0)
    first, second = (total, peak) if BACKWARD else (peak, total)
    return tl.max(first, axis=0), tl.max(second, axis=0)


@triton.jit
def store_again(
    out, a, b, base, first, second, rows, lead, first_col, past_col, n_rows, n_cols, out_stride, a_stride, b_stride,
    WIDTH: tl.constexpr, WHOLE: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Loads columns of rows again, WIDTH at a time, maps them to the bit as `store_tile` does, and stores the results."""
    scale, rest = scale_from(base, first, second, WHOLE, BACKWARD, EXACT)
    last = (past_col - 1) // WIDTH * WIDTH
    for col in tl.range(first_col, past_col, WIDTH):
        tile_a, tile_b, cols, mask = load_at(
            a, b, rows, last - col if WHOLE else col,  # WHOLE rows backwards: what was read last is still in a cache
            lead, n_rows, n_cols, a_stride, b_stride, WIDTH,
            VECTOR, RAGGED, PADDED, AXIS, BACKWARD, NEGATE, ROUND, COMPUTE,
        )  # fmt: skip
        tile_b = weights(tile_a, tile_b, base, AXIS, BACKWARD, EXACT)
        result = finish(tile_a, tile_b, first, second, scale, rest, AXIS, BACKWARD, LOG, NEGATE, EXACT)
        store(pointers(out, cols, out_stride, AXIS), result, mask)
