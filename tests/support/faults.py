"""Faults of the slots that programs of a row publish: one table, for the interpreter and for devices.

Each is a function in place of `kernels.exchange.publish`. A result must have the same bits with all of them.
"""

import os

import triton
import triton.language as tl

from portable_softmax.kernels.exchange import of_rows, publish, slot_of

# Atomic operations of a program that is late: longer than others look, on a device; the interpreter takes turns at each.
LATE = tl.constexpr(100 if os.environ.get("TRITON_INTERPRET") == "1" else 3000)


@triton.jit
def publish_half(slots, split, numbers, epoch, half, FORM: tl.constexpr):
    """Writes the first numbers of a split of each row, half 0, or the second ones, half 1."""
    ptrs = slots + 2 * split + half if FORM.one_row else slots + (half * FORM.splits + split) * FORM.tile_rows
    tl.atomic_xchg(ptrs, slot_of(of_rows(numbers), epoch >> (32 * half)), sem="relaxed")


@triton.jit
def all_of_a_split_lost(slots, split, first, second, epoch, FORM: tl.constexpr):
    if split != 1:
        publish(slots, split, first, second, epoch, FORM)


@triton.jit
def all_lost(slots, split, first, second, epoch, FORM: tl.constexpr):
    pass


@triton.jit
def late(slots, split, first, second, epoch, FORM: tl.constexpr):
    """After others have looked in vain, and most are done."""
    if tl.program_id(0) % 3 == 1:
        for _ in range(LATE):
            tl.atomic_or(slots + split, 0, sem="relaxed")
    publish(slots, split, first, second, epoch, FORM)


@triton.jit
def halves_apart(slots, split, first, second, epoch, FORM: tl.constexpr):
    publish_half(slots, split, second, epoch, 1, FORM)
    for _ in range(LATE // 3):
        tl.atomic_or(slots + split, 0, sem="relaxed")
    publish_half(slots, split, first, epoch, 0, FORM)


@triton.jit
def twice(slots, split, first, second, epoch, FORM: tl.constexpr):
    publish(slots, split, first, second, epoch, FORM)
    publish(slots, split, first, second, epoch, FORM)


@triton.jit
def of_another_launch(slots, split, first, second, epoch, FORM: tl.constexpr):
    publish(slots, split, first + 1, second * 2, epoch + (1 << 33) + 2, FORM)


@triton.jit
def half_overwritten(slots, split, first, second, epoch, FORM: tl.constexpr):
    """The first slot of even programs, and the second of odd ones."""
    publish(slots, split, first, second, epoch, FORM)
    publish_half(slots, split, first + 1, epoch + (1 << 33) + 2, tl.program_id(0) % 2, FORM)


def publish_by(monkeypatch, replacement):
    """Makes kernels of the interpreter publish by another function."""
    for room in ("exchange", "fallback"):
        monkeypatch.setattr(f"portable_softmax.kernels.{room}.publish", replacement)


LOSSES = all_of_a_split_lost, all_lost, late, halves_apart, of_another_launch, half_overwritten
FAULTS = {fault.fn.__name__: fault for fault in (*LOSSES, twice)}
