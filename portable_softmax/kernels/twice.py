"""Rows, and parts of rows, that a program reads once more for their results, as it holds a piece of them at a time."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import mask_of, pointers
from portable_softmax.kernels.directions import (
    add_shares,
    finish,
    load,
    nothing,
    scale_from,
    shares,
    weights,
)
from portable_softmax.kernels.exchange import of_rows
from portable_softmax.kernels.exponents import add, add_by_place, base_of
from portable_softmax.kernels.tiles import store


@triton.jit
def load_at(
    a, b, rows, first_col, lead, n_rows, n_cols, a_stride, b_stride, WIDTH: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr, LIES: tl.constexpr,
    BACKWARD: tl.constexpr, NEGATE: tl.constexpr, ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(a, b, columns, mask) of WIDTH columns of rows."""
    cols = tl.expand_dims(first_col + tl.arange(0, WIDTH), 1 - AXIS)
    mask = mask_of(rows, cols, lead, n_rows, n_cols, True, PADDED, VECTOR, RAGGED, AXIS)
    tile_a, tile_b = load(a, b, cols, mask, a_stride, b_stride, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE)
    return tile_a, tile_b, cols, mask


@triton.jit
def reduce_long(
    a, b, edge_a, edge_b, rows, lead, first_col, past_col, n_rows, n_cols, a_stride, b_stride, WIDTH: tl.constexpr,
    BY_PLACE: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr,
    LIES: tl.constexpr, BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(first, second) of rows, or of a part of rows, that are longer than a tile, WIDTH columns at a time.

    BY_PLACE: one reduction at the end, of numbers that each place of a tile has of its own; a gradient always does so.
    """
    first = tl.full((rows.shape[0],), -float("inf"), COMPUTE)
    second = tl.zeros((rows.shape[0],), COMPUTE)
    peaks = _filled(rows.shape[0], WIDTH, -float("inf"), AXIS, COMPUTE)
    sums = _filled(rows.shape[0], WIDTH, 0.0, AXIS, COMPUTE)
    for col in tl.range(first_col, past_col, WIDTH):
        tile_a, tile_b, _, _ = load_at(
            a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, WIDTH,
            VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE,
        )  # fmt: skip
        if BACKWARD:
            sums = add_shares(sums, tile_a, tile_b, BACKWARD, LOG)
        elif BY_PLACE:
            peaks, sums = add_by_place(peaks, sums, tile_a, EXACT)
        else:
            first, second = add(first, second, tile_a, 1.0, AXIS, EXACT)
    if BACKWARD:
        first = tl.sum(sums, axis=AXIS)
    elif BY_PLACE:
        first, second = add(first, second, peaks, sums, AXIS, EXACT)
    if RAGGED:
        if BACKWARD:
            first += of_rows(tl.sum(shares(edge_a, edge_b, BACKWARD, LOG), axis=1))
        else:
            first, second = add(first, second, edge_a, 1.0, 1, EXACT)
    return first, second


@triton.jit
def reduce_part(
    a, b, edge_a, edge_b, rows, lead, first_col, past_col, n_rows, n_cols, a_stride, b_stride, WIDTH: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr, LIES: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(first, second) of a part of rows, to the bit as `reduce` finds them, but a piece at a time: in few registers."""
    peak = tl.zeros((rows.shape[0],), COMPUTE)
    if not BACKWARD:
        most = _filled(rows.shape[0], WIDTH, -float("inf"), AXIS, COMPUTE)
        for col in tl.range(first_col, past_col, WIDTH):
            x, _, _, _ = load_at(
                a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, WIDTH,
                VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE,
            )  # fmt: skip
            most = tl.maximum(most, x)
        peak = tl.max(most, axis=AXIS)
        if RAGGED:
            peak = tl.maximum(peak, of_rows(tl.max(edge_a, axis=1)))
    base = base_of(peak)
    sums = _filled(rows.shape[0], WIDTH, nothing(n_cols, COMPUTE), AXIS, COMPUTE)
    for col in tl.range(first_col, past_col, WIDTH):
        piece_a, piece_b, _, _ = load_at(
            a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, WIDTH,
            VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE,
        )  # fmt: skip
        sums = add_shares(sums, piece_a, weights(piece_a, piece_b, base, AXIS, BACKWARD, EXACT), BACKWARD, LOG)
    total = tl.sum(sums, axis=AXIS)
    if RAGGED:
        edges = shares(edge_a, weights(edge_a, edge_b, base, None, BACKWARD, EXACT), BACKWARD, LOG)
        total += of_rows(tl.sum(edges, axis=1))
    if BACKWARD:
        first, second = total, peak
    else:
        first, second = peak, total
    return first, second


@triton.jit
def _filled(n_rows: tl.constexpr, n_cols: tl.constexpr, value, AXIS: tl.constexpr, COMPUTE: tl.constexpr):
    if AXIS == 1:
        tile = tl.full((n_rows, n_cols), value, COMPUTE)
    else:
        tile = tl.full((n_cols, n_rows), value, COMPUTE)
    return tile


@triton.jit
def store_again(
    out, a, b, base, first, second, rows, lead, first_col, past_col, n_rows, n_cols, out_stride, a_stride, b_stride,
    WIDTH: tl.constexpr, WHOLE: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr, LIES: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Loads columns of rows again, WIDTH at a time, maps them to the bit as `store_tile` does, and stores the results.

    WHOLE: their base is the rows' first number, not that of a part of them.
    """
    scale, rest = scale_from(base, first, second, WHOLE, BACKWARD, EXACT)
    last = first_col + (past_col - 1 - first_col) // WIDTH * WIDTH
    for col in tl.range(first_col, past_col, WIDTH):
        tile_a, tile_b, cols, mask = load_at(
            a, b, rows, first_col + last - col if WHOLE else col,  # backwards: what was read last is still in a cache
            lead, n_rows, n_cols, a_stride, b_stride, WIDTH,
            VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE,
        )  # fmt: skip
        tile_b = weights(tile_a, tile_b, base, AXIS, BACKWARD, EXACT)
        result = finish(tile_a, tile_b, first, second, scale, rest, AXIS, BACKWARD, LOG, NEGATE, EXACT)
        store(pointers(out, cols, out_stride, LIES), result, mask)
