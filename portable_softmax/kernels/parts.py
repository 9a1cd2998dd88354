"""The two numbers of a part of a row, and of the row from all its parts: the same bits whichever program computes them.

exchange.py says why.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import past_of_part
from portable_softmax.kernels.exponents import base_of, exp, fma, steep
from portable_softmax.kernels.formulas import add_shares, of_rows, shares, weights
from portable_softmax.kernels.streamed import filled, load_piece


@triton.jit
def nothing(n_cols, FORM: tl.constexpr):
    """Returns -0.0, the neutral element of addition, in a form that the compiler cannot fold.

    A literal would be folded. The product would then be fused with the next addition, and the sum would differ in its last bit
    from the one that `reduce_part` finds.
    """
    return tl.where(n_cols < 0, 1.0, -0.0).to(FORM.compute)


@triton.jit
def first_shares(a, b, n_cols, FORM: tl.constexpr):
    """Returns the shares of a tile's first piece. If it is the only piece, they are added to -0.0, as `reduce_part` does."""
    if FORM.lone_products:
        terms = fma(a, b, nothing(n_cols, FORM))
    else:
        terms = shares(a, b, FORM)
    return terms


@triton.jit
def reduce_part(a, b, edge_a, edge_b, rows, lead, first_col, n_rows, n_cols, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns (first, second) of a part of rows, the same bits as held.reduce.

    It reads the part one piece at a time, and so needs few registers.
    """
    past_col = past_of_part(first_col, n_cols, FORM)
    peak = tl.zeros((rows.shape[0],), FORM.compute)
    if not FORM.backward:
        most = filled(FORM.width, rows.shape[0], -float("inf"), FORM)
        for col in tl.range(first_col, past_col, FORM.width):
            x, _, _, _ = load_piece(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM)
            most = tl.maximum(most, x)
        peak = tl.max(most, axis=FORM.axis)
        if FORM.unaligned:
            peak = tl.maximum(peak, of_rows(tl.max(edge_a, axis=1)))
    base = base_of(peak)
    sums = filled(FORM.width, rows.shape[0], nothing(n_cols, FORM), FORM)
    for col in tl.range(first_col, past_col, FORM.width):
        piece_a, piece_b, _, _ = load_piece(a, b, rows, col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM)
        sums = add_shares(sums, piece_a, weights(piece_a, piece_b, base, factor, FORM.axis, FORM), FORM)
    total = tl.sum(sums, axis=FORM.axis)
    if FORM.unaligned:
        edges = shares(edge_a, weights(edge_a, edge_b, base, factor, None, FORM), FORM)
        total += of_rows(tl.sum(edges, axis=1))
    if FORM.backward:
        first, second = total, peak
    else:
        first, second = peak, total
    return first, second


@triton.jit
def parts_of(FORM: tl.constexpr):
    """Returns the part that each number of all parts belongs to: [parts] for a single row, else [parts, 1]."""
    parts = tl.arange(0, FORM.parts_read)
    return parts if FORM.one_row else tl.expand_dims(parts, 1)


@triton.jit
def across_parts(numbers, FORM: tl.constexpr):
    """Returns one number per row in a shape that broadcasts against the numbers of all parts."""
    return numbers if FORM.one_row else tl.expand_dims(numbers, 0)


@triton.jit
def by_row(numbers, FORM: tl.constexpr):
    """Returns the results of a reduction over parts as [rows]."""
    return tl.full((1,), numbers, tl.float32) if FORM.one_row else numbers


if hasattr(tl, "gather"):

    @triton.jit
    def settled(numbers):
        """Returns its argument in a fresh layout.

        Without this the compiler may convert the whole tile to the layout of these few numbers.
        """
        return numbers if numbers.shape[0] == 1 else tl.gather(numbers, tl.arange(0, numbers.shape[0]), 0)

else:  # Triton 3.2 has no tl.gather

    @triton.jit
    def settled(numbers):
        """Returns its argument."""
        return numbers


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
def sum_over_parts(numbers, most, FORM: tl.constexpr):
    """Returns the sums of the numbers of all parts. For several rows they have the same bits in any order of addition.

    The compiler chooses the order with the tensor's layout. No number may be above `most`, [rows]. All numbers are rounded to
    multiples of 2**-40 of it, and float64 adds these without rounding. After "Fast Reproducible Floating-Point Summation"
    (Demmel, Nguyen, ARITH 2013).
    """
    if FORM.one_row:
        sums = tl.sum(numbers, axis=0)
    else:
        coarse = across_parts(tl.where(most < float("inf"), most, 0.0).to(tl.float64) * 4096, FORM)
        sums = tl.sum(numbers.to(tl.float64) + coarse - coarse, axis=0).to(tl.float32)
    return sums


@triton.jit
def combine(firsts, seconds, top, factor, FORM: tl.constexpr):
    """Returns (first, second) of rows, [rows] each, from the numbers of all their parts and their `top_of`."""
    if FORM.backward:
        first = sum_over_parts(firsts, tl.max(tl.abs(firsts), axis=0), FORM)
        second = tl.zeros_like(first)
    else:
        first = highest_of(firsts, top, FORM)
        fall = firsts - across_parts(base_of(first), FORM)
        down = exp(steep(fall, factor, None if FORM.one_row else 0, FORM), FORM.exact)
        second = sum_over_parts(seconds * down, tl.full((FORM.tile_rows,), FORM.tile_cols, tl.float32), FORM)
    return settled(by_row(first, FORM)), settled(by_row(second, FORM))
