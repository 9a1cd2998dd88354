"""A program whose neighbours have not published in time does their part of a tile's rows, and its own once more."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import first_of_part, lead_of, rows_of, starts_of
from portable_softmax.kernels.directions import combine
from portable_softmax.kernels.exchange import by_row, found, is_missing, parts_of, top_of
from portable_softmax.kernels.exponents import base_of
from portable_softmax.kernels.tiles import load_edges, store_edges
from portable_softmax.kernels.twice import reduce_long, reduce_part, store_again


@triton.jit
def do_alone(
    out_ptr, a_ptr, b_ptr, words_ptr, launch, firsts, seconds, tile, part, row_tiles, per_matrix, n_rows, n_cols, n_matrices,
    out_stride, a_stride, b_stride, out_matrix, a_matrix, b_matrix, out_block, a_block, b_block,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr, PIECES: tl.constexpr, ONE_TILE: tl.constexpr, PARTS: tl.constexpr,
    LANES: tl.constexpr, POLL: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    AXIS: tl.constexpr, LIES: tl.constexpr, DEPTH: tl.constexpr, FLAT: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Finds the numbers of the parts of rows that are missing, then stores the results of a program's own part."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    matrix, line, rows = rows_of(tile, row_tiles, per_matrix, TILE_ROWS, DEPTH, FLAT)
    lead = lead_of(line, a_stride, VECTOR, RAGGED)
    a = starts_of(a_ptr, matrix, line, n_matrices, a_stride, a_matrix, a_block, VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT)
    b = starts_of(b_ptr, matrix, line, n_matrices, b_stride, b_matrix, b_block, VECTOR, RAGGED, AXIS, LIES, DEPTH, FLAT)
    end = n_cols + VECTOR if ONE_TILE else n_cols  # no more pieces than the rows have
    for other in tl.range(0, PARTS):
        if is_missing(seconds, other, TILE_ROWS, LANES):
            edge_a, edge_b = load_edges(
                a, b, rows, lead, other, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE
            )
            first_col = first_of_part(other, n_cols, TILE_COLS)
            past_col = tl.minimum(first_col + TILE_COLS, end)
            if ONE_TILE:
                first, second = reduce_part(
                    a, b, edge_a, edge_b, rows, lead, first_col, past_col, n_rows, n_cols, a_stride, b_stride,
                    WIDTH, VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
                )  # fmt: skip
            else:
                first, second = reduce_long(
                    a, b, edge_a, edge_b, rows, lead, first_col, past_col, n_rows, n_cols, a_stride, b_stride,
                    WIDTH, True, VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
                )  # fmt: skip
            firsts, seconds = found(words_ptr, other, first, second, firsts, seconds, launch, PARTS, LANES, POLL, BACKWARD)
    first, second = combine(
        firsts, seconds, top_of(firsts, seconds, TILE_ROWS, BACKWARD), TILE_ROWS, TILE_COLS, BACKWARD, EXACT
    )
    base = first
    if ONE_TILE:
        own = tl.where(parts_of(TILE_ROWS, LANES) == part, firsts, -float("inf"))
        base = by_row(base_of(tl.max(own, axis=0)), TILE_ROWS)
    out = starts_of(
        out_ptr, matrix, line, n_matrices, out_stride, out_matrix, out_block, VECTOR, RAGGED, AXIS, LIES, DEPTH, FLAT
    )
    edge_a, edge_b = load_edges(a, b, rows, lead, part, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE)
    first_col = first_of_part(part, n_cols, TILE_COLS)
    store_again(
        out, a, b, base, first, second, rows, lead, first_col, tl.minimum(first_col + TILE_COLS, end), n_rows, n_cols,
        out_stride, a_stride, b_stride, WIDTH, not ONE_TILE, VECTOR, RAGGED, PADDED, AXIS, LIES,
        BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
    )  # fmt: skip
    store_edges(
        out, edge_a, edge_b, first, second, rows, lead, part, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, LOG, NEGATE, EXACT
    )
