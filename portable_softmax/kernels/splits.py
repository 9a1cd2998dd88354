"""The two statistics of a split of a row, and of the row from all its splits: the same bits whichever program computes them.

exchange.py says why.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import past_of_split
from portable_softmax.kernels.exponents import base_of, exp, fma, steep, weighted_falls
from portable_softmax.kernels.formulas import add_shares, falls_of, of_rows, shares, weights
from portable_softmax.kernels.streamed import filled, load_block


@triton.jit
def nothing(n_cols, FORM: tl.constexpr):
    """Returns -0.0, the neutral element of addition, in a form that the compiler cannot fold.

    A literal would be folded. The product would then be fused with the next addition, and the sum would differ in its last bit
    from the one that `reduce_split` finds.
    """
    return tl.where(n_cols < 0, 1.0, -0.0).to(tl.float32)


@triton.jit
def first_shares(a, b, n_cols, FORM: tl.constexpr):
    """Returns the shares of a tile's first block. If it is the only block, they are added to -0.0, as `reduce_split` does."""
    if FORM.lone_products:
        terms = fma(a, b, nothing(n_cols, FORM))
    else:
        terms = shares(a, b, FORM)
    return terms


@triton.jit
def reduce_split(a, b, edge_a, edge_b, rows, lead, first_col, n_rows, n_cols, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns (first, second, falls) of a split of rows, the same bits as held.reduce.

    It reads the split one block at a time, and so needs few registers.
    """
    past_col = past_of_split(first_col, n_cols, FORM)
    peak = tl.zeros((rows.shape[0],), tl.float32)
    if not FORM.backward:
        most = filled(FORM.width, rows.shape[0], -float("inf"), FORM)
        for col in tl.range(first_col, past_col, FORM.width):
            x, _, _, _ = load_block(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM)
            most = tl.maximum(most, x)
        peak = tl.max(most, axis=FORM.axis)
        if FORM.unaligned:
            peak = tl.maximum(peak, of_rows(tl.max(edge_a, axis=1)))
    base = base_of(peak)
    sums = filled(FORM.width, rows.shape[0], nothing(n_cols, FORM), FORM)
    falls = sums
    for col in tl.range(first_col, past_col, FORM.width):
        block_a, block_b, _, _ = load_block(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM)
        block_b = weights(block_a, block_b, base, factor, FORM.axis, FORM)
        sums = add_shares(sums, block_a, block_b, FORM)
        if FORM.entropy:
            falls = fma(block_b, falls_of(block_a, base, factor, FORM.axis, FORM), falls)
    total = tl.sum(sums, axis=FORM.axis)
    falls = tl.sum(falls, axis=FORM.axis) if FORM.entropy else total
    if FORM.unaligned:
        edges = shares(edge_a, weights(edge_a, edge_b, base, factor, None, FORM), FORM)
        total += of_rows(tl.sum(edges, axis=1))
        if FORM.entropy:
            falls += of_rows(tl.sum(edges * falls_of(edge_a, base, factor, None, FORM), axis=1))
    if FORM.backward:
        first, second = total, peak
    else:
        first, second = peak, total
    return first, second, falls


@triton.jit
def splits_of(FORM: tl.constexpr):
    """Returns the split that each number of all splits belongs to: [splits] for a single row, else [splits, 1]."""
    splits = tl.arange(0, FORM.splits_read)
    return splits if FORM.one_row else tl.expand_dims(splits, 1)


@triton.jit
def across_splits(statistics, FORM: tl.constexpr):
    """Returns one number per row in a shape that broadcasts against the statistics of all splits."""
    return statistics if FORM.one_row else tl.expand_dims(statistics, 0)


@triton.jit
def by_row(statistics, FORM: tl.constexpr):
    """Returns the results of a reduction over splits as [rows]."""
    return tl.full((1,), statistics, tl.float32) if FORM.one_row else statistics


if hasattr(tl, "gather"):

    @triton.jit
    def settled(statistics):
        """Returns its argument in a fresh layout.

        Without this the compiler may convert the whole tile to the layout of these few statistics.
        """
        return statistics if statistics.shape[0] == 1 else tl.gather(statistics, tl.arange(0, statistics.shape[0]), 0)

else:  # Triton 3.2 has no tl.gather

    @triton.jit
    def settled(statistics):
        """Returns its argument."""
        return statistics


@triton.jit
def orderable(number):
    """Returns the bits of float32 numbers as integers of the same order; nan is above all."""
    bits = number.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def highest_of(firsts, top, FORM: tl.constexpr):
    """Returns the highest first number of each row."""
    highest = top if FORM.one_row else tl.max(orderable(firsts), axis=0)
    return (highest ^ ((highest >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def sum_over_splits(statistics, most, FORM: tl.constexpr):
    """Returns the sums of the statistics of all splits. For several rows they have the same bits in any order of addition.

    The compiler chooses the order with the tensor's layout. No number may be above `most`, [rows]. All statistics are rounded
    to multiples of 2**-40 of it, and float64 adds these without rounding. After "Fast Reproducible Floating-Point Summation"
    (Demmel, Nguyen, ARITH 2013).
    """
    if FORM.one_row:
        sums = tl.sum(statistics, axis=0)
    else:
        coarse = across_splits(tl.where(most < float("inf"), most, 0.0).to(tl.float64) * 4096, FORM)
        sums = tl.sum(statistics.to(tl.float64) + coarse - coarse, axis=0).to(tl.float32)
    return sums


@triton.jit
def combine(firsts, seconds, top, factor, FORM: tl.constexpr):
    """Returns (first, second) of rows, [rows] each, from the statistics of all their splits and their `top_of`."""
    if FORM.backward:
        first = sum_over_splits(firsts, tl.max(tl.abs(firsts), axis=0), FORM)
        second = tl.zeros_like(first)
    else:
        first = highest_of(firsts, top, FORM)
        fall = firsts - across_splits(base_of(first), FORM)
        down = exp(steep(fall, factor, None if FORM.one_row else 0, FORM), FORM.exact)
        second = sum_over_splits(seconds * down, tl.full((FORM.tile_rows,), FORM.tile_cols, tl.float32), FORM)
    return settled(by_row(first, FORM)), settled(by_row(second, FORM))


@triton.jit
def combine_falls(firsts, seconds, falls, first, factor, FORM: tl.constexpr):
    """Returns the sum of exp(a - first) * (a - first) of whole rows, [rows], from the statistics of all their splits."""
    falls = tl.where(seconds > 0, falls, 0.0)
    base = across_splits(base_of(first), FORM)
    falls = weighted_falls(base, firsts, seconds, falls, factor, None if FORM.one_row else 0, FORM)
    falls = sum_over_splits(falls, tl.full((FORM.tile_rows,), FORM.tile_cols, tl.float32), FORM)  # each term is below 1
    return settled(by_row(falls, FORM))
