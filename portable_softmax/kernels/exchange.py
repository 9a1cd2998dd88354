"""Programs that share the rows of a tile tell each other their numbers. No program ever has to wait for another.

The contract: the two numbers of a part depend on the row's elements alone, to the bit. It does not matter which program
computes them: the part's own, or a neighbour that has waited long enough. So a row has the same results whichever program is
late. Four rules keep the contract:

1. Both programs add up the elements of a part in one order, piece by piece: held.reduce and parts.reduce_part.
2. Both round each product alike: parts.nothing, and compilers are asked to fuse products and sums.
3. Sums over parts do not depend on the layout that the compiler gives a tensor: parts.sum_over_parts.
4. A word of another launch counts as missing, and is never taken for a number: _read, below.

Each part of each row has two 64-bit words, which are written and read whole. For a single row, the two words of a part are
neighbours, and one load reads both. For several rows, the first words of all rows of a part are neighbours, and all second
words follow all first words. A word holds a 32-bit number and, above it, half of the launch's number. So anything else in that
memory (words of an earlier or a concurrent launch, elements of any tensor) counts as missing, and nothing has to be cleared.
Where lines are folded, the rows of a matrix have words in common, as each tile has other parts of them.

A program publishes the numbers of its part and looks for those of the others, a bounded number of times. If some are still
missing, the program computes them itself and publishes them, so that not every program computes them again. After "Decoupled
Fallback: A Portable Single-Pass GPU Scan" (Smith, Levien, Owens, SPAA 2025).

In place (FORM.in_place) a part that is read again may be overwritten by then. Each program overwrites its own part alone, and
once its words are there for all to see. So a program that has read a part again looks once more: if any of its words is still
missing, nothing of the part was overwritten while it was read; if all are there, they are taken and the reading is dropped. For
this a fence stands between words and results, and one between the reading and that look: in_order.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.formulas import of_rows
from portable_softmax.kernels.parts import across_parts, orderable, parts_of

MISSING = tl.constexpr(0x7FFFFFFF)  # above every number


@triton.jit
def word(number, half):
    """Returns the 64-bit word that holds a number and half of the launch's number."""
    return (half.to(tl.int64) << 32) | (number.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def words_of(words_ptr, tile, matrix, rows, n_rows, FORM: tl.constexpr):
    """Returns (pointers to the words of the first part of a tile's rows, words from part to part of a row).

    A single row has a scalar pointer. Rows of folded lines have words of their own, wherever a tile finds them.
    """
    if FORM.folded > 1:
        row_tiles, step = (n_rows + FORM.tile_rows - 1) // FORM.tile_rows, n_rows // FORM.folded
        words = words_ptr + tl.cast(matrix, tl.int64) * row_tiles * FORM.words + rows % step
    else:
        step = FORM.tile_rows
        words = words_ptr + tl.cast(tile, tl.int64) * FORM.words
        if not FORM.one_row:
            words += tl.arange(0, FORM.tile_rows)
    return words, step


@triton.jit
def publish(words, step, part, known, first, second, launch, FORM: tl.constexpr):
    """Writes the two numbers of a part of each row, [rows] each, into the words.

    In folded lines each row has a part of its own, and only those that are `known` have words.
    """
    if FORM.one_row:
        tl.atomic_xchg(words + 2 * part, word(of_rows(first), launch), sem="relaxed")
        tl.atomic_xchg(words + 2 * part + 1, word(of_rows(second), launch >> 32), sem="relaxed")
    else:
        numbers = tl.join(word(first, launch), word(second, launch >> 32))
        known = tl.expand_dims(known, 1) if FORM.folded > 1 else None
        tl.atomic_xchg(both_of(words, step, part, FORM), numbers, mask=known, sem="relaxed")


@triton.jit
def both_of(words, step, part, FORM: tl.constexpr):
    """Returns pointers to both words of a part of each of several rows: [rows, 2]."""
    return tl.expand_dims(words + part * step, 1) + FORM.parts * step * tl.expand_dims(tl.arange(0, 2), 0)


@triton.jit
def in_order(words, step, part, known, SEM: tl.constexpr, FORM: tl.constexpr):
    """Completes, for all programs to see, what this one has read and written, ahead of what it reads and writes next.

    Those threads that published the words of `part` have a fence, and all others wait for them.
    """
    tl.debug_barrier()
    if FORM.one_row:
        tl.atomic_or(words + 2 * part, 0, sem=SEM)
    else:
        known = tl.expand_dims(known, 1) if FORM.folded > 1 else None
        ptrs = both_of(words, step, part, FORM)
        tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=known, sem=SEM)
    tl.debug_barrier()


@triton.jit
def _read(ptrs, mask, half, FORM: tl.constexpr):
    """Reads words as they are in memory at this moment; returns (numbers, which of them are of this launch)."""
    if FORM.poll == "atomic":
        words = tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=mask, sem="relaxed")
    else:
        words = tl.load(ptrs, mask=mask, other=0, volatile=True)
    return words.to(tl.int32).to(tl.float32, bitcast=True), (words >> 32).to(tl.int32) == half.to(tl.int32)


@triton.jit
def look(words, step, launch, firsts, seconds, FORM: tl.constexpr):
    """Returns (first numbers, second numbers) of all parts of rows: FORM.lanes each, in the shape of `parts_of`.

    A second number of -1 marks a part that is not published yet: real sums are never negative. Lanes beyond the last part hold
    neutral values.
    """
    parts = parts_of(FORM)
    if FORM.one_row:
        is_part = parts < FORM.parts
        pair, half = tl.expand_dims(parts, 1), tl.expand_dims(tl.arange(0, 2), 0)
        numbers, are_ours = _read(words + 2 * pair + half, pair < FORM.parts, launch >> (32 * half), FORM)
        first, second = tl.split(numbers)
        are_ours = tl.min(are_ours.to(tl.int32), axis=1) != 0
    else:
        is_part = tl.broadcast_to(parts, (FORM.parts_read, FORM.tile_rows)) < FORM.parts
        ptrs = tl.expand_dims(words, 0) + parts * step
        if FORM.folded > 1:  # words are read one by one, so those that are there need not be read again
            missing = is_part & (seconds < 0)
        else:
            missing = is_part
        first, is_first = _read(ptrs, missing, launch, FORM)
        second, is_second = _read(ptrs + FORM.parts * step, missing, launch >> 32, FORM)
        are_ours = is_first & is_second
    second = tl.where(are_ours, second, -1.0)
    if FORM.folded > 1:
        first, second = tl.where(seconds < 0, first, firsts), tl.where(seconds < 0, second, seconds)
    padding = 0.0 if FORM.backward else -float("inf")
    return tl.where(is_part, first, padding), tl.where(is_part, second, 0.0)


@triton.jit
def top_of(firsts, seconds, FORM: tl.constexpr):
    """Returns MISSING if a part is missing, else a number below it.

    For a single row this number is the highest first number, for `highest_of`: one reduction answers both questions.
    """
    if FORM.backward or FORM.tile_rows > 1:
        keys = tl.zeros_like(firsts).to(tl.int32)
    else:
        keys = tl.minimum(orderable(firsts), MISSING - 1)
    keys = tl.where(seconds < 0, MISSING, keys)
    return tl.max(keys, axis=0) if FORM.one_row else tl.max(keys)


@triton.jit
def swap(words, step, part, known, first, second, launch, FORM: tl.constexpr):
    """Publishes the numbers of a part, [rows] each, and looks for those of all parts, at most FORM.polls times.

    Returns (firsts, seconds) as `look` does, and their `top_of`.
    """
    publish(words, step, part, known, first, second, launch, FORM)
    if FORM.in_place:
        in_order(words, step, part, known, "release", FORM)
    firsts = tl.zeros((FORM.lanes,) if FORM.one_row else (FORM.parts_read, FORM.tile_rows), tl.float32)
    seconds = firsts - 1.0
    top = MISSING
    polls = 0
    while (top == MISSING) & (polls < FORM.polls):
        firsts, seconds = look(words, step, launch, firsts, seconds, FORM)
        top = top_of(firsts, seconds, FORM)
        polls += 1
    return firsts, seconds, top


@triton.jit
def is_missing(seconds, part, here, FORM: tl.constexpr):
    """Tells whether the numbers of one part are missing, of any row; of those that are `here`, if this is not None."""
    missing = (parts_of(FORM) == part) & (seconds < 0)
    if here is not None:
        missing = missing & across_parts(here, FORM)
    missing = missing.to(tl.int32)
    return (tl.max(missing, axis=0) if FORM.one_row else tl.max(missing)) != 0


@triton.jit
def found(words, step, part, here, first, second, firsts, seconds, launch, FORM: tl.constexpr):
    """Returns (firsts, seconds) with the numbers of one more part, of the rows that are `here`, where lines are folded.

    The result also has the numbers that other programs have published meanwhile.
    """
    is_found = parts_of(FORM) == part
    if FORM.folded > 1:
        is_found = is_found & across_parts(here, FORM)
    firsts = tl.where(is_found, across_parts(of_rows(first), FORM), firsts)
    seconds = tl.where(is_found, across_parts(of_rows(second), FORM), seconds)
    return looked_again(words, step, firsts, seconds, launch, FORM)


@triton.jit
def looked_again(words, step, firsts, seconds, launch, FORM: tl.constexpr):
    """Returns (firsts, seconds) with the numbers that other programs have published meanwhile."""
    more_firsts, more_seconds = look(words, step, launch, firsts, seconds, FORM)
    return tl.where(seconds < 0, more_firsts, firsts), tl.where(seconds < 0, more_seconds, seconds)
