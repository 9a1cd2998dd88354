"""Two kernels for rows that are sharded over devices: a shard's numbers of each row, and results by the numbers of whole rows.

In between, the devices exchange numbers. Both read a shard tile by tile, so any shape of a tile is right for any row.
Numbers are [groups, 2, rows], of the type that is computed in: each group's (first, second) as in directions.py;
[groups, 1, rows] for a gradient, which has no second.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import lead_of, rows_of, starts_of
from portable_softmax.kernels.exponents import add
from portable_softmax.kernels.tiles import load_edges, store_edges
from portable_softmax.kernels.twice import reduce_long, store_again

GROUPS = tl.constexpr(8)  # whose numbers are loaded at once


@triton.jit
def reduce_kernel(
    a_ptr, b_ptr, numbers_ptr, n_lines, n_line_vectors, a_line_vectors, b_line_vectors,
    n_matrices, a_matrix_vectors, b_matrix_vectors, n_blocks, a_block_vectors, b_block_vectors,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
    WALK: tl.constexpr, AXIS: tl.constexpr, DEPTH: tl.constexpr, FLAT: tl.constexpr, BACKWARD: tl.constexpr,
    LOG: tl.constexpr, NEGATE: tl.constexpr, STAGES: tl.constexpr, EXACT: tl.constexpr, ROUND: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """One group of numbers: (max(x), sum(exp(x - max(x)))) of each row of a shard, or sum(dy * y), sum(dy) with LOG."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    per_matrix = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    all_rows = per_matrix * n_matrices * n_blocks
    n_rows = all_rows if FLAT else per_matrix
    a_stride, b_stride = a_line_vectors * UNIT, b_line_vectors * UNIT
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    tiles = row_tiles if FLAT else n_blocks * n_matrices * row_tiles
    end = tiles if WALK else tl.program_id(0) + 1
    for tile in tl.range(tl.program_id(0), end, tl.num_programs(0) if WALK else 1, num_stages=STAGES):
        matrix, line, rows = rows_of(tile, row_tiles, per_matrix, TILE_ROWS, DEPTH, FLAT)
        a = starts_of(
            a_ptr, matrix, line, n_matrices, a_stride, a_matrix_vectors * UNIT, a_block_vectors * UNIT,
            VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT,
        )  # fmt: skip
        b = starts_of(
            b_ptr, matrix, line, n_matrices, b_stride, b_matrix_vectors * UNIT, b_block_vectors * UNIT,
            VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT,
        )  # fmt: skip
        lead = lead_of(line, a_stride, VECTOR, RAGGED)
        edge_a, edge_b = load_edges(a, b, rows, lead, 0, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE)
        first, second = reduce_long(
            a, b, edge_a, edge_b, rows, lead, 0, n_cols, n_rows, n_cols, a_stride, b_stride,
            TILE_COLS, False, VECTOR, RAGGED, PADDED, AXIS, AXIS, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
        )  # fmt: skip
        place = numbers_ptr + (rows if FLAT else matrix * per_matrix + rows)
        tl.store(place, first, mask=rows < n_rows)
        if not BACKWARD:
            tl.store(place + all_rows, second, mask=rows < n_rows)


@triton.jit
def map_kernel(
    out_ptr, a_ptr, b_ptr, numbers_ptr, n_lines, n_line_vectors, out_line_vectors, a_line_vectors, b_line_vectors,
    n_matrices, out_matrix_vectors, a_matrix_vectors, b_matrix_vectors,
    n_blocks, out_block_vectors, a_block_vectors, b_block_vectors, n_groups,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
    WALK: tl.constexpr, AXIS: tl.constexpr, DEPTH: tl.constexpr, FLAT: tl.constexpr, BACKWARD: tl.constexpr,
    LOG: tl.constexpr, NEGATE: tl.constexpr, STAGES: tl.constexpr, EXACT: tl.constexpr, ROUND: tl.constexpr,
    COMPUTE: tl.constexpr,
):  # fmt: skip
    """Results of a shard's elements, as softmax_kernel or softmax_backward_kernel has them, by all groups' numbers."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    per_matrix = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    all_rows = per_matrix * n_matrices * n_blocks
    n_rows = all_rows if FLAT else per_matrix
    out_stride, a_stride, b_stride = out_line_vectors * UNIT, a_line_vectors * UNIT, b_line_vectors * UNIT
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    tiles = row_tiles if FLAT else n_blocks * n_matrices * row_tiles
    end = tiles if WALK else tl.program_id(0) + 1
    for behind in tl.range(tl.program_id(0), end, tl.num_programs(0) if WALK else 1, num_stages=STAGES):
        tile = tiles - 1 - behind  # what reduce_kernel read last is still in a cache
        matrix, line, rows = rows_of(tile, row_tiles, per_matrix, TILE_ROWS, DEPTH, FLAT)
        out = starts_of(
            out_ptr, matrix, line, n_matrices, out_stride, out_matrix_vectors * UNIT, out_block_vectors * UNIT,
            VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT,
        )  # fmt: skip
        a = starts_of(
            a_ptr, matrix, line, n_matrices, a_stride, a_matrix_vectors * UNIT, a_block_vectors * UNIT,
            VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT,
        )  # fmt: skip
        b = starts_of(
            b_ptr, matrix, line, n_matrices, b_stride, b_matrix_vectors * UNIT, b_block_vectors * UNIT,
            VECTOR, RAGGED, AXIS, AXIS, DEPTH, FLAT,
        )  # fmt: skip
        lead = lead_of(line, a_stride, VECTOR, RAGGED)
        place = numbers_ptr + (rows if FLAT else matrix * per_matrix + rows)
        first, second = whole(place, rows < n_rows, n_groups, all_rows, BACKWARD, EXACT, COMPUTE)
        edge_a, edge_b = load_edges(a, b, rows, lead, 0, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE)
        store_again(
            out, a, b, first, first, second, rows, lead, 0, n_cols, n_rows, n_cols, out_stride, a_stride, b_stride,
            TILE_COLS, True, VECTOR, RAGGED, PADDED, AXIS, AXIS, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
        )  # fmt: skip
        store_edges(
            out, edge_a, edge_b, first, second, rows, lead, 0, n_rows, n_cols, VECTOR, RAGGED, BACKWARD, LOG, NEGATE, EXACT
        )


@triton.jit
def whole(place, known, n_groups, n_rows, BACKWARD: tl.constexpr, EXACT: tl.constexpr, COMPUTE: tl.constexpr):
    """(first, second) of whole rows, by the numbers of all groups; `place` points to the first group's first numbers."""
    NUMBERS: tl.constexpr = 1 if BACKWARD else 2
    first = tl.full((known.shape[0],), 0.0 if BACKWARD else -float("inf"), COMPUTE)
    second = tl.zeros((known.shape[0],), COMPUTE)
    for start in tl.range(0, n_groups, GROUPS):
        groups = tl.expand_dims(start + tl.arange(0, GROUPS), 1)
        ptrs = tl.expand_dims(place, 0) + groups * (NUMBERS * n_rows)
        mask = (groups < n_groups) & tl.expand_dims(known, 0)
        if BACKWARD:
            first += tl.sum(tl.load(ptrs, mask=mask, other=0.0), axis=0)
        else:
            firsts = tl.load(ptrs, mask=mask, other=-float("inf"))
            seconds = tl.load(ptrs + n_rows, mask=mask, other=0.0)
            first, second = add(first, second, firsts, seconds, 0, EXACT)
    return first, second
