"""Row statistics: maximum, sum of exp(score - maximum), and for entropies the moment, the sum of these times score - maximum.

Softmaxes in registers have one reduction for all blocks. Else columns share statistics, merged block by block: with GROUP 8
adjacent columns, else those of one place in accesses. A group's maximum, its sum in a fixed order and its noise depend on its
scores, a seed and a position alone: not on a tiling or other rows. The maximum over groups of log(sum of exp(score)) plus
Gumbel noise is that of a group with the group's probability: one random number for 8 columns.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.common import LN2, NEG_INF, bounded, exp, finite, fma, product
from portable_softmax.kernels.noise import log2
from portable_softmax.kernels.scores import shift

NO_GROUP = tl.constexpr(0x7FFFFFFF)


@triton.jit
def fold(block, C: tl.constexpr):
    """Returns a block with one more axis, C.FOLD, along which columns share statistics."""
    if C.GROUP > 0:
        block = tl.reshape(block, (C.ROWS, C.PARTS, C.GROUP))
    elif C.AXIS == 1:
        block = tl.reshape(block, (C.ROWS, block.shape[1] // C.PARTS, C.PARTS))
    else:
        block = tl.reshape(block, (block.shape[0] // C.PARTS, C.PARTS, C.ROWS))
    return block


@triton.jit
def no_statistics(C: tl.constexpr):
    """Returns (maximum, sum, moment, largest noisy logsumexp, its group) of no column, for every part of a block."""
    zeros = tl.full((C.ROWS, C.PARTS) if C.AXIS == 1 else (C.PARTS, C.ROWS), 0.0, tl.float32)
    return zeros + NEG_INF, zeros, zeros, zeros + NEG_INF, tl.full(zeros.shape, NO_GROUP, tl.int32)


@triton.jit
def add_block(score, peaks, sums, moments, temperature, C: tl.constexpr):
    """Returns (maxima, sums, moments) of parts, merged with those of a block; and (maxima, sums) of the block's."""
    score = fold(score, C)
    top = tl.max(score, C.FOLD)
    folded_temperature = tl.expand_dims(temperature, C.FOLD) if C.TEMPERATURE != "" else temperature
    base = finite(top) if C.GROUP > 0 or C.ENTROPY else finite(tl.maximum(peaks, top))
    shifted = shift(score, tl.expand_dims(base, C.FOLD), folded_temperature, C, True)
    e = exp(shifted, C, True)
    part = sum_of_part(e, C)
    moment = sum_of_part(product(e, bounded(shifted), C), C) if C.ENTROPY else part  # no fma: its order would be that of lanes
    if C.GROUP == 0 and not C.ENTROPY:  # the largest of all is the base of a block too
        shrink = exp(shift(peaks, base, temperature, C, True), C, True)
        peaks, sums = tl.maximum(peaks, top), sums * shrink + part
    else:
        highest, rises = tl.maximum(peaks, top), top > peaks
        drop = shift(tl.minimum(peaks, top), finite(highest), temperature, C, True)
        shrink, smaller, larger = exp(drop, C, True), tl.where(rises, sums, part), tl.where(rises, part, sums)
        if C.ENTROPY:
            lesser = fma(smaller, bounded(drop), tl.where(rises, moments, moment), C)
            moments = fma(lesser, shrink, tl.where(rises, moment, moments), C)
        peaks, sums = highest, fma(smaller, shrink, larger, C)
    return peaks, sums, moments, top, part


@triton.jit
def best_groups(best, at, top, part, groups, noise, temperature, C: tl.constexpr):
    """Returns (largest noisy logsumexp, its group) of parts, merged with those of a block, of which top and part are known."""
    noisy = fma(log2(part, C), LN2, finite(top), C) + noise
    if C.TEMPERATURE != "":
        noisy = tl.where(temperature == 0, top, noisy)
    better = noisy > best  # not of nan
    return tl.where(better, noisy, best), tl.where(better, groups, at)


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
    """Returns (maximum, sum, moment, largest noisy logsumexp, its group) of rows from those of their parts."""
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
    """Returns (sum, moment) of rows from those of their parts, which have maxima but with GRADIENT; `peak` is the row's."""
    drop = shift(peaks, finite(peak), temperature, C, True)
    shrink = exp(drop, C, True)
    total = tl.sum(sums if C.GRADIENT else sums * shrink, AXIS, keep_dims=True)
    return total, tl.sum(shrink * (moments + sums * bounded(drop)), AXIS, keep_dims=True) if C.ENTROPY else total
