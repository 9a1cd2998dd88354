"""Row statistics that programs exchange, or one launch leaves for another. No program waits without a bound.

A 64-bit word packs a float32 and, above it, half of the launch's tag: the first of two has the low half. Anything else in that
memory counts as missing, and is not cleared. A tile has [2, SPLITS, ROWS, 2] words, the second half for entropies and samples.
Partial statistics are [SPLITS_READ, ROWS], of which SPLITS count.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.common import INTERPRETED, NEG_INF, TRITON
from portable_softmax.kernels.reduce import NO_GROUP, merge

gather = getattr(tl, "gather", None)  # Triton 3.2 has none, and that of 3.3 does not compile
GATHERS = tl.constexpr(TRITON > (3, 3) and not INTERPRETED.value)


@triton.jit
def words_of(words_ptr, tile, C: tl.constexpr):
    """Returns a pointer to the words of a tile; any number where rows are not split."""
    words = tile
    if C.SPLITS > 1:
        words = words_ptr + tl.cast(tile, tl.int64) * (4 * C.SPLITS * C.ROWS)
    return words


@triton.jit
def publish(words, split, first, second, tag, C: tl.constexpr):
    """Writes a maximum, or any number, and another per row of a split, one by one: not all vendors exchange two at once."""
    first = tl.where(first == first, tl.minimum(first, 3.4028234663852886e38), 0.0)  # of nan, the row's sum is nan too
    # Counted from the end: other offsets may become an atomic exchange of a buffer, which LLVM does not have.
    at = words + 2 * C.SPLITS * C.ROWS + 2 * ((split - C.SPLITS) * C.ROWS + tl.arange(0, C.ROWS))
    first = tl.reshape(first, (C.ROWS,)).to(tl.uint32, bitcast=True).to(tl.int64)
    second = tl.reshape(second, (C.ROWS,)).to(tl.uint32, bitcast=True).to(tl.int64)
    tl.atomic_xchg(at, tag.to(tl.int64) << 32 | first, sem="relaxed")
    tl.atomic_xchg(at + 1, (tag >> 32).to(tl.int64) << 32 | second, sem="relaxed")


@triton.jit
def load_partials(words, tag, C: tl.constexpr):
    """Returns (first numbers, second ones, highest first one per row) of all splits, and 1 if all have arrived, else 0.

    It polls POLLS times at most. All threads take part, and one reduction answers, so all go on alike.
    """
    split = tl.arange(0, C.SPLITS_READ)[:, None, None]
    half = tl.arange(0, 2)[None, None, :]
    ptrs = words + (2 * (split * C.ROWS + tl.arange(0, C.ROWS)[None, :, None]) + half)
    tag_of_word = (tag >> (32 * half)).to(tl.int32)
    word = tl.zeros(ptrs.shape, tl.int64)
    arrived = 0
    polls = 0
    while (arrived == 0) & (polls < C.POLLS):
        if C.ATOMIC_POLL:
            word = tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=split < C.SPLITS, sem="relaxed")
        else:
            word = tl.load(ptrs, mask=split < C.SPLITS, other=0, volatile=True)
        arrived = tl.min((((word >> 32).to(tl.int32) == tag_of_word) | (split >= C.SPLITS)).to(tl.int32))
        polls += 1
    firsts, seconds = tl.split(word.to(tl.int32).to(tl.float32, bitcast=True))
    is_split = tl.arange(0, C.SPLITS_READ)[:, None] < C.SPLITS
    firsts, seconds = tl.where(is_split, firsts, NEG_INF), tl.where(is_split, seconds, 0.0)
    return firsts, seconds, tl.max(firsts, 0, keep_dims=True), arrived


@triton.jit
def combine_splits(words, temperature, tag, C: tl.constexpr):
    """Returns (maximum, sum, moment, group of a sample, True if words did not arrive) of rows."""
    peaks, totals, highest, arrived = load_partials(words, tag, C)
    moments, late = totals, arrived == 0
    if C.ENTROPY or C.SAMPLE:
        bests, moments, best, arrived = load_partials(words + 2 * C.SPLITS * C.ROWS, tag, C)
        late = late | (arrived == 0)
    by_split = tl.reshape(temperature, (1, C.ROWS)) if C.TEMPERATURE == "rows" else temperature
    total, moment = merge(peaks, highest, totals, moments, by_split, 0, C)
    group = tl.full((1, C.ROWS), NO_GROUP, tl.int32)
    if C.SAMPLE:
        # These `moments` are the bits of groups' numbers: those of splits with the largest noisy score.
        groups = tl.where((bests == best) & (bests != NEG_INF), moments.to(tl.int32, bitcast=True), NO_GROUP)
        group = tl.min(groups, 0, keep_dims=True)
    return of_rows(highest, C), of_rows(total, C), of_rows(moment, C), of_rows(group, C), late


@triton.jit
def of_rows(numbers, C: tl.constexpr):
    """Returns [1, ROWS] in the shape that broadcasts against a tile, and in a layout that Triton does not spread over it."""
    if C.ROWS == 1:
        shaped = tl.full((1, 1), tl.max(numbers), numbers.dtype)
    else:  # gathered in a layout of its own: else a tile is converted to that of the words, block by block
        numbers = tl.reshape(numbers, (C.ROWS,))
        shaped = tl.expand_dims(gather(numbers, tl.arange(0, C.ROWS), 0) if GATHERS else numbers, C.AXIS)
    return shaped
