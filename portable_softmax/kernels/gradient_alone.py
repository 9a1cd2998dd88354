"""A program whose neighbours have not published in time does their part of the gradient, and its own once more."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import body_of, edges_of, store
from portable_softmax.kernels.exchange import found, is_missing
from portable_softmax.kernels.gradient_tiles import add_share, gradient, load, read_edges, share


@triton.jit
def reduce_again(
    dy_matrix,
    y_matrix,
    edge_dy,
    edge_y,
    rows,
    first_col,
    n_rows,
    n_cols,
    dy_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The sum of a part of a row, to the bit as read and reduce find it, but a piece at a time: in few registers."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    shares = tl.full((1, WIDTH), -0.0, COMPUTE)  # which changes no number that is added to it, 0.0 included
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, 1)
        dy = load(ptrs, mask, COMPUTE)
        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, 1)
        shares = add_share(shares, dy, load(ptrs, mask, COMPUTE), LOG)
    total = tl.sum(shares, axis=1)
    if RAGGED:
        total += tl.sum(share(edge_dy, edge_y, LOG), axis=0)
    return tl.max(total, axis=0)


@triton.jit
def write_again(
    dx_matrix,
    dy_matrix,
    y_matrix,
    edge_dy,
    edge_y,
    total,
    rows,
    first_col,
    row,
    part,
    n_rows,
    n_cols,
    dx_stride,
    dy_stride,
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
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, 1)
        dy = load(ptrs, mask, COMPUTE)
        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, 1)
        dx = gradient(dy, load(ptrs, mask, COMPUTE), tl.expand_dims(total, 1), LOG, NEGATE, EXACT)
        ptrs, mask = body_of(dx_matrix, rows, cols, n_rows, n_cols, dx_stride, True, PADDED, VECTOR, RAGGED, 1)
        store(ptrs, dx, mask)
    if RAGGED:
        ptrs, mask = edges_of(dx_matrix, row, part, n_cols, dx_stride, VECTOR)
        store(ptrs, gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE, EXACT), mask)


@triton.jit
def do_alone(
    dx_ptr,
    dy_ptr,
    y_ptr,
    row_words,
    launch,
    totals,
    zeros,
    row,
    part,
    n_rows,
    n_cols,
    dx_stride,
    dy_stride,
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
    """Finds the sums of the parts of a row that are missing, then writes the gradient of a program's own part."""
    rows = tl.cast(row, tl.int64) + tl.arange(0, 1)
    for other in tl.range(0, PARTS):
        if is_missing(zeros, other, LANES):
            edge_dy, edge_y = read_edges(dy_ptr, y_ptr, row, other, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
            total = reduce_again(
                dy_ptr, y_ptr, edge_dy, edge_y, rows, other * TILE_COLS, n_rows, n_cols, dy_stride, y_stride,
                VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, LOG, COMPUTE,
            )  # fmt: skip
            zero = tl.cast(0.0, tl.float32)
            totals, zeros = found(row_words, other, total, zero, totals, zeros, launch, PARTS, LANES, POLL, True)
    row_total = tl.full((1,), tl.sum(totals, axis=0), tl.float32)
    edge_dy, edge_y = read_edges(dy_ptr, y_ptr, row, part, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
    write_again(
        dx_ptr, dy_ptr, y_ptr, edge_dy, edge_y, row_total, rows, part * TILE_COLS, row, part, n_rows, n_cols,
        dx_stride, dy_stride, y_stride,
        VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, LOG, NEGATE, EXACT, COMPUTE,
    )  # fmt: skip
