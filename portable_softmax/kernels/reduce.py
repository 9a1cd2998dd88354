"""Row statistics: maximum, sum of exp(score - maximum), and for entropies the moment, the sum of these times score - maximum.

Tiles in registers have one reduction for all blocks. Elsewhere columns share statistics, merged block by block: with GROUP 8
adjacent columns, else those of a thread. A group's maximum, its sum in a fixed order and its noise depend on its scores, a seed
and a position alone: not on blocks, splits, threads or other rows. The maximum over groups of log(sum of exp(score)) plus
Gumbel noise is that of a group with the group's probability: one random number for 8 columns.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    LN2, NEG_INF, append_block, bounded, columns_from, exp, finite, fma, get_block, opaque, product,
)  # fmt: skip
from portable_softmax.kernels.noise import gumbel, log2
from portable_softmax.kernels.scores import load_scores, load_words, shift

NO_GROUP = tl.constexpr(0x7FFFFFFF)


# ---------------------------------------------------------------- tiles in registers
@triton.jit
def load_tile(x, mask, x_col, m_col, misalignment, row_end, exists, scale, temperature, first, C: tl.constexpr):
    """Returns (the scores of a program's columns, their maximum), by one reduction for all blocks."""
    scores = None
    highest = None
    for k in tl.static_range(C.BLOCKS):
        start = first + k * C.BLOCK
        s = load_scores(
            x, mask, start, columns_from(start, C.BLOCK, C), x_col, m_col, misalignment, row_end, exists, scale, temperature,
            C.EDGES >> 2 * k & 3, C,
        )  # fmt: skip
        scores = append_block(scores, s.to(x.dtype.element_ty) if C.AS_LOADED != "" else s, C)
        highest = s if k == 0 else tl.maximum(highest, s)
    return scores, tl.max(highest, C.AXIS, keep_dims=True)


@triton.jit
def sum_of_exp(scores, base, temperature, C: tl.constexpr):
    """Returns the sum of exp(score - base) of a tile."""
    sums = None
    for k in tl.static_range(C.BLOCKS):
        s = opaque(get_block(scores, k, C), 2, C).to(tl.float32)
        e = exp(shift(s, base, temperature, C), C)
        sums = opaque(e if k == 0 else sums + e, 1, C)
    return tl.sum(sums, C.AXIS, keep_dims=True)


@triton.jit
def reduce_tile(x, mask, m_col, misalignment, row_end, exists, scale, temperature, first, C: tl.constexpr, seed=0, position=0):
    """Returns what reduce_row does, of a tile, of which all blocks are loaded first."""
    scores, _peak = load_tile(x, mask, 1, m_col, misalignment, row_end, exists, scale, temperature, first, C)
    peaks, sums, moments, best, at = no_statistics(C.BLOCK, C)
    for k in tl.static_range(C.BLOCKS):
        s, start = get_block(scores, k, C), first + k * C.BLOCK
        peaks, sums, moments, best, at = add_block(
            s, start, peaks, sums, moments, best, at, temperature, C, seed, position, FIRST=k == 0
        )
    return merge_row(peaks, sums, moments, best, at, temperature, C)


# ---------------------------------------------------------------- a block at a time
@triton.jit
def reduce_row(
    x, mask, x_col, m_col, misalignment, row_end, exists, scale, temperature, first, C: tl.constexpr,
    seed=0, position=0, least=None,
):  # fmt: skip
    """Returns (maximum, sum, moment, largest noisy score, its group) of columns from `first` on that have `least` or more."""
    peaks, sums, moments, best, at = no_statistics(C.STREAM, C)
    begin = first
    end = first + tl.maximum(tl.min(row_end) - first, 0) // C.STREAM * C.STREAM
    words = None
    for EDGE in tl.static_range(C.EDGE, C.EDGE + 2):  # blocks within all rows, then others
        if C.MASK == "bits" and (C.AXIS == 1 and not C.UNALIGNED):
            columns = columns_from(begin, C.STREAM, C)
            words = load_words(mask, begin, columns, m_col, misalignment, row_end, exists, EDGE, C)
        for start in tl.range(begin, end, C.STREAM):
            s = load_scores(
                x, mask, start, columns_from(start, C.STREAM, C), x_col, m_col, misalignment, row_end, exists, scale,
                temperature, EDGE, C, words,
            )  # fmt: skip
            if words is not None:  # of the next block, as its elements are loaded after them
                after = start + C.STREAM
                words = load_words(mask, after, columns_from(after, C.STREAM, C), m_col, misalignment, row_end, exists, EDGE, C)
            if least is not None:
                s = tl.where(s < least, NEG_INF, s)
            peaks, sums, moments, best, at = add_block(
                s, start, peaks, sums, moments, best, at, temperature, C, seed, position, 0 if least is None else 2
            )
        begin = end
        end = tl.max(row_end)
    return merge_row(peaks, sums, moments, best, at, temperature, C)


@triton.jit
def filled(value, PARTS: tl.constexpr, C: tl.constexpr):
    """Returns one number for all parts of a tile's rows."""
    return tl.full((C.ROWS, PARTS) if C.AXIS == 1 else (PARTS, C.ROWS), value, tl.float32)


@triton.jit
def fold(block, C: tl.constexpr):
    """Returns a block with one more axis, C.FOLD, along which columns share statistics."""
    if C.GROUP > 0:
        block = tl.reshape(block, (C.ROWS, block.shape[1] // C.GROUP, C.GROUP))
    elif C.AXIS == 1:
        block = tl.reshape(block, (C.ROWS, block.shape[1] // C.LANES, C.LANES))
    else:
        block = tl.reshape(block, (block.shape[0] // C.LANES, C.LANES, C.ROWS))
    return block


@triton.jit
def no_statistics(WIDTH: tl.constexpr, C: tl.constexpr):
    """Returns the statistics of no column, for every part of a block."""
    PARTS: tl.constexpr = WIDTH // C.GROUP if C.GROUP > 0 else C.LANES
    nothing, zeros = filled(NEG_INF, PARTS, C), filled(0.0, PARTS, C)
    return nothing, zeros, zeros, nothing, tl.full(zeros.shape, NO_GROUP, tl.int32)


@triton.jit
def add_block(
    s, start, peaks, sums, moments, best, at, temperature, C: tl.constexpr, seed=0, position=0, PURPOSE: tl.constexpr = 0,
    FIRST: tl.constexpr = False,
):  # fmt: skip
    """Returns statistics of parts, merged with those of a block of scores; the FIRST block has none."""
    s = fold(s, C)
    top = tl.max(s, C.FOLD)
    folded_temperature = tl.expand_dims(temperature, C.FOLD) if C.TEMPERATURE != "" else temperature
    base = finite(top) if C.GROUP > 0 else finite(tl.maximum(peaks, top))
    shifted = shift(s, tl.expand_dims(base, C.FOLD), folded_temperature, C)
    e = exp(shifted, C)
    part = sum_of_part(e, C)
    moment = sum_of_part(product(e, bounded(shifted), C), C) if C.ENTROPY else part  # no fma: its order would be that of lanes
    if C.SAMPLE:
        group = start // C.GROUP + tl.expand_dims(tl.arange(0, s.shape[1]), 0)
        noisy = fma(log2(part, C), LN2, finite(top), C) + gumbel(group, seed, position, PURPOSE, C)
        if C.TEMPERATURE != "":
            noisy = tl.where(temperature == 0, top, noisy)
        better = noisy > best  # not of nan
        best, at = tl.where(better, noisy, best), tl.where(better, group, at)
    if C.GROUP == 0:
        drop = shift(peaks, base, temperature, C)
        shrink = exp(drop, C)
        if C.ENTROPY:
            moments = shrink * (moments + sums * bounded(drop)) + moment
        peaks, sums = tl.maximum(peaks, top), sums * shrink + part
    elif FIRST:
        peaks, sums, moments = top, part, moment
    else:
        higher, lower = tl.maximum(peaks, top), tl.minimum(peaks, top)
        drop, rises = shift(lower, finite(higher), temperature, C), top > peaks
        shrink, smaller, larger = exp(drop, C), tl.where(rises, sums, part), tl.where(rises, part, sums)
        if C.ENTROPY:
            lesser = fma(smaller, bounded(drop), tl.where(rises, moments, moment), C)
            moments = fma(lesser, shrink, tl.where(rises, moment, moments), C)
        peaks, sums = higher, fma(smaller, shrink, larger, C)
    return peaks, sums, moments, best, at


@triton.jit
def sum_of_part(e, C: tl.constexpr):
    """Returns sums of parts: of groups two numbers at a time, as a sum of more would have the order of a layout."""
    if C.GROUP > 0:
        for _ in tl.static_range(3):
            if e.shape[2] > 1:
                e = tl.sum(tl.reshape(e, (C.ROWS, e.shape[1], e.shape[2] // 2, 2)), 3)
        e = tl.reshape(e, (C.ROWS, e.shape[1]))
    else:
        e = tl.sum(e, C.FOLD)
    return e


@triton.jit
def merge_row(peaks, sums, moments, best, at, temperature, C: tl.constexpr):
    """Returns the statistics of rows from those of their parts."""
    peak = tl.max(peaks, C.AXIS, keep_dims=True)
    total, moment = merge(peaks, peak, sums, moments, temperature, C.AXIS, C)
    group = tl.full(peak.shape, NO_GROUP, tl.int32)
    top = peak
    if C.SAMPLE:
        top = tl.max(best, 1, keep_dims=True)
        group = tl.min(tl.where(best == top, at, NO_GROUP), 1, keep_dims=True)
    return peak, total, moment, top, group


@triton.jit
def merge(peaks, peak, sums, moments, temperature, AXIS: tl.constexpr, C: tl.constexpr):
    """Returns (sum, moment) of rows from those of their parts, which have maxima; `peak` is that of the row."""
    drop = shift(peaks, finite(peak), temperature, C)
    shrink = exp(drop, C)
    total = tl.sum(sums * shrink, AXIS, keep_dims=True)
    return total, tl.sum(shrink * (moments + sums * bounded(drop)), AXIS, keep_dims=True) if C.ENTROPY else total
