"""The fused gradient of a softmax, for all vendors."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import body_of, edges_of, rows_of, store
from portable_softmax.kernels.exchange import MISSING, swap
from portable_softmax.kernels.gradient_alone import do_alone
from portable_softmax.kernels.gradient_tiles import gradient, load, read, read_edges, reduce, share, write


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
        if ONE_TILE:
            cols = part * TILE_COLS + tile_cols
            edge_dy, edge_y = read_edges(dy_matrix, y_matrix, tile, part, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
            dy, y = read(
                dy_matrix, y_matrix, rows, cols, n_rows, n_cols, dy_stride, y_stride,
                VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, COMPUTE,
            )  # fmt: skip
            total = reduce(dy, y, edge_dy, edge_y, part, PIECES, RAGGED, AXIS, LOG)
            if PARTS == 1:
                write(
                    dx_matrix, dy, y, edge_dy, edge_y, total, rows, cols, tile, part, n_rows, n_cols, dx_stride,
                    VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, NEGATE, EXACT,
                )  # fmt: skip
            else:
                own_total, zero = tl.max(total, axis=0), tl.cast(0.0, tl.float32)
                row_words = words_ptr + tl.cast(tile, tl.int64) * WORDS
                totals, zeros, highest = swap(row_words, part, own_total, zero, launch, PARTS, LANES, POLL, POLLS, True)
                if highest == MISSING:
                    again = tile + (highest - MISSING)  # the compiler does not know that it is `tile`, and holds nothing for it
                    do_alone(
                        dx_ptr, dy_ptr, y_ptr, row_words, launch, totals, zeros, again, part, n_rows, n_cols,
                        dx_stride, dy_stride, y_stride,
                        VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, PARTS, LANES, POLL, LOG, NEGATE, EXACT, COMPUTE,
                    )  # fmt: skip
                else:
                    row_total = tl.full((1,), tl.sum(totals, axis=0), tl.float32)
                    write(
                        dx_matrix, dy, y, edge_dy, edge_y, row_total, rows, cols, tile, part, n_rows, n_cols, dx_stride,
                        VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, NEGATE, EXACT,
                    )  # fmt: skip
        else:
            edge_dy, edge_y = read_edges(dy_matrix, y_matrix, tile, 0, n_cols, dy_stride, y_stride, VECTOR, RAGGED, COMPUTE)
            total = tl.zeros((TILE_ROWS,), COMPUTE)
            if RAGGED:
                total += tl.sum(share(edge_dy, edge_y, LOG), axis=0)
            for col in tl.range(0, n_cols, TILE_COLS):
                cols = col + tile_cols
                ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                dy = load(ptrs, mask, COMPUTE)
                y = dy
                if not LOG:
                    ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    y = load(ptrs, mask, COMPUTE)
                total += tl.sum(share(dy, y, LOG), axis=AXIS)
            for done in tl.range(0, n_cols, TILE_COLS):
                cols = last - done + tile_cols
                ptrs, mask = body_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                dy = load(ptrs, mask, COMPUTE)
                ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                y = load(ptrs, mask, COMPUTE)
                ptrs, mask = body_of(dx_matrix, rows, cols, n_rows, n_cols, dx_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                store(ptrs, gradient(dy, y, tl.expand_dims(total, AXIS), LOG, NEGATE, EXACT), mask)
            if RAGGED:
                ptrs, mask = edges_of(dx_matrix, tile, 0, n_cols, dx_stride, VECTOR)
                store(ptrs, gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE, EXACT), mask)
