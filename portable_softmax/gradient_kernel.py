"""The fused gradient of a softmax, for all vendors; kernels.py says what its parameters mean."""

import triton
import triton.language as tl

from portable_softmax.addressing import body_of, edges_of, piece_of, rows_of, store
from portable_softmax.exchange import MISSING, found, is_missing, swap
from portable_softmax.exponents import exp
from portable_softmax.pieces import get, joined


@triton.jit
def _share(dy, y, LOG: tl.constexpr):
    """What elements add to the sum that their row's gradient needs."""
    return dy if LOG else dy * y


@triton.jit
def _add_share(shares, dy, y, LOG: tl.constexpr):
    return shares + dy if LOG else tl.fma(dy, y, shares)


@triton.jit
def _gradient(dy, y, total, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr):
    if LOG:
        dx = dy - exp(y, EXACT) * total
    else:
        dx = y * (dy - total)
    return -dx if NEGATE else dx


@triton.jit
def _load(ptrs, mask, COMPUTE: tl.constexpr):
    return tl.load(ptrs, mask=mask, other=0.0).to(COMPUTE)


@triton.jit
def _read(
    dy_matrix,
    y_matrix,
    rows,
    cols,
    n_rows,
    n_cols,
    dy_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """A tile's elements of dy and of y, in pieces; `cols` are those of the first one."""
    dy = None
    y = None
    for k in tl.static_range(PIECES):
        ptrs, mask = piece_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        dy = joined(dy, _load(ptrs, mask, COMPUTE), k, PIECES)
        ptrs, mask = piece_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        y = joined(y, _load(ptrs, mask, COMPUTE), k, PIECES)
    return dy, y


@triton.jit
def _read_edges(
    dy_matrix, y_matrix, row, part, n_cols, dy_stride, y_stride, VECTOR: tl.constexpr, RAGGED: tl.constexpr, COMPUTE: tl.constexpr
):
    """The elements of RAGGED rows of dy and y before and after their bodies, for the first of their parts."""
    if RAGGED:
        ptrs, mask = edges_of(dy_matrix, row, part, n_cols, dy_stride, VECTOR)
        dy = _load(ptrs, mask, COMPUTE)
        ptrs, mask = edges_of(y_matrix, row, part, n_cols, y_stride, VECTOR)
        y = _load(ptrs, mask, COMPUTE)
    else:
        dy = tl.zeros((1,), COMPUTE)
        y = dy
    return dy, y


@triton.jit
def _reduce(dy, y, edge_dy, edge_y, part, PIECES: tl.constexpr, RAGGED: tl.constexpr, AXIS: tl.constexpr, LOG: tl.constexpr):
    """The sum of a tile's shares, and of its edges'."""
    shares = None
    for k in tl.static_range(PIECES):
        if k == 0:
            shares = _share(get(dy, k, PIECES), get(y, k, PIECES), LOG)
        else:
            shares = _add_share(shares, get(dy, k, PIECES), get(y, k, PIECES), LOG)
    total = tl.sum(shares, axis=AXIS)
    if RAGGED:
        if part == 0:  # a constant 0 where a program has the whole row
            total += tl.sum(_share(edge_dy, edge_y, LOG), axis=0)
    return total


@triton.jit
def _write(
    dx_matrix,
    dy,
    y,
    edge_dy,
    edge_y,
    total,
    rows,
    cols,
    row,
    part,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
):
    for k in tl.static_range(PIECES):
        dx = _gradient(get(dy, k, PIECES), get(y, k, PIECES), tl.expand_dims(total, AXIS), LOG, NEGATE, EXACT)
        ptrs, mask = piece_of(dx_matrix, rows, cols, n_rows, n_cols, stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        store(ptrs, dx, mask)
    if RAGGED:
        if part == 0:
            edge_ptrs, edge_mask = edges_of(dx_matrix, row, part, n_cols, stride, VECTOR)
            store(edge_ptrs, _gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE, EXACT), edge_mask)


@triton.jit
def _reduce_again(
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
    """The sum of a part of a row, to the bit as _read and _reduce find it, but a piece at a time: in few registers."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    shares = tl.full((1, WIDTH), -0.0, COMPUTE)  # which changes no number that is added to it, 0.0 included
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, 1)
        dy = _load(ptrs, mask, COMPUTE)
        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, 1)
        shares = _add_share(shares, dy, _load(ptrs, mask, COMPUTE), LOG)
    total = tl.sum(shares, axis=1)
    if RAGGED:
        total += tl.sum(_share(edge_dy, edge_y, LOG), axis=0)
    return tl.max(total, axis=0)


@triton.jit
def _write_again(
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
    """The results of a part of a row, to the bit as _write gives them, but a piece at a time, from the input."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, 1)
        dy = _load(ptrs, mask, COMPUTE)
        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, 1)
        dx = _gradient(dy, _load(ptrs, mask, COMPUTE), tl.expand_dims(total, 1), LOG, NEGATE, EXACT)
        ptrs, mask = body_of(dx_matrix, rows, cols, n_rows, n_cols, dx_stride, True, PADDED, VECTOR, RAGGED, 1)
        store(ptrs, dx, mask)
    if RAGGED:
        ptrs, mask = edges_of(dx_matrix, row, part, n_cols, dx_stride, VECTOR)
        store(ptrs, _gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE, EXACT), mask)


@triton.jit
def softmax_backward_kernel(
    dx_ptr,
    dy_ptr,
    y_ptr,
    n_lines,
    n_line_vectors,
    dx_line_vectors,
    dy_line_vectors,
    y_line_vectors,
    n_matrices,
    dx_matrix_vectors,
    dy_matrix_vectors,
    y_matrix_vectors,
    words_ptr,  # this and what follows: as softmax_kernel
    launch,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    ONE_TILE: tl.constexpr,
    PARTS: tl.constexpr,
    WORDS: tl.constexpr,
    LANES: tl.constexpr,
    POLL: tl.constexpr,
    POLLS: tl.constexpr,
    WALK: tl.constexpr,
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """dx = y * (dy - sum(dy * y)) for each row; dy - exp(y) * sum(dy) with LOG; the negative with NEGATE."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    dx_stride, dy_stride, y_stride = dx_line_vectors * UNIT, dy_line_vectors * UNIT, y_line_vectors * UNIT
    group, groups = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    part = tl.program_id(0) % PARTS
    tile_cols = tl.arange(0, TILE_COLS // PIECES)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    tiles = n_matrices * row_tiles if WALK else group + 1
    for tile in tl.range(group, tiles, groups if WALK else 1, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        dx_matrix = dx_ptr + matrix * dx_matrix_vectors * UNIT
        dy_matrix, y_matrix = dy_ptr + matrix * dy_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        if PARTS > 1:
            edge_dy, edge_y = _read_edges(dy_matrix, y_matrix, tile, part, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
            cols = part * TILE_COLS + tile_cols
            dy, y = _read(
                dy_matrix, y_matrix, rows, cols, n_rows, n_cols, dy_stride, y_stride, VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS,
                COMPUTE,
            )
            total = tl.max(_reduce(dy, y, edge_dy, edge_y, part, PIECES, RAGGED, AXIS, LOG), axis=0)
            row_words = words_ptr + tl.cast(tile, tl.int64) * WORDS
            nothing = tl.cast(0.0, tl.float32)
            totals, zeros, highest = swap(row_words, part, total, nothing, launch, PARTS, LANES, POLL, POLLS, True)
            if highest == MISSING:
                for other in tl.range(0, PARTS):
                    if is_missing(zeros, other, LANES):
                        their_dy, their_y = _read_edges(
                            dy_matrix, y_matrix, tile, other, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE
                        )
                        their_total = _reduce_again(
                            dy_matrix, y_matrix, their_dy, their_y, rows, other * TILE_COLS, n_rows, n_cols, dy_stride, y_stride,
                            VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, LOG, COMPUTE,
                        )
                        totals, zeros = found(row_words, other, their_total, nothing, totals, zeros, launch, PARTS, LANES, POLL, True)
                late_total = tl.sum(totals, axis=0)
                _write_again(
                    dx_matrix, dy_matrix, y_matrix, edge_dy, edge_y, tl.full((1,), late_total, tl.float32), rows, part * TILE_COLS, tile, part, n_rows, n_cols,
                    dx_stride, dy_stride, y_stride, VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, LOG, NEGATE, EXACT, COMPUTE,
                )
            else:
                row_total = tl.sum(totals, axis=0)
                _write(
                    dx_matrix, dy, y, edge_dy, edge_y, tl.full((1,), row_total, tl.float32), rows, cols, tile, part, n_rows, n_cols, dx_stride,
                    VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, NEGATE, EXACT,
                )
        elif ONE_TILE:
            edge_dy, edge_y = _read_edges(dy_matrix, y_matrix, tile, 0, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
            dy, y = _read(
                dy_matrix, y_matrix, rows, tile_cols, n_rows, n_cols, dy_stride, y_stride, VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS,
                COMPUTE,
            )
            total = _reduce(dy, y, edge_dy, edge_y, 0, PIECES, RAGGED, AXIS, LOG)
            _write(
                dx_matrix, dy, y, edge_dy, edge_y, total, rows, tile_cols, tile, 0, n_rows, n_cols, dx_stride,
                VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, NEGATE, EXACT,
            )
        else:
            edge_dy, edge_y = _read_edges(dy_matrix, y_matrix, tile, 0, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
            total = tl.zeros((TILE_ROWS,), COMPUTE)
            if RAGGED:
                total += tl.sum(_share(edge_dy, edge_y, LOG), axis=0)
            for col in tl.range(0, n_cols, TILE_COLS):
                cols = col + tile_cols
                ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                dy = _load(ptrs, mask, COMPUTE)
                y = dy
                if not LOG:
                    ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    y = _load(ptrs, mask, COMPUTE)
                total += tl.sum(_share(dy, y, LOG), axis=AXIS)
            for done in tl.range(0, n_cols, TILE_COLS):
                cols = last - done + tile_cols
                ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                dy = _load(ptrs, mask, COMPUTE)
                ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                y = _load(ptrs, mask, COMPUTE)
                ptrs, mask = body_of(dx_matrix, rows, cols, n_rows, n_cols, dx_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                store(ptrs, _gradient(dy, y, tl.expand_dims(total, AXIS), LOG, NEGATE, EXACT), mask)
            if RAGGED:
                ptrs, mask = edges_of(dx_matrix, tile, 0, n_cols, dx_stride, VECTOR)
                store(ptrs, _gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE, EXACT), mask)
