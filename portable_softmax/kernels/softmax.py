"""The fused softmax, for all vendors."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import body_of, edges_of, load, rows_of, store
from portable_softmax.kernels.alone import do_alone
from portable_softmax.kernels.exchange import MISSING, peak_of, swap
from portable_softmax.kernels.exponents import add, normalise, sum_of
from portable_softmax.kernels.tiles import read, read_edges, reduce, write


@triton.jit
def softmax_kernel(
    y_ptr,
    x_ptr,
    n_lines,
    n_line_vectors,
    y_line_vectors,
    x_line_vectors,
    n_matrices,
    y_matrix_vectors,
    x_matrix_vectors,
    words_ptr,  # of the exchange, and the launch's number; None without
    launch,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,  # then the rows of y are to those of x as if both had the same stride
    PADDED: tl.constexpr,  # whether tiles end elsewhere than rows do
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row, or a program's part of it, fits a tile
    PARTS: tl.constexpr,  # programs that share a row
    WORDS: tl.constexpr,  # in which those of one row exchange their numbers
    LANES: tl.constexpr,  # a part each, of a look at all words: at least a program's threads, so that its warps see the same
    POLL: tl.constexpr,  # how a word is read anew: "volatile" or "atomic"
    POLLS: tl.constexpr,  # how often at most, before a program finds what is missing by itself
    WALK: tl.constexpr,  # whether a program takes more than one tile
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row; its logarithm with LOG; of -x with NEGATE."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    x_stride, y_stride = x_line_vectors * UNIT, y_line_vectors * UNIT
    group, groups = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    part = tl.program_id(0) % PARTS
    tile_cols = tl.arange(0, TILE_COLS // PIECES)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    tiles = n_matrices * row_tiles if WALK else group + 1
    for tile in tl.range(group, tiles, groups if WALK else 1, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        x_matrix, y_matrix = x_ptr + matrix * x_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        if ONE_TILE:
            cols = part * TILE_COLS + tile_cols
            edges = read_edges(x_matrix, y_ptr, tile, part, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            x = read(
                x_matrix, y_ptr, rows, cols, n_rows, n_cols, x_stride,
                VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, NEGATE, COMPUTE,
            )  # fmt: skip
            e, base, peak, total = reduce(x, edges, part, RAGGED, PARTS > 1, PIECES, AXIS, EXACT)
            if PARTS == 1:
                write(
                    y_matrix, x, e, edges, base, peak, total, rows, cols, tile, part, n_rows, n_cols, y_stride,
                    VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, EXACT,
                )  # fmt: skip
            else:
                own_peak, own_total = tl.max(peak, axis=0), tl.max(total, axis=0)
                row_words = words_ptr + tl.cast(tile, tl.int64) * WORDS
                peaks, totals, highest = swap(row_words, part, own_peak, own_total, launch, PARTS, LANES, POLL, POLLS, False)
                if highest == MISSING:
                    again = tile + (highest - MISSING)  # the compiler does not know that it is `tile`, and holds nothing for it
                    do_alone(
                        y_ptr, x_ptr, row_words, launch, peaks, totals, again, part, n_rows, n_cols, x_stride, y_stride,
                        VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, PARTS, LANES, POLL, LOG, NEGATE, EXACT, COMPUTE,
                    )  # fmt: skip
                else:
                    row_peak = tl.full((1,), peak_of(highest), tl.float32)
                    row_total = tl.full((1,), sum_of(peaks, totals, peak_of(highest), EXACT), tl.float32)
                    write(
                        y_matrix, x, e, edges, base, row_peak, row_total, rows, cols, tile, part, n_rows, n_cols, y_stride,
                        VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, EXACT,
                    )  # fmt: skip
        else:
            peak, total = tl.full((TILE_ROWS,), -float("inf"), COMPUTE), tl.zeros((TILE_ROWS,), COMPUTE)
            edges = read_edges(x_matrix, y_ptr, tile, 0, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            if RAGGED:
                peak, total = add(peak, total, tl.expand_dims(edges, 0), 1.0, 1, EXACT)
            for col in tl.range(0, n_cols, TILE_COLS):
                cols = col + tile_cols
                ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                peak, total = add(peak, total, load(ptrs, mask, y_ptr, NEGATE, COMPUTE), 1.0, AXIS, EXACT)
            for done in tl.range(0, n_cols, TILE_COLS):
                cols = last - done + tile_cols  # backwards: what was read last is still in a cache
                ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                x = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
                y = normalise(x, tl.expand_dims(peak, AXIS), tl.expand_dims(total, AXIS), LOG, EXACT)
                ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                store(ptrs, y, mask)
            if RAGGED:
                ptrs, mask = edges_of(y_matrix, tile, 0, n_cols, y_stride, VECTOR)
                store(ptrs, normalise(edges, tl.max(peak, axis=0), tl.max(total, axis=0), LOG, EXACT), mask)
