"""Programs that share the rows of a tile tell each other their numbers. No program ever has to wait for another.

The contract: the two numbers of a part depend on the row's elements alone, to the bit. It does not matter which program
computes them: the part's own, or a neighbour that has waited long enough. So a row has the same results whichever program is
late. Four rules keep the contract:

1. Both programs add up the elements of a part in one order, piece by piece: held.reduce and parts.reduce_part.
2. Both round each product alike: parts.nothing, and compilers are asked to fuse products and sums.
3. Sums over parts do not depend on the layout that the compiler gives a tensor: parts.sum_over_parts.
4. A slot of another launch counts as missing, and is never taken for a number: _read, below.

Each part of each row has two 64-bit slots, which are written and read whole. For a single row, the two slots of a part are
neighbours, and one load reads both. For several rows, the first slots of all rows of a part are neighbours, and all second
slots follow all first slots. A slot holds a 32-bit number and, above it, half of the launch's number. So anything else in that
memory (slots of an earlier or a concurrent launch, elements of any tensor) counts as missing, and nothing has to be cleared.
Where lines are folded, the rows of a matrix have slots in common, as each tile has other parts of them.

A program publishes the numbers of its part and looks for those of the others, a bounded number of times. If some are still
missing, the program computes them itself and publishes them, so that not every program computes them again. After "Decoupled
Fallback: A Portable Single-Pass GPU Scan" (Smith, Levien, Owens, SPAA 2025).

In place (FORM.in_place) a part that is read again may be overwritten by then. Each program overwrites its own part alone, and
once its slots are there for all to see. So a program that has read a part again looks once more: if any of its slots is still
missing, nothing of the part was overwritten while it was read; if all are there, they are taken and the reading is dropped. For
this a fence stands between slots and results, and one between the reading and that look: in_order.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.formulas import of_rows
from portable_softmax.kernels.parts import across_parts, orderable, parts_of

MISSING = tl.constexpr(0x7FFFFFFF)  # above every number


@triton.jit
def slot_of(number, half):
    """Returns the 64-bit slot that holds a number and half of the launch's number."""
    return (half.to(tl.int64) << 32) | (number.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def slots_of(workspace_ptr, tile, matrix, rows, n_rows, FORM: tl.constexpr):
    """Returns (pointers to the slots of the first part of a tile's rows, slots from part to part of a row).

    A single row has a scalar pointer. Rows of folded lines have slots of their own, wherever a tile finds them.
    """
    if FORM.folded > 1:
        row_tiles, step = (n_rows + FORM.tile_rows - 1) // FORM.tile_rows, n_rows // FORM.folded
        slots = workspace_ptr + tl.cast(matrix, tl.int64) * row_tiles * FORM.slots + rows % step
    else:
        step = FORM.tile_rows
        slots = workspace_ptr + tl.cast(tile, tl.int64) * FORM.slots
        if not FORM.one_row:
            slots += tl.arange(0, FORM.tile_rows)
    return slots, step


@triton.jit
def publish(slots, step, part, known, first, second, epoch, FORM: tl.constexpr):
    """Writes the two numbers of a part of each row, [rows] each, into the slots.

    In folded lines each row has a part of its own, and only those that are `known` have slots.
    """
    if FORM.one_row:
        tl.atomic_xchg(slots + 2 * part, slot_of(of_rows(first), epoch), sem="relaxed")
        tl.atomic_xchg(slots + 2 * part + 1, slot_of(of_rows(second), epoch >> 32), sem="relaxed")
    else:
        numbers = tl.join(slot_of(first, epoch), slot_of(second, epoch >> 32))
        known = tl.expand_dims(known, 1) if FORM.folded > 1 else None
        tl.atomic_xchg(both_of(slots, step, part, FORM), numbers, mask=known, sem="relaxed")


@triton.jit
def both_of(slots, step, part, FORM: tl.constexpr):
    """Returns pointers to both slots of a part of each of several rows: [rows, 2]."""
    return tl.expand_dims(slots + part * step, 1) + FORM.parts * step * tl.expand_dims(tl.arange(0, 2), 0)


@triton.jit
def in_order(slots, step, part, known, SEM: tl.constexpr, FORM: tl.constexpr):
    """Completes, for all programs to see, what this one has read and written, ahead of what it reads and writes next.

    Those threads that published the slots of `part` have a fence, and all others wait for them.
    """
    tl.debug_barrier()
    if FORM.one_row:
        tl.atomic_or(slots + 2 * part, 0, sem=SEM)
    else:
        known = tl.expand_dims(known, 1) if FORM.folded > 1 else None
        ptrs = both_of(slots, step, part, FORM)
        tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=known, sem=SEM)
    tl.debug_barrier()


@triton.jit
def _read(ptrs, mask, half, FORM: tl.constexpr):
    """Reads slots as they are in memory at this moment; returns (numbers, which of them are of this launch)."""
    if FORM.poll == "atomic":
        slots = tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=mask, sem="relaxed")
    else:
        slots = tl.load(ptrs, mask=mask, other=0, volatile=True)
    return slots.to(tl.int32).to(tl.float32, bitcast=True), (slots >> 32).to(tl.int32) == half.to(tl.int32)


@triton.jit
def look(slots, step, epoch, firsts, seconds, FORM: tl.constexpr):
    """Returns (first numbers, second numbers) of all parts of rows: FORM.lanes each, in the shape of `parts_of`.

    A second number of -1 marks a part that is not published yet: real sums are never negative. Lanes beyond the last part hold
    neutral values.
    """
    parts = parts_of(FORM)
    if FORM.one_row:
        is_part = parts < FORM.parts
        pair, half = tl.expand_dims(parts, 1), tl.expand_dims(tl.arange(0, 2), 0)
        numbers, are_ours = _read(slots + 2 * pair + half, pair < FORM.parts, epoch >> (32 * half), FORM)
        first, second = tl.split(numbers)
        are_ours = tl.min(are_ours.to(tl.int32), axis=1) != 0
    else:
        is_part = tl.broadcast_to(parts, (FORM.parts_read, FORM.tile_rows)) < FORM.parts
        ptrs = tl.expand_dims(slots, 0) + parts * step
        if FORM.folded > 1:  # slots are read one by one, so those that are there need not be read again
            missing = is_part & (seconds < 0)
        else:
            missing = is_part
        first, is_first = _read(ptrs, missing, epoch, FORM)
        second, is_second = _read(ptrs + FORM.parts * step, missing, epoch >> 32, FORM)
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
def swap(slots, step, part, known, first, second, epoch, FORM: tl.constexpr):
    """Publishes the numbers of a part, [rows] each, and looks for those of all parts, at most FORM.polls times.

    Returns (firsts, seconds) as `look` does, and their `top_of`.
    """
    publish(slots, step, part, known, first, second, epoch, FORM)
    if FORM.in_place:
        in_order(slots, step, part, known, "release", FORM)
    firsts = tl.zeros((FORM.lanes,) if FORM.one_row else (FORM.parts_read, FORM.tile_rows), tl.float32)
    seconds = firsts - 1.0
    top = MISSING
    polls = 0
    while (top == MISSING) & (polls < FORM.polls):
        firsts, seconds = look(slots, step, epoch, firsts, seconds, FORM)
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
def found(slots, step, part, here, first, second, firsts, seconds, epoch, FORM: tl.constexpr):
    """Returns (firsts, seconds) with the numbers of one more part, of the rows that are `here`, where lines are folded.

    The result also has the numbers that other programs have published meanwhile.
    """
    is_found = parts_of(FORM) == part
    if FORM.folded > 1:
        is_found = is_found & across_parts(here, FORM)
    firsts = tl.where(is_found, across_parts(of_rows(first), FORM), firsts)
    seconds = tl.where(is_found, across_parts(of_rows(second), FORM), seconds)
    return looked_again(slots, step, firsts, seconds, epoch, FORM)


@triton.jit
def looked_again(slots, step, firsts, seconds, epoch, FORM: tl.constexpr):
    """Returns (firsts, seconds) with the numbers that other programs have published meanwhile."""
    more_firsts, more_seconds = look(slots, step, epoch, firsts, seconds, FORM)
    return tl.where(seconds < 0, more_firsts, firsts), tl.where(seconds < 0, more_seconds, seconds)
