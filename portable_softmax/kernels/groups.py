"""Row statistics by groups of columns: maximum, sum of exponentials, and the group of a sample.

A group has 8 adjacent columns. Its maximum, its sum of exp(score - maximum) in a fixed order, and its noise depend on its
scores, a seed and a position alone: not on blocks, splits, threads or other rows. The maximum over groups of
log(sum of exp(score)) plus Gumbel noise is that of a group with the group's probability: one random number for 8 columns.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import BOTH, LN2, NEG_INF, bounded, exp, finite, fma, get, places, put
from portable_softmax.kernels.scores import fall_of, load_scores, merge, product

ROUNDS = tl.constexpr(7)  # of Philox
NO_GROUP = tl.constexpr(0x7FFFFFFF)


@triton.jit
def reduce_groups(
    x, mask, m_col, lead, past, exists, scale, temperature, first, seed, position, least, DRAW: tl.constexpr, C: tl.constexpr
):  # fmt: skip
    """Returns (maximum, sum, falls, largest noisy score, its group) of columns from `first` on, read a block at a time.

    In the second DRAW, scores below `least` are left out.
    """
    peaks, sums, falls, best, at = no_groups(C.STREAM, C)
    rest = first + tl.maximum(tl.min(past) - first, 0) // C.STREAM * C.STREAM
    for column in tl.range(first, rest, C.STREAM):  # whole blocks, of which no element is behind the row
        s = load_columns(
            x, mask, column, m_col, lead, past, exists, scale, temperature, least, DRAW, 2 if C.UNALIGNED else 0, C
        )
        peaks, sums, falls, best, at = add_groups(
            s, column, peaks, sums, falls, best, at, temperature, seed, position, DRAW, False, C
        )
    for column in tl.range(rest, tl.max(past), C.STREAM):
        s = load_columns(x, mask, column, m_col, lead, past, exists, scale, temperature, least, DRAW, BOTH, C)
        peaks, sums, falls, best, at = add_groups(
            s, column, peaks, sums, falls, best, at, temperature, seed, position, DRAW, False, C
        )
    return merged(peaks, sums, falls, best, at, temperature, C)


@triton.jit
def load_columns(
    x,
    mask,
    column,
    m_col,
    lead,
    past,
    exists,
    scale,
    temperature,
    least,
    DRAW: tl.constexpr,
    EDGE: tl.constexpr,
    C: tl.constexpr,
):
    """Returns the scores of a block; in the second DRAW -inf for those below `least`."""
    place = places(column, C.STREAM, C)
    s = load_scores(x, mask, column, place, 1, m_col, lead, past, exists, scale, temperature, EDGE, C)
    if DRAW == 2:
        s = tl.where(s < least, NEG_INF, s)
    return s


@triton.jit
def reduce_tile(x, mask, m_col, lead, past, exists, scale, temperature, first, seed, position, C: tl.constexpr):
    """Returns the same of a tile, of which all blocks are loaded first."""
    tile = None
    for k in tl.static_range(C.BLOCKS):
        column = first + k * C.BLOCK
        place = places(column, C.BLOCK, C)
        s = load_scores(
            x, mask, column, place, 1, m_col, lead, past, exists, scale, temperature, 2 * (k == 0) + (k >= C.WHOLE), C
        )
        tile = put(tile, s, C)
    peaks, sums, falls, best, at = no_groups(C.BLOCK, C)
    for k in tl.static_range(C.BLOCKS):
        peaks, sums, falls, best, at = add_groups(
            get(tile, k, C), first + k * C.BLOCK, peaks, sums, falls, best, at, temperature, seed, position, 1, k == 0, C
        )
    return merged(peaks, sums, falls, best, at, temperature, C)


@triton.jit
def no_groups(WIDTH: tl.constexpr, C: tl.constexpr):
    """Returns the statistics of no column, for every group of a block."""
    nothing = tl.full((C.ROWS, WIDTH // C.GROUP), NEG_INF, tl.float32)
    zeros = tl.full((C.ROWS, WIDTH // C.GROUP), 0.0, tl.float32)
    return nothing, zeros, zeros, nothing, tl.full((C.ROWS, WIDTH // C.GROUP), NO_GROUP, tl.int32)


@triton.jit
def add_groups(
    s, column, peaks, sums, falls, best, at, temperature, seed, position, DRAW: tl.constexpr, FIRST: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """Returns statistics of groups, each merged with that of a block's group at the same place; the FIRST block has none."""
    GROUPS: tl.constexpr = s.shape[1] // C.GROUP
    heat = tl.expand_dims(temperature, 2) if C.TEMPERATURE != "" else temperature
    s = tl.reshape(s, (C.ROWS, GROUPS, C.GROUP))
    top = tl.max(s, 2)
    fall = fall_of(s, tl.expand_dims(finite(top), 2), heat, C)
    e = exp(fall, C)
    part = sum_of_group(e, C)
    terms = sum_of_group(product(e, bounded(fall), C), C) if C.ENTROPY else part  # no fma: its order would be that of lanes
    if C.SAMPLE:
        group = column // C.GROUP + tl.expand_dims(tl.arange(0, GROUPS), 0)
        noisy = fma(log2(part, C), LN2, finite(top)) + gumbel(group, seed, position, 2 * DRAW - 2, C)
        if C.TEMPERATURE != "":
            noisy = tl.where(temperature == 0, top, noisy)
        better = noisy > best  # not of nan
        best, at = tl.where(better, noisy, best), tl.where(better, group, at)
    if FIRST:
        peaks, sums, falls = top, part, terms
    else:
        higher, lower = tl.maximum(peaks, top), tl.minimum(peaks, top)
        drop, rises = fall_of(lower, finite(higher), temperature, C), top > peaks
        shrink, smaller, larger = exp(drop, C), tl.where(rises, sums, part), tl.where(rises, part, sums)
        if C.ENTROPY:
            falls = fma(fma(smaller, bounded(drop), tl.where(rises, falls, terms)), shrink, tl.where(rises, terms, falls))
        peaks, sums = higher, fma(smaller, shrink, larger)
    return peaks, sums, falls, best, at


@triton.jit
def sum_of_group(e, C: tl.constexpr):
    """Returns sums of groups, two numbers at a time: a sum of more would have the order of a layout."""
    for _ in tl.static_range(3):
        if e.shape[2] > 1:
            e = tl.sum(tl.reshape(e, (C.ROWS, e.shape[1], e.shape[2] // 2, 2)), 3)
    return tl.reshape(e, (C.ROWS, e.shape[1]))


@triton.jit
def merged(peaks, sums, falls, best, at, temperature, C: tl.constexpr):
    """Returns the statistics of rows from those of their groups."""
    peak = tl.max(peaks, 1, keep_dims=True)
    total, falls = merge(peaks, peak, sums, falls, temperature, 1, C)
    if C.SAMPLE:
        top = tl.max(best, 1, keep_dims=True)
        at = tl.min(tl.where(best == top, at, NO_GROUP), 1, keep_dims=True)
        best = top
    return peak, total, falls, best, at


# ---------------------------------------------------------------- noise
@triton.jit
def gumbel(number, seed, position, purpose, C: tl.constexpr):
    """Returns Gumbel noise, -log(-log(1 - v)), by Philox4x32 with the counter (number, position, purpose) and the key seed.

    v has 32 bits, and where the noise is large a float's relative precision: log(1 - v) is a series there.
    """
    low, high = (position & 0xFFFFFFFF).to(tl.uint32), (position >> 32).to(tl.uint32)
    key, key_high = (seed & 0xFFFFFFFF).to(tl.uint32), (seed >> 32).to(tl.uint32)
    counter = number.to(tl.uint32)
    word = philox(counter, low, high, counter * 0 + purpose, key, key_high, C)
    # In halves: no vector unit of Ascend casts an unsigned number.
    upper, lower = (word >> 16).to(tl.int32).to(tl.float32), (word & 0xFFFF).to(tl.int32).to(tl.float32)
    v = fma(upper, 65536.0, lower) * 2.3283064365386963e-10 + 1.1641532182693481e-10  # (word + 1/2) / 2**32
    series = v * fma(v, fma(v, 0.33333334, 0.5), 1.0)
    log = tl.where(v < 0.0078125, series, log2(1.0 - tl.minimum(v, 0.99999994), C) * -LN2)
    return log2(log, C) * -LN2


@triton.jit
def philox(c0, c1, c2, c3, k0, k1, C: tl.constexpr):
    """Returns the first word of Philox4x32: tl.philox_impl is another function on Ascend, where tl.umulhi is signed."""
    for _ in tl.static_range(ROUNDS):
        a, c = upper_half(c0, 0xD2511F53, C), upper_half(c2, 0xCD9E8D57, C)
        c0, c1, c2, c3 = c ^ c1 ^ k0, c2 * 0xCD9E8D57, a ^ c3 ^ k1, c0 * 0xD2511F53
        k0, k1 = k0 + 0x9E3779B9, k1 + 0xBB67AE85
    return c0


@triton.jit
def upper_half(word, FACTOR: tl.constexpr, C: tl.constexpr):
    """Returns the upper 32 bits of a product of unsigned words."""
    if C.FUSED:
        high = tl.umulhi(word, tl.full((1, 1), FACTOR, tl.uint32))
    else:
        low_low, low_high = (word & 0xFFFF) * (FACTOR & 0xFFFF), (word & 0xFFFF) * (FACTOR >> 16)
        high_low, high_high = (word >> 16) * (FACTOR & 0xFFFF), (word >> 16) * (FACTOR >> 16)
        middle = (low_low >> 16) + (low_high & 0xFFFF) + (high_low & 0xFFFF)
        high = high_high + (low_high >> 16) + (high_low >> 16) + (middle >> 16)
    return high


@triton.jit
def log2(x, C: tl.constexpr):
    """Returns the hardware's logarithm: that of Triton is a function of 20 instructions on some devices."""
    return tl.inline_asm_elementwise(C.LOG2, "=f,f", [x], tl.float32, is_pure=True, pack=1) if C.LOG2 != "" else tl.log2(x)
