"""Exchange of numbers between programs that share the rows of a tile, with no program that another must wait for.

Each part of each row has two 64-bit words, written and read whole; those of a part's rows follow each other. A word holds a
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
MOST_HALVINGS = tl.constexpr(10)  # down to a row's one sum: of as many parts as a program has threads


@triton.jit
def _word(number, half):
    return (half.to(tl.int64) << 32) | (number.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def of_rows(numbers):
    """Numbers of rows; that of a single row as a scalar: compilers need not move it between threads."""
    return tl.max(numbers, axis=0) if numbers.shape[0] == 1 else numbers


@triton.jit
def pairs_of(words_ptr, part, numbers):
    """Pointers to the first words of a part of each row that it has numbers of."""
    if numbers.shape[0] == 1:
        ptrs = words_ptr + 2 * part
    else:
        ptrs = words_ptr + 2 * (part * numbers.shape[0] + tl.arange(0, numbers.shape[0]))
    return ptrs


@triton.jit
def publish(words_ptr, part, first, second, launch):
    """Writes the two numbers of a part of each row, [rows] each, whose words are at words_ptr."""
    ptrs = pairs_of(words_ptr, part, first)
    tl.atomic_xchg(ptrs, _word(of_rows(first), launch), sem="relaxed")
    tl.atomic_xchg(ptrs + 1, _word(of_rows(second), launch >> 32), sem="relaxed")


@triton.jit
def _orderable(number):
    """The bits of float32 numbers as integers of the same order; nan is above all."""
    bits = number.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def by_part(numbers, ROWS: tl.constexpr):
    """Numbers of all parts of all rows as [parts, rows]; of a single row as [parts], whose reductions are scalars."""
    return numbers if ROWS == 1 else tl.reshape(numbers, (numbers.shape[0] // ROWS, ROWS))


@triton.jit
def by_row(numbers, ROWS: tl.constexpr):
    """Results of reductions over parts, as [rows]."""
    return tl.full((1,), numbers, tl.float32) if ROWS == 1 else numbers


@triton.jit
def sum_over_parts(numbers, ROWS: tl.constexpr):
    """Sums of `by_part` numbers; of several rows in an order of our own: the compiler's depends on the layout of the tensor."""
    if ROWS == 1:
        sums = tl.sum(numbers, axis=0)
    else:
        sums = tl.reshape(numbers, (numbers.shape[0] * ROWS,))
        for _ in tl.static_range(MOST_HALVINGS):
            if sums.shape[0] > ROWS:
                one, other = tl.split(tl.trans(tl.reshape(sums, (2, sums.shape[0] // 2))))
                sums = one + other
    return sums


@triton.jit
def highest_of(firsts, seconds, ROWS: tl.constexpr, BACKWARD: tl.constexpr):
    """The highest of each row's first numbers, for `peak_of` to read, or MISSING: one reduction of integers answers both."""
    keys = tl.zeros_like(firsts).to(tl.int32) if BACKWARD else tl.minimum(_orderable(firsts), MISSING - 1)
    return tl.max(by_part(tl.where(seconds < 0, MISSING, keys), ROWS), axis=0)


@triton.jit
def top_of(highest, ROWS: tl.constexpr):
    """MISSING if any row's `highest_of` is."""
    return highest if ROWS == 1 else tl.max(highest, axis=0)


@triton.jit
def peak_of(highest):
    """The numbers that are highest."""
    bits = highest ^ ((highest >> 31) & 0x7FFFFFFF)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def look(
    words_ptr, launch, ROWS: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr, POLL: tl.constexpr, BACKWARD: tl.constexpr
):
    """(first numbers, second numbers) of all parts of rows, as far as they are published: [LANES] each.

    The second number of a part that is missing is -1, which none is else. A lane without a part changes no reduction.
    """
    lane = tl.arange(0, LANES)
    place, half = tl.expand_dims(lane, 1), tl.expand_dims(tl.arange(0, 2), 0)
    ptrs = words_ptr + 2 * place + half
    if POLL == "atomic":
        words = tl.atomic_or(ptrs, tl.zeros((LANES, 2), tl.int64), mask=place < PARTS * ROWS, sem="relaxed")
    else:
        words = tl.load(ptrs, mask=place < PARTS * ROWS, other=0, volatile=True)
    is_ours = (words >> 32).to(tl.int32) == (launch >> (32 * half)).to(tl.int32)
    first, second = tl.split(words.to(tl.int32).to(tl.float32, bitcast=True))
    second = tl.where(tl.min(is_ours.to(tl.int32), axis=1) != 0, second, -1.0)
    padding = 0.0 if BACKWARD else -float("inf")
    return tl.where(lane < PARTS * ROWS, first, padding), tl.where(lane < PARTS * ROWS, second, 0.0)


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

    Returns `look`'s (firsts, seconds) and their `highest_of`.
    """
    ROWS: tl.constexpr = first.shape[0]
    publish(words_ptr, part, first, second, launch)
    firsts = tl.zeros((LANES,), tl.float32)
    seconds = firsts
    if ROWS == 1:
        highest = MISSING
    else:
        highest = tl.full((ROWS,), MISSING, tl.int32)
    polls = 0
    while (top_of(highest, ROWS) == MISSING) & (polls < POLLS):
        firsts, seconds = look(words_ptr, launch, ROWS, PARTS, LANES, POLL, BACKWARD)
        highest = highest_of(firsts, seconds, ROWS, BACKWARD)
        polls += 1
    return firsts, seconds, highest


@triton.jit
def are_of(part, numbers, ROWS: tl.constexpr):
    """Mask of one part's numbers."""
    return tl.arange(0, numbers.shape[0]) // ROWS == part


@triton.jit
def is_missing(seconds, part, ROWS: tl.constexpr):
    """Tells whether numbers of one part are not known."""
    return tl.max((are_of(part, seconds, ROWS) & (seconds < 0)).to(tl.int32), axis=0) != 0


@triton.jit
def _in_all_parts(numbers, LANES: tl.constexpr):
    """Numbers of rows, once for each part."""
    ROWS: tl.constexpr = numbers.shape[0]
    return tl.reshape(tl.broadcast_to(tl.expand_dims(numbers, 0), (LANES // ROWS, ROWS)), (LANES,))


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
    publish(words_ptr, part, first, second, launch)
    mine = are_of(part, firsts, first.shape[0])
    firsts = tl.where(mine, _in_all_parts(first, LANES), firsts)
    seconds = tl.where(mine, _in_all_parts(second, LANES), seconds)
    more_firsts, more_seconds = look(words_ptr, launch, first.shape[0], PARTS, LANES, POLL, BACKWARD)
    return tl.where(seconds < 0, more_firsts, firsts), tl.where(seconds < 0, more_seconds, seconds)
