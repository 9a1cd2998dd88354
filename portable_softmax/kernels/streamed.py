"""Rows, and splits of rows, that a program reads twice, one block at a time: for their statistics, then for their results."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import mask_of, past_of_split, pointers
from portable_softmax.kernels.exponents import add, add_falls, base_of, total_of, weighted_falls
from portable_softmax.kernels.formulas import add_shares, finish, load, of_rows, scale_from, shares, store, weights
from portable_softmax.kernels.masks import before_diagonal


@triton.jit
def load_block(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns (a, b, columns, mask) of the block of rows that begins at column `col`."""
    within = tl.expand_dims(tl.arange(0, FORM.width), 1 - FORM.axis)
    cols = col + within
    if FORM.axis == 0:  # columns are 64 bits wide, those within a block are not
        left = tl.minimum(n_cols - col, FORM.width).to(tl.int32)
        mask = mask_of(rows, within, lead, n_rows, left, True, FORM.padded, FORM)
    else:
        mask = mask_of(rows, cols, lead, n_rows, n_cols, True, FORM.padded, FORM)
    seen, read = before_diagonal(mask, rows, cols, lead, n_rows, n_cols, FORM)
    block_a, block_b = load(a, b, cols, read, seen, a_stride, b_stride, factor, FORM)
    return block_a, block_b, cols, mask


@triton.jit
def filled(n_cols: tl.constexpr, n_rows: tl.constexpr, value, FORM: tl.constexpr):
    """Returns columns of rows that hold the same number everywhere."""
    if FORM.axis == 1:
        columns = tl.full((n_rows, n_cols), value, tl.float32)
    else:
        columns = tl.full((n_cols, n_rows), value, tl.float32)
    return columns


@triton.jit
def by_accumulator(block, FORM: tl.constexpr):
    """Returns a block with one more axis, FORM.axis, along which columns share an accumulator: a thread has all of them.

    With a single place there is no more axis: vector cores are slow to reshape.
    """
    EACH: tl.constexpr = FORM.width // FORM.accumulators
    if FORM.accumulators == 1:
        columns = block
    elif FORM.axis == 1:
        columns = tl.reshape(block, (block.shape[0], EACH, FORM.accumulators))
    else:
        columns = tl.reshape(block, (EACH, FORM.accumulators, block.shape[1]))
    return columns


@triton.jit
def add_by_accumulator(sums, a, b, FORM: tl.constexpr):
    """Adds the shares of a block to the sums of its accumulators, and returns the new sums."""
    if FORM.accumulators == FORM.width and FORM.width > 1:
        sums = add_shares(sums, a, b, FORM)
    else:
        sums += tl.sum(by_accumulator(shares(a, b, FORM), FORM), axis=FORM.axis)
    return sums


@triton.jit
def reduce_streamed(
    a, b, edge_a, edge_b, rows, lead, first_col, n_rows, n_cols, a_stride, b_stride, factor, FORM: tl.constexpr
):
    """Returns (first, second, falls) of rows, or of a split of rows, read one block at a time; falls as held.reduce does.

    Each of FORM.accumulators keeps statistics of its own, if there are several, and one reduction over them comes at the end.
    """
    first = tl.full((rows.shape[0],), -float("inf"), tl.float32)
    second = tl.zeros((rows.shape[0],), tl.float32)
    factors = factor
    if FORM.accumulators > 1:
        first = filled(FORM.accumulators, rows.shape[0], -float("inf"), FORM)
        second = filled(FORM.accumulators, rows.shape[0], 0.0, FORM)
        factors = tl.expand_dims(factor, FORM.axis) if FORM.divides else factor
    falls = second
    for col in tl.range(first_col, past_of_split(first_col, n_cols, FORM), FORM.width):
        block_a, block_b, _, _ = load_block(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM)
        if FORM.backward:
            second = add_by_accumulator(second, block_a, block_b, FORM)
        else:
            peak, total = add(first, second, by_accumulator(block_a, FORM), 1.0, factors, FORM.axis, FORM)
            if FORM.entropy:
                falls = add_falls(falls, second, first, peak, by_accumulator(block_a, FORM), factors, FORM.axis, FORM)
            first, second = peak, total
    if FORM.backward:
        first = tl.sum(second, axis=FORM.axis) if FORM.accumulators > 1 else second
        second = tl.zeros_like(first)
    elif FORM.accumulators > 1:
        peak = tl.max(first, axis=FORM.axis)
        if FORM.entropy:
            base = tl.expand_dims(base_of(peak), FORM.axis)
            falls = tl.sum(weighted_falls(base, first, second, falls, factors, None, FORM), axis=FORM.axis)
        first, second = peak, total_of(base_of(peak), first, second, factor, FORM.axis, FORM)
    if FORM.unaligned:
        if FORM.backward:
            first += of_rows(tl.sum(shares(edge_a, edge_b, FORM), axis=1))
        else:
            peak, total = add(first, second, edge_a, 1.0, factor, 1, FORM)
            if FORM.entropy:
                falls = add_falls(falls, second, first, peak, edge_a, factor, 1, FORM)
            first, second = peak, total
    return first, second, falls


@triton.jit
def store_streamed(
    out, a, b, base, first, second, rows, lead, first_col, n_rows, n_cols, out_stride, a_stride, b_stride, factor,
    FORM: tl.constexpr,
):  # fmt: skip
    """Loads rows again, one block at a time, and stores their results, the same bits as `store_tile`.

    Only a neighbour's program reads a split with FORM.held again. Its base is that of the split, not of the row.
    """
    scale, rest = scale_from(base, first, second, factor, not FORM.held, FORM)
    past_col = past_of_split(first_col, n_cols, FORM)
    last = first_col + (past_col - 1 - first_col) // FORM.width * FORM.width
    for forward in tl.range(first_col, past_col, FORM.width):
        col = forward if FORM.held else first_col + last - forward  # backwards: the columns read last are still in a cache
        block_a, block_b, cols, mask = load_block(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM)
        block_b = weights(block_a, block_b, base, factor, FORM.axis, FORM)
        result = finish(block_a, block_b, first, second, scale, rest, factor, FORM.axis, FORM)
        store(pointers(out, cols, out_stride, FORM.axis), result, mask)
