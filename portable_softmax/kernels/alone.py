"""A program whose neighbours have not published in time does their part of the softmax, and its own once more."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import body_of, edges_of, load, store
from portable_softmax.kernels.exchange import found, highest_of, is_missing, peak_of
from portable_softmax.kernels.exponents import base_of, exp, normalise, scale_of, sum_of, times
from portable_softmax.kernels.tiles import read_edges


@triton.jit
def reduce_again(
    x_matrix,
    y_ptr,
    edges,
    rows,
    first_col,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """(maximum, sum) of a part of a row, to the bit as read and reduce find them, but a piece at a time: in few registers."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    most = tl.full((1, WIDTH), -float("inf"), COMPUTE)
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, stride, True, PADDED, VECTOR, RAGGED, 1)
        most = tl.maximum(most, load(ptrs, mask, y_ptr, NEGATE, COMPUTE))
    peak = tl.max(most, axis=1)
    if RAGGED:
        peak = tl.maximum(peak, tl.max(edges, axis=0))
    base = base_of(peak)
    sums = tl.zeros((1, WIDTH), COMPUTE)
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, stride, True, PADDED, VECTOR, RAGGED, 1)
        sums += exp(load(ptrs, mask, y_ptr, NEGATE, COMPUTE) - tl.expand_dims(base, 1), EXACT)
    total = tl.sum(sums, axis=1)
    if RAGGED:
        total += tl.sum(exp(edges - tl.max(base, axis=0), EXACT), axis=0)
    return tl.max(peak, axis=0), tl.max(total, axis=0)


@triton.jit
def write_again(
    y_matrix,
    x_matrix,
    y_ptr,
    edges,
    base,
    peak,
    total,
    rows,
    first_col,
    row,
    part,
    n_rows,
    n_cols,
    x_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The results of a part of a row, to the bit as write gives them, but a piece at a time, from the input."""
    scale, rest = scale_of(base, peak, total, EXACT)
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, 1)
        x = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
        if LOG:
            y = normalise(x, tl.expand_dims(peak, 1), tl.expand_dims(total, 1), LOG, EXACT)
        else:
            y = times(exp(x - tl.expand_dims(base, 1), EXACT), tl.expand_dims(scale, 1), tl.expand_dims(rest, 1), EXACT)
        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, 1)
        store(ptrs, y, mask)
    if RAGGED:
        ptrs, mask = edges_of(y_matrix, row, part, n_cols, y_stride, VECTOR)
        store(ptrs, normalise(edges, tl.max(peak, axis=0), tl.max(total, axis=0), LOG, EXACT), mask)


@triton.jit
def do_alone(
    y_ptr,
    x_ptr,
    row_words,
    launch,
    peaks,
    totals,
    row,
    part,
    n_rows,
    n_cols,
    x_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
    POLL: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Finds the numbers of the parts of a row that are missing, then writes the results of a program's own part."""
    rows = tl.cast(row, tl.int64) + tl.arange(0, 1)
    for other in tl.range(0, PARTS):
        if is_missing(totals, other, LANES):
            edges = read_edges(x_ptr, y_ptr, row, other, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            peak, total = reduce_again(
                x_ptr, y_ptr, edges, rows, other * TILE_COLS, n_rows, n_cols, x_stride,
                VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, NEGATE, EXACT, COMPUTE,
            )  # fmt: skip
            peaks, totals = found(row_words, other, peak, total, peaks, totals, launch, PARTS, LANES, POLL, False)
    row_peak = peak_of(highest_of(peaks, totals, False))
    row_total = sum_of(peaks, totals, row_peak, EXACT)
    own_peak = tl.max(tl.where(tl.arange(0, LANES) == part, peaks, -float("inf")), axis=0)
    edges = read_edges(x_ptr, y_ptr, row, part, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
    write_again(
        y_ptr, x_ptr, y_ptr, edges, tl.full((1,), base_of(own_peak), tl.float32),
        tl.full((1,), row_peak, tl.float32), tl.full((1,), row_total, tl.float32), rows, part * TILE_COLS, row, part,
        n_rows, n_cols, x_stride, y_stride,
        VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, LOG, NEGATE, EXACT, COMPUTE,
    )  # fmt: skip
