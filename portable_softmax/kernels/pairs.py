"""Gradients of rows of odd length, read two at a time.

A pair of rows is always a whole number of 32-bit words, a single row is not.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import block_of, pointers, rows_of, starts_of
from portable_softmax.kernels.formulas import add_shares, along, gradient, load, store
from portable_softmax.kernels.held import get, joined


@triton.jit
def pairs_backward_kernel(dx_ptr, dy_ptr, y_ptr, n_rows, row_length, FORM: tl.constexpr):
    """Computes the results of softmax_backward_kernel for rows of odd length that follow each other directly, in pairs.

    Tiles have FORM.tile_rows pairs, and FORM.tile_cols columns of both rows together. With FORM.last_alone the number of rows
    is odd: the whole words of the last row are read like those of a pair, then its last element by itself.
    """
    n_cols, n_pairs = row_length * FORM.vector, (n_rows + 1) // 2
    tiles = (n_pairs + FORM.tile_rows - 1) // FORM.tile_rows
    end, step = tiles if FORM.walks else tl.program_id(0) + 1, tl.num_programs(0) if FORM.walks else 1
    for tile in tl.range(tl.program_id(0), end, step):
        _, line, pairs = rows_of(tile, tiles, n_pairs, FORM)
        dy = starts_of(dy_ptr, 0, line, 1, n_cols, 0, 0, 1, FORM)
        y = starts_of(y_ptr, 0, line, 1, n_cols, 0, 0, 1, FORM)
        dx = starts_of(dx_ptr, 0, line, 1, n_cols, 0, 0, 1, FORM)
        tile_dy = None
        tile_y = None
        first = tl.zeros((FORM.tile_rows, FORM.width), FORM.compute)
        second = first
        for k in tl.static_range(FORM.blocks):
            cols, mask, is_first = columns_of(pairs, n_pairs, row_length, k, FORM)
            block_dy, block_y = load(dy, y, cols, mask, mask, 0, 0, None, FORM)
            tile_dy, tile_y = joined(tile_dy, block_dy, k, FORM), joined(tile_y, block_y, k, FORM)
            first = tl.where(is_first, add_shares(first, block_dy, block_y, FORM), first)
            second = tl.where(is_first, second, add_shares(second, block_dy, block_y, FORM))
        first, second = tl.sum(first, axis=1), tl.sum(second, axis=1)
        if FORM.last_alone:
            if tile == tiles - 1:
                first = finish_last(dx_ptr, dy_ptr, y_ptr, n_rows, row_length, pairs == n_pairs - 1, first, FORM)
        for k in tl.static_range(FORM.blocks):
            cols, mask, is_first = columns_of(pairs, n_pairs, row_length, k, FORM)
            total = tl.where(is_first, along(first, 1), along(second, 1))
            result = gradient(get(tile_dy, k, FORM), get(tile_y, k, FORM), total, FORM)
            store(pointers(dx, cols, 0, 1), result, mask)


@triton.jit
def columns_of(pairs, n_pairs, row_length, BLOCK: tl.constexpr, FORM: tl.constexpr):
    """Returns (columns, mask, which columns are of the first row) of a block of pairs.

    If the last pair has one row only, the mask covers the whole words of this row.
    """
    cols, mask = block_of(pairs, 0, 0, n_pairs, row_length * FORM.vector, BLOCK, FORM)
    if FORM.last_alone:
        mask = mask & (tl.expand_dims(pairs < n_pairs - 1, 1) | (cols // FORM.vector < row_length // FORM.vector))
    return cols, mask, cols < row_length


@triton.jit
def finish_last(dx_ptr, dy_ptr, y_ptr, n_rows, row_length, is_last, first, FORM: tl.constexpr):
    """Adds the last element of the last row to the sum of this row, stores its gradient, and returns the sums of all rows."""
    at = n_rows * row_length - 1
    dy, y = tl.load(dy_ptr + at).to(first.dtype), tl.load(y_ptr + at).to(first.dtype)
    first = tl.where(is_last, add_shares(first, dy, y, FORM), first)
    total = tl.sum(tl.where(is_last, first, 0.0), axis=0)
    store(dx_ptr + at, gradient(dy, y, total, FORM), None)
    return first
