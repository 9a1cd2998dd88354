"""How programs that share a row tell each other what they found: one 64-bit word for each, written and read whole.

A word holds two numbers, a signed one below and one that is never negative above, and in its highest bit whether its round
is odd. A group's rounds use two buffers of words in turn. Who comes to write into one again has seen everybody's word of the
round between, so all have left it: a program's word takes all of its warps. What lies there then has that bit the other way
round. So there is no fence, no counter to wait on, and nothing to clear: rounds are counted on from launch to launch, in
memory that was zero before the first.

That all programs of a group run at once is up to the launch. Each warp waits by itself, a lane for a part, or for several.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E); GPUs have an instruction for exp2


@triton.jit
def base_of(peak):
    """What to subtract from elements of rows, or of parts of them, that may all be -inf: -inf - -inf is nan."""
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def add(peak, total, peaks, totals, AXIS: tl.constexpr):
    """The running (maximum, sum of exp(x - maximum)) of rows, with those of more parts of them; an element has a sum of 1."""
    new_peak = tl.maximum(peak, tl.max(peaks, axis=AXIS))
    base = base_of(new_peak)
    more = tl.sum(totals * tl.exp2((peaks - tl.expand_dims(base, AXIS)) * LOG2E), axis=AXIS)
    return new_peak, total * tl.exp2((peak - base) * LOG2E) + more


@triton.jit
def group_of(words_ptr, group, PARTS: tl.constexpr):
    """Where a group's words are, and the number of its rounds so far, which stands before them."""
    group_ptr = words_ptr + group * (1 + 2 * PARTS)
    return group_ptr, tl.load(group_ptr)


@triton.jit
def _word(low, high, odd):
    above = (high.to(tl.int32, bitcast=True) & 0x7FFFFFFF) | (odd << 31)  # the sign of a nan is anybody's guess
    return (above.to(tl.int64) << 32) | (low.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def publish(words_ptr, part, low, high):
    """For a launch to come."""
    tl.store(words_ptr + part, _word(low, high, 0))


@triton.jit
def swap(group_ptr, turn, part, low, high, PARTS: tl.constexpr, LANES: tl.constexpr, BACKWARD: tl.constexpr):
    """Tells the group's other programs, and waits for theirs; the row's numbers, as `collect`."""
    words_ptr = group_ptr + 1 + turn % 2 * PARTS
    odd = (1 - turn // 2 % 2).to(tl.int32)  # the first two rounds are, as their buffers begin with zeros
    tl.atomic_xchg(words_ptr + part, _word(tl.max(low, axis=0), tl.max(high, axis=0), odd), sem="relaxed")
    return collect(words_ptr, odd, PARTS, LANES, True, BACKWARD)


@triton.jit
def _look(words_ptr, part, PARTS: tl.constexpr):
    return tl.load(words_ptr + part, mask=part < PARTS, other=0, volatile=True)


@triton.jit
def _missing(words, part, odd, PARTS: tl.constexpr):
    missing = tl.where(part < PARTS, (words < 0).to(tl.int32) ^ odd, 0)
    return tl.max(tl.max(missing, axis=1), axis=0)


@triton.jit
def collect(words_ptr, odd, PARTS: tl.constexpr, LANES: tl.constexpr, WAIT: tl.constexpr, BACKWARD: tl.constexpr):
    """([maximum], [sum]) of a row's parts; (0, [the sum of the lower numbers]) for BACKWARD."""
    peak = tl.full((1,), 0.0 if BACKWARD else -float("inf"), tl.float32)
    total = tl.zeros((1,), tl.float32)
    for first in tl.static_range(0, PARTS, LANES):  # in turn: what waits for two words at once reads too often
        part = first + tl.expand_dims(tl.arange(0, LANES), 0)
        words = _look(words_ptr, part, PARTS)
        if WAIT:
            while _missing(words, part, odd, PARTS) != 0:
                words = _look(words_ptr, part, PARTS)
        low = words.to(tl.int32).to(tl.float32, bitcast=True)
        if BACKWARD:
            total += tl.sum(low, axis=1)  # a lane without a part read 0
        else:
            high = ((words >> 32) & 0x7FFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
            peak, total = add(peak, total, tl.where(part < PARTS, low, -float("inf")), high, 1)
    return peak, total
