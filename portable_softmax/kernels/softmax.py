"""The fused softmax and its gradient, for all vendors: one body, and a kernel for each, as their operands differ."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import first_of_part, lead_of, rows_of, starts_of
from portable_softmax.kernels.alone import do_alone
from portable_softmax.kernels.directions import combine
from portable_softmax.kernels.exchange import MISSING, swap
from portable_softmax.kernels.pairs import walk_pairs
from portable_softmax.kernels.tiles import load_edges, load_tile, reduce, store_edges, store_tile
from portable_softmax.kernels.twice import reduce_long, store_again


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
    n_blocks,
    y_block_vectors,
    x_block_vectors,
    words_ptr,  # of the exchange, and the launch's number; None without
    launch,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,  # then the rows of y are to those of x as if both had the same stride
    PADDED: tl.constexpr,  # whether tiles end elsewhere than rows do
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row, or a program's part of it, is read once
    BY_PLACE: tl.constexpr,  # whether what is read twice has numbers for each place of a tile, and is reduced at the end
    PARTS: tl.constexpr,  # programs that share the rows of a tile
    WORDS: tl.constexpr,  # in which those of one tile exchange their numbers
    LANES: tl.constexpr,  # a row's part each, of a look at all words: at least a program's threads: its warps see the same
    POLL: tl.constexpr,  # how a word is read anew: "volatile" or "atomic"
    POLLS: tl.constexpr,  # how often at most, before a program finds what is missing by itself
    WALK: tl.constexpr,  # whether a program takes more than one tile
    AXIS: tl.constexpr,
    DEPTH: tl.constexpr,  # 1 if rows follow each other at one distance, 2 if they do in matrices, 3 if these do in blocks
    FLAT: tl.constexpr,  # whether a tile's rows may lie in several matrices
    TURNED: tl.constexpr,  # whether y lies the other way: its rows side by side where those of x are not, or back
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row; its logarithm with LOG; of -x with NEGATE."""
    walk(
        y_ptr, x_ptr, x_ptr, n_lines, n_line_vectors, y_line_vectors, x_line_vectors, x_line_vectors,
        n_matrices, y_matrix_vectors, x_matrix_vectors, x_matrix_vectors,
        n_blocks, y_block_vectors, x_block_vectors, x_block_vectors, words_ptr, launch,
        VECTOR, RAGGED, PADDED, TILE_ROWS, TILE_COLS, PIECES, ONE_TILE, BY_PLACE, PARTS, WORDS, LANES, POLL, POLLS, WALK, AXIS,
        DEPTH, FLAT, TURNED, False, LOG, NEGATE, STAGES, EXACT, COMPUTE,
    )  # fmt: skip


@triton.jit
def softmax_backward_kernel(
    dx_ptr, dy_ptr, y_ptr, n_lines, n_line_vectors, dx_line_vectors, dy_line_vectors, y_line_vectors,
    n_matrices, dx_matrix_vectors, dy_matrix_vectors, y_matrix_vectors,
    n_blocks, dx_block_vectors, dy_block_vectors, y_block_vectors, words_ptr, launch,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PAIRED: tl.constexpr, LAST_ALONE: tl.constexpr, PADDED: tl.constexpr,
    TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr, PIECES: tl.constexpr, ONE_TILE: tl.constexpr, BY_PLACE: tl.constexpr,
    PARTS: tl.constexpr, WORDS: tl.constexpr, LANES: tl.constexpr, POLL: tl.constexpr, POLLS: tl.constexpr,
    WALK: tl.constexpr, AXIS: tl.constexpr, DEPTH: tl.constexpr, FLAT: tl.constexpr, TURNED: tl.constexpr, LOG: tl.constexpr,
    NEGATE: tl.constexpr, STAGES: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """dx = y * (dy - sum(dy * y)) for each row; dy - exp(y) * sum(dy) with LOG; the negative with NEGATE."""
    if PAIRED:
        walk_pairs(
            dx_ptr, dy_ptr, y_ptr, n_lines, n_line_vectors, LAST_ALONE, VECTOR, PADDED,
            TILE_ROWS, TILE_COLS, PIECES, WALK, LOG, NEGATE, EXACT, COMPUTE,
        )  # fmt: skip
    else:
        walk(
            dx_ptr, dy_ptr, y_ptr, n_lines, n_line_vectors, dx_line_vectors, dy_line_vectors, y_line_vectors,
            n_matrices, dx_matrix_vectors, dy_matrix_vectors, y_matrix_vectors,
            n_blocks, dx_block_vectors, dy_block_vectors, y_block_vectors, words_ptr, launch,
            VECTOR, RAGGED, PADDED, TILE_ROWS, TILE_COLS, PIECES, ONE_TILE, BY_PLACE, PARTS, WORDS, LANES, POLL, POLLS, WALK,
            AXIS, DEPTH, FLAT, TURNED, True, LOG, NEGATE, STAGES, EXACT, COMPUTE,
        )  # fmt: skip


@triton.jit
def walk(
    out_ptr, a_ptr, b_ptr, n_lines, n_line_vectors, out_line_vectors, a_line_vectors, b_line_vectors,
    n_matrices, out_matrix_vectors, a_matrix_vectors, b_matrix_vectors,
    n_blocks, out_block_vectors, a_block_vectors, b_block_vectors, words_ptr, launch,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr, ONE_TILE: tl.constexpr, BY_PLACE: tl.constexpr, PARTS: tl.constexpr, WORDS: tl.constexpr,
    LANES: tl.constexpr, POLL: tl.constexpr, POLLS: tl.constexpr, WALK: tl.constexpr, AXIS: tl.constexpr, DEPTH: tl.constexpr,
    FLAT: tl.constexpr, TURNED: tl.constexpr, BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr,
    STAGES: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """The body of both: loads tiles of a and b, reduces them, exchanges the rows' numbers, and stores what it maps to."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    ROUND: tl.constexpr = out_ptr.dtype.element_ty
    LIES: tl.constexpr = 1 - AXIS if TURNED else AXIS
    length = n_line_vectors * UNIT
    lines = n_lines * UNIT if TURNED else n_lines
    per_matrix = lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else lines
    n_rows = per_matrix * n_matrices * n_blocks if FLAT and DEPTH > 1 else per_matrix
    out_stride, a_stride, b_stride = out_line_vectors * UNIT, a_line_vectors * UNIT, b_line_vectors * UNIT
    out_matrix, a_matrix, b_matrix = out_matrix_vectors * UNIT, a_matrix_vectors * UNIT, b_matrix_vectors * UNIT
    out_block, a_block, b_block = out_block_vectors * UNIT, a_block_vectors * UNIT, b_block_vectors * UNIT
    group, groups = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    part = tl.program_id(0) % PARTS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    tiles = (row_tiles if FLAT else n_blocks * n_matrices * row_tiles) if WALK else group + 1
    for tile in tl.range(group, tiles, groups if WALK else 1, num_stages=STAGES):
        matrix, line, rows = rows_of(tile, row_tiles, per_matrix, TILE_ROWS, DEPTH, FLAT)
        first_col = first_of_part(part, n_cols, TILE_COLS) if PARTS > 1 else 0
        cols = first_col + tl.arange(0, TILE_COLS // PIECES)
        a = starts_of(a_ptr, matrix, line, n_matrices, a_stride, a_matrix, a_block, VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT)
        b = starts_of(b_ptr, matrix, line, n_matrices, b_stride, b_matrix, b_block, VECTOR, RAGGED, AXIS, LIES, DEPTH, FLAT)
        lead = lead_of(line, a_stride, VECTOR, RAGGED)
        edge_a, edge_b = load_edges(a, b, rows, lead, part, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE)
        if ONE_TILE:
            tile_a, tile_b = load_tile(
                a, b, rows, cols, lead, n_rows, n_cols, a_stride, b_stride,
                PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE,
            )  # fmt: skip
            tile_b, base, first, second = reduce(
                tile_a, tile_b, edge_a, edge_b, part, n_cols, PIECES, PARTS, RAGGED, AXIS, BACKWARD, LOG, EXACT
            )
        else:
            past_col = tl.minimum(first_col + TILE_COLS, n_cols) if PARTS > 1 else n_cols
            first, second = reduce_long(
                a, b, edge_a, edge_b, rows, lead, first_col, past_col, n_rows, n_cols, a_stride, b_stride,
                TILE_COLS // PIECES, BY_PLACE, VECTOR, RAGGED, PADDED, AXIS, LIES,
                BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
            )  # fmt: skip
        if PARTS > 1:
            words = words_ptr + tl.cast(tile, tl.int64) * WORDS
            firsts, seconds, top = swap(words, part, first, second, launch, PARTS, LANES, POLL, POLLS, BACKWARD)
            first, second = combine(firsts, seconds, top, TILE_ROWS, TILE_COLS, BACKWARD, EXACT)
        if top == MISSING if PARTS > 1 else False:  # a constant where no row is shared, and the branch is not compiled
            again = tile + (top - MISSING)  # the compiler does not know that it is `tile`, and holds nothing for it
            do_alone(
                out_ptr, a_ptr, b_ptr, words, launch, firsts, seconds, again, part,
                row_tiles, per_matrix, n_rows, n_cols, n_matrices,
                out_stride, a_stride, b_stride, out_matrix, a_matrix, b_matrix, out_block, a_block, b_block,
                TILE_ROWS, TILE_COLS, PIECES, ONE_TILE, PARTS, LANES, POLL, VECTOR, RAGGED, PADDED, AXIS, LIES, DEPTH, FLAT,
                BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
            )  # fmt: skip
        else:
            out = starts_of(
                out_ptr, matrix, line, n_matrices, out_stride, out_matrix, out_block,
                VECTOR, RAGGED, AXIS, LIES, DEPTH, FLAT,
            )  # fmt: skip
            if ONE_TILE:
                store_tile(
                    out, tile_a, tile_b, base, first, second, rows, cols, lead, n_rows, n_cols, out_stride,
                    PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, LOG, NEGATE, EXACT,
                )  # fmt: skip
            else:
                store_again(
                    out, a, b, first, first, second, rows, lead, first_col, past_col, n_rows, n_cols,
                    out_stride, a_stride, b_stride, TILE_COLS // PIECES, True,
                    VECTOR, RAGGED, PADDED, AXIS, LIES, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
                )  # fmt: skip
            store_edges(
                out, edge_a, edge_b, first, second, rows, lead, part, n_rows, n_cols,
                VECTOR, RAGGED, BACKWARD, LOG, NEGATE, EXACT,
            )  # fmt: skip
