"""Two kernels for rows that are sharded over devices: one reduces a shard to two numbers per row, one computes the results.

In between, the devices exchange the numbers. Both kernels read a shard tile by tile, so any shape of a tile is right for any
row. Numbers are [groups, 2, rows] in the type of the arithmetic: (first, second) of each group as in formulas.py. A gradient
has no second number: [groups, 1, rows].
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import in_elements, lead_of, rows_of, shape_of, starts_of
from portable_softmax.kernels.exponents import add
from portable_softmax.kernels.held import load_edges, store_edges
from portable_softmax.kernels.streamed import reduce_streamed, store_streamed

GROUPS = tl.constexpr(8)  # groups whose numbers are loaded at once


@triton.jit
def reduce_kernel(
    a_ptr, b_ptr, numbers_ptr, n_lines, length, a_line, b_line, n_matrices, a_matrix, b_matrix, n_blocks, a_block, b_block,
    FORM: tl.constexpr,
):  # fmt: skip
    """Computes one group of numbers: (max(x), sum(exp(x - max(x)))) of each row of a shard.

    For a gradient they are sum(dy * y), or sum(dy) with FORM.log.
    """
    n_rows, n_cols, per_matrix = shape_of(n_lines, length, n_matrices, n_blocks, FORM)
    all_rows = per_matrix * n_matrices * n_blocks
    b_line, a_line = in_elements(b_line, a_line, FORM)
    b_matrix, a_matrix = in_elements(b_matrix, a_matrix, FORM)
    b_block, a_block = in_elements(b_block, a_block, FORM)
    row_tiles = (n_rows + FORM.tile_rows - 1) // FORM.tile_rows
    tiles = row_tiles if FORM.flat else n_blocks * n_matrices * row_tiles
    end, step = tiles if FORM.walks else tl.program_id(0) + 1, tl.num_programs(0) if FORM.walks else 1
    for tile in tl.range(tl.program_id(0), end, step, num_stages=FORM.stages):
        matrix, line, rows = rows_of(tile, row_tiles, per_matrix, FORM)
        a = starts_of(a_ptr, matrix, line, n_matrices, a_line, a_matrix, a_block, FORM.axis, FORM)
        b = starts_of(b_ptr, matrix, line, n_matrices, b_line, b_matrix, b_block, FORM.axis, FORM)
        lead = lead_of(matrix, line, n_matrices, a_line, a_matrix, a_block, FORM)
        edge_a, edge_b = load_edges(a, b, rows, lead, 0, n_rows, n_cols, b_line, None, FORM)
        first, second = reduce_streamed(a, b, edge_a, edge_b, rows, lead, 0, n_cols, n_rows, n_cols, a_line, b_line, None, FORM)
        place = numbers_ptr + (rows if FORM.flat else matrix * per_matrix + rows)
        tl.store(place, first, mask=rows < n_rows)
        if not FORM.backward:
            tl.store(place + all_rows, second, mask=rows < n_rows)


@triton.jit
def map_kernel(
    out_ptr, a_ptr, b_ptr, numbers_ptr, n_lines, length, out_line, a_line, n_matrices, out_matrix, a_matrix,
    n_blocks, out_block, a_block, n_groups, FORM: tl.constexpr,
):  # fmt: skip
    """Computes the results of a shard's elements, as softmax_kernel or softmax_backward_kernel do, from all groups' numbers."""
    n_rows, n_cols, per_matrix = shape_of(n_lines, length, n_matrices, n_blocks, FORM)
    all_rows = per_matrix * n_matrices * n_blocks
    out_line, a_line = in_elements(out_line, a_line, FORM)
    out_matrix, a_matrix = in_elements(out_matrix, a_matrix, FORM)
    out_block, a_block = in_elements(out_block, a_block, FORM)
    row_tiles = (n_rows + FORM.tile_rows - 1) // FORM.tile_rows
    tiles = row_tiles if FORM.flat else n_blocks * n_matrices * row_tiles
    end, step = tiles if FORM.walks else tl.program_id(0) + 1, tl.num_programs(0) if FORM.walks else 1
    for behind in tl.range(tl.program_id(0), end, step, num_stages=FORM.stages):
        tile = tiles - 1 - behind  # the tiles that reduce_kernel read last are still in a cache
        matrix, line, rows = rows_of(tile, row_tiles, per_matrix, FORM)
        out = starts_of(out_ptr, matrix, line, n_matrices, out_line, out_matrix, out_block, FORM.axis, FORM)
        a = starts_of(a_ptr, matrix, line, n_matrices, a_line, a_matrix, a_block, FORM.axis, FORM)
        b = starts_of(b_ptr, matrix, line, n_matrices, out_line, out_matrix, out_block, FORM.axis, FORM)
        lead = lead_of(matrix, line, n_matrices, a_line, a_matrix, a_block, FORM)
        place = numbers_ptr + (rows if FORM.flat else matrix * per_matrix + rows)
        first, second = whole(place, rows < n_rows, n_groups, all_rows, FORM)
        edge_a, edge_b = load_edges(a, b, rows, lead, 0, n_rows, n_cols, out_line, None, FORM)
        store_streamed(
            out, a, b, first, first, second, rows, lead, 0, n_cols, n_rows, n_cols, out_line, a_line, out_line, None, FORM
        )
        store_edges(out, edge_a, edge_b, first, second, rows, lead, 0, n_rows, n_cols, None, FORM)


@triton.jit
def whole(place, known, n_groups, n_rows, FORM: tl.constexpr):
    """Returns (first, second) of whole rows from the numbers of all groups.

    `place` points to the first numbers of the first group.
    """
    NUMBERS: tl.constexpr = 1 if FORM.backward else 2
    first = tl.full((known.shape[0],), 0.0 if FORM.backward else -float("inf"), FORM.compute)
    second = tl.zeros((known.shape[0],), FORM.compute)
    for start in tl.range(0, n_groups, GROUPS):
        groups = tl.expand_dims(start + tl.arange(0, GROUPS), 1)
        ptrs = tl.expand_dims(place, 0) + groups * (NUMBERS * n_rows)
        mask = (groups < n_groups) & tl.expand_dims(known, 0)
        if FORM.backward:
            first += tl.sum(tl.load(ptrs, mask=mask, other=0.0), axis=0)
        else:
            firsts = tl.load(ptrs, mask=mask, other=-float("inf"))
            seconds = tl.load(ptrs + n_rows, mask=mask, other=0.0)
            first, second = add(first, second, firsts, seconds, None, 0, FORM)
    return first, second
