"""Exchange of numbers between programs that share the rows of a tile, with no program that another must wait for.

Each part of each row has two 64-bit words, written and read whole. Of a single row, a part's two follow each other, and are
read at once; of several rows, a part's first words do, and all second words follow all first ones. A word holds a
number of 32 bits and, above it, half of the launch's number. So whatever else lies in that memory (an earlier launch's
words, any tensor's elements, another launch's words that overwrote these) is a word that is missing, never a wrong one,
and nothing has to be cleared.

A program publishes its part's numbers and looks for the others' a bounded number of times. What is then still missing it
finds by itself: a part's numbers are a function of the row alone. It publishes them too, so no part is computed by all.
After "Decoupled Fallback: A Portable Single-Pass GPU Scan" (Smith, Levien, Owens, SPAA 2025).
"""

import triton
import triton.language as tl

MISSING = tl.constexpr(0x7FFFFFFF)  # above every number


@triton.jit
def _word(number, half):
    return (half.to(tl.int64) << 32) | (number.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def of_rows(numbers):
    """Numbers of rows; that of a single row as a scalar: compilers need not move it between threads."""
    return tl.max(numbers, axis=0) if numbers.shape[0] == 1 else numbers


@triton.jit
def by_row(numbers, ROWS: tl.constexpr):
    """Results of reductions over parts, as [rows]."""
    return tl.full((1,), numbers, tl.float32) if ROWS == 1 else numbers


if hasattr(tl, "gather"):

    @triton.jit
    def settled(numbers):
        """The numbers of rows as they are, in a layout of their own: else compilers may move the rows' whole tile to theirs."""
        return numbers if numbers.shape[0] == 1 else tl.gather(numbers, tl.arange(0, numbers.shape[0]), 0)

else:  # Triton 3.2

    @triton.jit
    def settled(numbers):
        """The numbers of rows as they are."""
        return numbers


@triton.jit
def across_parts(numbers, ROWS: tl.constexpr):
    """Results of reductions over parts, in a shape that goes with numbers of all parts."""
    return numbers if ROWS == 1 else tl.expand_dims(numbers, 0)


@triton.jit
def parts_of(ROWS: tl.constexpr, LANES: tl.constexpr):
    """Parts that numbers of all parts belong to: [parts] for a single row, whose reductions are scalars, else [parts, 1]."""
    parts = tl.arange(0, LANES // ROWS)
    return parts if ROWS == 1 else tl.expand_dims(parts, 1)


@triton.jit
def publish(words_ptr, part, first, second, launch, PARTS: tl.constexpr):
    """Writes the two numbers of a part of each row, [rows] each, whose words are at words_ptr."""
    ROWS: tl.constexpr = first.shape[0]
    if ROWS == 1:
        tl.atomic_xchg(words_ptr + 2 * part, _word(of_rows(first), launch), sem="relaxed")
        tl.atomic_xchg(words_ptr + 2 * part + 1, _word(of_rows(second), launch >> 32), sem="relaxed")
    else:
        words = tl.join(_word(first, launch), _word(second, launch >> 32))
        place, half = tl.expand_dims(tl.arange(0, ROWS), 1), tl.expand_dims(tl.arange(0, 2), 0)
        tl.atomic_xchg(words_ptr + part * ROWS + place + PARTS * ROWS * half, words, sem="relaxed")


@triton.jit
def _orderable(number):
    """The bits of float32 numbers as integers of the same order; nan is above all."""
    bits = number.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def sum_over_parts(numbers, most, ROWS: tl.constexpr):
    """Sums of numbers of all parts; of several rows the same to the bit in any order, which depends on a tensor's layout.

    None is above `most`, [rows]; all are rounded to multiples of 2**-40 of it, whose sums float64 holds without rounding. After
    "Fast Reproducible Floating-Point Summation" (Demmel, Nguyen, ARITH 2013).
    """
    if ROWS == 1:
        sums = tl.sum(numbers, axis=0)
    else:
        coarse = across_parts(tl.where(most < float("inf"), most, 0.0).to(tl.float64) * 4096, ROWS)
        sums = tl.sum(numbers.to(tl.float64) + coarse - coarse, axis=0).to(tl.float32)
    return sums


@triton.jit
def top_of(firsts, seconds, ROWS: tl.constexpr, BACKWARD: tl.constexpr):
    """MISSING if any number is; else, of a single row, the highest first one for `highest_of`: one reduction answers both."""
    keys = tl.zeros_like(firsts).to(tl.int32) if BACKWARD or ROWS > 1 else tl.minimum(_orderable(firsts), MISSING - 1)
    keys = tl.where(seconds < 0, MISSING, keys)
    return tl.max(keys, axis=0) if ROWS == 1 else tl.max(keys)


@triton.jit
def highest_of(firsts, top, ROWS: tl.constexpr):
    """The highest of each row's first numbers."""
    highest = top if ROWS == 1 else tl.max(_orderable(firsts), axis=0)
    return (highest ^ ((highest >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _read(ptrs, mask, half, POLL: tl.constexpr):
    """(numbers, whether they are this launch's) of words as they are in memory now."""
    if POLL == "atomic":
        words = tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=mask, sem="relaxed")
    else:
        words = tl.load(ptrs, mask=mask, other=0, volatile=True)
    return words.to(tl.int32).to(tl.float32, bitcast=True), (words >> 32).to(tl.int32) == half.to(tl.int32)


@triton.jit
def look(
    words_ptr, launch, ROWS: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr, POLL: tl.constexpr, BACKWARD: tl.constexpr
):
    """(first numbers, second numbers) of all parts of rows, as far as they are published: LANES each, like `parts_of`.

    The second number of a part that is missing is -1, which none is else. A lane without a part changes no reduction.
    """
    parts = parts_of(ROWS, LANES)
    if ROWS == 1:
        is_part = parts < PARTS
        pair, half = tl.expand_dims(parts, 1), tl.expand_dims(tl.arange(0, 2), 0)
        numbers, are_ours = _read(words_ptr + 2 * pair + half, pair < PARTS, launch >> (32 * half), POLL)
        first, second = tl.split(numbers)
        are_ours = tl.min(are_ours.to(tl.int32), axis=1) != 0
    else:
        is_part = tl.broadcast_to(parts, (LANES // ROWS, ROWS)) < PARTS
        ptrs = words_ptr + parts * ROWS + tl.expand_dims(tl.arange(0, ROWS), 0)
        first, is_first = _read(ptrs, is_part, launch, POLL)
        second, is_second = _read(ptrs + PARTS * ROWS, is_part, launch >> 32, POLL)
        are_ours = is_first & is_second
    second = tl.where(are_ours, second, -1.0)
    padding = 0.0 if BACKWARD else -float("inf")
    return tl.where(is_part, first, padding), tl.where(is_part, second, 0.0)


@triton.jit
def swap(
    words_ptr,
    part,
    first,
    second,
    launch,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
    POLL: tl.constexpr,
    POLLS: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    """Publishes a part's numbers, [rows] each, and looks for those of all parts, at most POLLS times.

    Returns `look`'s (firsts, seconds) and their `top_of`.
    """
    ROWS: tl.constexpr = first.shape[0]
    publish(words_ptr, part, first, second, launch, PARTS)
    firsts = tl.zeros((LANES,) if ROWS == 1 else (LANES // ROWS, ROWS), tl.float32)
    seconds = firsts
    top = MISSING
    polls = 0
    while (top == MISSING) & (polls < POLLS):
        firsts, seconds = look(words_ptr, launch, ROWS, PARTS, LANES, POLL, BACKWARD)
        top = top_of(firsts, seconds, ROWS, BACKWARD)
        polls += 1
    return firsts, seconds, top


@triton.jit
def is_missing(seconds, part, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Tells whether numbers of one part are not known."""
    missing = ((parts_of(ROWS, LANES) == part) & (seconds < 0)).to(tl.int32)
    return (tl.max(missing, axis=0) if ROWS == 1 else tl.max(missing)) != 0


@triton.jit
def found(
    words_ptr,
    part,
    first,
    second,
    firsts,
    seconds,
    launch,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
    POLL: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    """(firsts, seconds) with those of one more part, which are published for others too, and with what came meanwhile."""
    ROWS: tl.constexpr = first.shape[0]
    publish(words_ptr, part, first, second, launch, PARTS)
    is_found = parts_of(ROWS, LANES) == part
    firsts = tl.where(is_found, across_parts(of_rows(first), ROWS), firsts)
    seconds = tl.where(is_found, across_parts(of_rows(second), ROWS), seconds)
    more_firsts, more_seconds = look(words_ptr, launch, ROWS, PARTS, LANES, POLL, BACKWARD)
    return tl.where(seconds < 0, more_firsts, firsts), tl.where(seconds < 0, more_seconds, seconds)
