"""Programs that share the rows of a tile tell each other their statistics. No program ever has to wait for another.

The contract: the two statistics of a split depend on the row's elements alone, to the bit. It does not matter which program
computes them: the split's own, or a neighbour that has waited long enough. So a row has the same results whichever program is
late. Four rules keep the contract:

1. Both programs add up the elements of a split in one order, block by block: held.reduce and splits.reduce_split.
2. Both round each product alike: splits.nothing, and compilers are asked to fuse products and sums.
3. Sums over splits do not depend on the layout that the compiler gives a tensor: splits.sum_over_splits.
4. A slot of another launch counts as missing, and is never taken for a number: _read, below.

Each split of each row has two 64-bit slots, which are written and read whole. For a single row, the two slots of a split are
neighbours, and one load reads both. For several rows, the first slots of all rows of a split are neighbours, and all second
slots follow all first slots. A slot holds a 32-bit number and, above it, half of the launch's number. So anything else in that
memory (slots of an earlier or a concurrent launch, elements of any tensor) counts as missing, and nothing has to be cleared.

A program publishes the statistics of its split and looks for those of the others, a bounded number of times. If some are still
missing, the program computes them itself and publishes them, so that not every program computes them again. After "Decoupled
Fallback: A Portable Single-Pass GPU Scan" (Smith, Levien, Owens, SPAA 2025).
"""

import triton
import triton.language as tl

from portable_softmax.kernels.formulas import of_rows
from portable_softmax.kernels.splits import across_splits, orderable, splits_of

MISSING = tl.constexpr(0x7FFFFFFF)  # above every number


@triton.jit
def slot_of(number, half):
    """Returns the 64-bit slot that holds a number and half of the launch's number."""
    return (half.to(tl.int64) << 32) | (number.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def slots_of(workspace_ptr, tile, FORM: tl.constexpr):
    """Returns pointers to the slots of the first split of a tile's rows; a single row has a scalar pointer."""
    slots = workspace_ptr + tl.cast(tile, tl.int64) * FORM.slots
    if not FORM.one_row:
        slots += tl.arange(0, FORM.tile_rows)
    return slots


@triton.jit
def publish(slots, split, first, second, epoch, FORM: tl.constexpr):
    """Writes the two statistics of a split of each row, [rows] each, into the slots."""
    if FORM.one_row:
        tl.atomic_xchg(slots + 2 * split, slot_of(of_rows(first), epoch), sem="relaxed")
        tl.atomic_xchg(slots + 2 * split + 1, slot_of(of_rows(second), epoch >> 32), sem="relaxed")
    else:
        statistics = tl.join(slot_of(first, epoch), slot_of(second, epoch >> 32))
        tl.atomic_xchg(both_of(slots, split, FORM), statistics, sem="relaxed")


@triton.jit
def both_of(slots, split, FORM: tl.constexpr):
    """Returns pointers to both slots of a split of each of several rows: [rows, 2]."""
    first = tl.expand_dims(slots + split * FORM.tile_rows, 1)
    return first + FORM.splits * FORM.tile_rows * tl.expand_dims(tl.arange(0, 2), 0)


@triton.jit
def _read(ptrs, mask, half, FORM: tl.constexpr):
    """Reads slots as they are in memory at this moment; returns (statistics, which of them are of this launch)."""
    if FORM.poll == "atomic":
        slots = tl.atomic_or(ptrs, tl.zeros(ptrs.shape, tl.int64), mask=mask, sem="relaxed")
    else:
        slots = tl.load(ptrs, mask=mask, other=0, volatile=True)
    return slots.to(tl.int32).to(tl.float32, bitcast=True), (slots >> 32).to(tl.int32) == half.to(tl.int32)


@triton.jit
def look(slots, epoch, FORM: tl.constexpr):
    """Returns (first statistics, second statistics) of all splits of rows: FORM.lanes each, in the shape of `splits_of`.

    A second number of -1 marks a split that is not published yet: real sums are never negative. Lanes beyond the last split
    hold neutral values.
    """
    splits = splits_of(FORM)
    if FORM.one_row:
        is_split = splits < FORM.splits
        pair, half = tl.expand_dims(splits, 1), tl.expand_dims(tl.arange(0, 2), 0)
        statistics, are_ours = _read(slots + 2 * pair + half, pair < FORM.splits, epoch >> (32 * half), FORM)
        first, second = tl.split(statistics)
        are_ours = tl.min(are_ours.to(tl.int32), axis=1) != 0
    else:
        is_split = tl.broadcast_to(splits, (FORM.splits_read, FORM.tile_rows)) < FORM.splits
        ptrs = tl.expand_dims(slots, 0) + splits * FORM.tile_rows
        first, is_first = _read(ptrs, is_split, epoch, FORM)
        second, is_second = _read(ptrs + FORM.splits * FORM.tile_rows, is_split, epoch >> 32, FORM)
        are_ours = is_first & is_second
    second = tl.where(are_ours, second, -1.0)
    padding = 0.0 if FORM.backward else -float("inf")
    return tl.where(is_split, first, padding), tl.where(is_split, second, 0.0)


@triton.jit
def top_of(firsts, seconds, FORM: tl.constexpr):
    """Returns MISSING if a split is missing, else a number below it.

    For a single row this number is the highest first number, for `highest_of`: one reduction answers both questions.
    """
    if FORM.backward or FORM.tile_rows > 1:
        keys = tl.zeros_like(firsts).to(tl.int32)
    else:
        keys = tl.minimum(orderable(firsts), MISSING - 1)
    keys = tl.where(seconds < 0, MISSING, keys)
    return tl.max(keys, axis=0) if FORM.one_row else tl.max(keys)


@triton.jit
def swap(slots, split, first, second, epoch, FORM: tl.constexpr):
    """Publishes the statistics of a split, [rows] each, and looks for those of all splits, at most FORM.polls times.

    It publishes none that are None. Returns (firsts, seconds) as `look` does, and their `top_of`.
    """
    if first is not None:
        publish(slots, split, first, second, epoch, FORM)
    firsts = tl.zeros((FORM.lanes,) if FORM.one_row else (FORM.splits_read, FORM.tile_rows), tl.float32)
    seconds = firsts - 1.0
    top = MISSING
    polls = 0
    while (top == MISSING) & (polls < FORM.polls):
        firsts, seconds = look(slots, epoch, FORM)
        top = top_of(firsts, seconds, FORM)
        polls += 1
    return firsts, seconds, top


@triton.jit
def is_missing(seconds, split, FORM: tl.constexpr):
    """True if the statistics of one split are missing, of any row."""
    missing = ((splits_of(FORM) == split) & (seconds < 0)).to(tl.int32)
    return (tl.max(missing, axis=0) if FORM.one_row else tl.max(missing)) != 0


@triton.jit
def found(slots, split, first, second, firsts, seconds, epoch, FORM: tl.constexpr):
    """Returns (firsts, seconds) with the statistics of one more split.

    The result also has the statistics that other programs have published meanwhile.
    """
    is_found = splits_of(FORM) == split
    firsts = tl.where(is_found, across_splits(of_rows(first), FORM), firsts)
    seconds = tl.where(is_found, across_splits(of_rows(second), FORM), seconds)
    more_firsts, more_seconds = look(slots, epoch, FORM)
    return tl.where(seconds < 0, more_firsts, firsts), tl.where(seconds < 0, more_seconds, seconds)
