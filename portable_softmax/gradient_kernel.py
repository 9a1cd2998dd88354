"""The fused gradient of a softmax, for all vendors; kernels.py says what its parameters mean."""

import triton
import triton.language as tl

from portable_softmax.addressing import body_of, edges_of, piece_of, rows_of, store
from portable_softmax.exchange import LOG2E, collect, group_of, publish, swap
from portable_softmax.pieces import get, joined


@triton.jit
def _share(dy, y, LOG: tl.constexpr):
    """What elements add to the sum that their row's gradient needs."""
    return dy if LOG else dy * y


@triton.jit
def _gradient(dy, y, total, LOG: tl.constexpr, NEGATE: tl.constexpr):
    if LOG:
        dx = dy - tl.exp2(y * LOG2E) * total
    else:
        dx = y * (dy - total)
    return -dx if NEGATE else dx


@triton.jit
def _load(ptrs, mask, COMPUTE: tl.constexpr):
    return tl.load(ptrs, mask=mask, other=0.0).to(COMPUTE)


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
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    ONE_TILE: tl.constexpr,
    PARTS: tl.constexpr,
    EXCHANGE: tl.constexpr,
    LANES: tl.constexpr,
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
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
    tile_cols = part * TILE_COLS + tl.arange(0, TILE_COLS // PIECES)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    if EXCHANGE == "wait":
        group_ptr, turn = group_of(words_ptr, group, PARTS)
    for tile in tl.range(group, n_matrices * row_tiles, groups, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        dx_matrix = dx_ptr + matrix * dx_matrix_vectors * UNIT
        dy_matrix, y_matrix = dy_ptr + matrix * dy_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        total = tl.zeros((TILE_ROWS,), COMPUTE)
        if RAGGED:
            edge_ptrs, edge_mask = edges_of(dy_matrix, tile, part, n_cols, dy_stride, VECTOR)
            edge_dy = _load(edge_ptrs, edge_mask, COMPUTE)
            edge_ptrs, edge_mask = edges_of(y_matrix, tile, part, n_cols, y_stride, VECTOR)
            edge_y = _load(edge_ptrs, edge_mask, COMPUTE)
        if ONE_TILE:
            dy = None
            y = None
            for k in tl.static_range(PIECES):
                ptrs, mask = piece_of(
                    dy_matrix, rows, tile_cols, n_rows, n_cols, dy_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS
                )
                dy = joined(dy, _load(ptrs, mask, COMPUTE), k, PIECES)
                ptrs, mask = piece_of(
                    y_matrix, rows, tile_cols, n_rows, n_cols, y_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS
                )
                y = joined(y, _load(ptrs, mask, COMPUTE), k, PIECES)
        if EXCHANGE != "collect":
            if ONE_TILE:
                shares = None
                for k in tl.static_range(PIECES):
                    share = _share(get(dy, k, PIECES), get(y, k, PIECES), LOG)
                    shares = share if k == 0 else shares + share
                total += tl.sum(shares, axis=AXIS)
            else:
                for col in tl.range(0, n_cols, TILE_COLS):
                    cols = col + tile_cols
                    ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    dy = _load(ptrs, mask, COMPUTE)
                    y = dy
                    if not LOG:
                        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                        y = _load(ptrs, mask, COMPUTE)
                    total += tl.sum(_share(dy, y, LOG), axis=AXIS)
            if RAGGED:
                total += tl.sum(_share(edge_dy, edge_y, LOG), axis=0)
        if EXCHANGE == "wait":
            _, total = swap(group_ptr, turn, part, total, tl.zeros((TILE_ROWS,), COMPUTE), PARTS, LANES, True)
            turn += 1
        elif EXCHANGE == "publish":
            publish(words_ptr + rows * PARTS, part, total, tl.zeros((TILE_ROWS,), COMPUTE))
        elif EXCHANGE == "collect":
            _, total = collect(words_ptr + tile * PARTS, 0, PARTS, LANES, False, True)
        if EXCHANGE != "publish":
            if ONE_TILE:
                for k in tl.static_range(PIECES):
                    dx = _gradient(get(dy, k, PIECES), get(y, k, PIECES), tl.expand_dims(total, AXIS), LOG, NEGATE)
                    ptrs, mask = piece_of(
                        dx_matrix, rows, tile_cols, n_rows, n_cols, dx_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS
                    )
                    store(ptrs, dx, mask)
            else:
                for done in tl.range(0, n_cols, TILE_COLS):
                    cols = last - done + tile_cols
                    ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    dy = _load(ptrs, mask, COMPUTE)
                    ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    y = _load(ptrs, mask, COMPUTE)
                    ptrs, mask = body_of(dx_matrix, rows, cols, n_rows, n_cols, dx_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    store(ptrs, _gradient(dy, y, tl.expand_dims(total, AXIS), LOG, NEGATE), mask)
            if RAGGED:
                edge_ptrs, edge_mask = edges_of(dx_matrix, tile, part, n_cols, dx_stride, VECTOR)
                store(edge_ptrs, _gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE), edge_mask)
    if EXCHANGE == "wait":
        tl.store(group_ptr, turn, mask=part == 0)
