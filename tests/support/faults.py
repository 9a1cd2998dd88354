"""Faults of the words that programs of a row publish: one table, for the interpreter and for devices.

Each is a function in place of `kernels.exchange.publish`. A result must be right with all of them.
"""

import os

import triton
import triton.language as tl

from portable_softmax.kernels.exchange import publish, word_of

# Atomic operations of a program that is late: longer than others look, on a device; the interpreter takes turns at each.
LATE = tl.constexpr(100 if os.environ.get("TRITON_INTERPRET") == "1" else 3000)


@triton.jit
def publish_half(words, split, numbers, epoch, half, C: tl.constexpr):
    """Writes the first numbers of a split of each row, half 0, or the second ones, half 1."""
    at = words + 2 * (split * C.ROWS + tl.arange(0, C.ROWS)) + half
    tl.atomic_xchg(at, word_of(tl.reshape(numbers, (C.ROWS,)), epoch >> (32 * half)), sem="relaxed")


@triton.jit
def split_lost(words, split, first, second, epoch, C: tl.constexpr):
    if split != 1:
        publish(words, split, first, second, epoch, C)


@triton.jit
def all_lost(words, split, first, second, epoch, C: tl.constexpr):
    pass


@triton.jit
def late(words, split, first, second, epoch, C: tl.constexpr):
    """After others have looked in vain, and most are done."""
    if tl.program_id(0) % 3 == 1:
        for _ in range(LATE):
            tl.atomic_or(words + split, 0, sem="relaxed")
    publish(words, split, first, second, epoch, C)


@triton.jit
def halves_apart(words, split, first, second, epoch, C: tl.constexpr):
    publish_half(words, split, second, epoch, 1, C)
    for _ in range(LATE // 3):
        tl.atomic_or(words + split, 0, sem="relaxed")
    publish_half(words, split, first, epoch, 0, C)


@triton.jit
def twice(words, split, first, second, epoch, C: tl.constexpr):
    publish(words, split, first, second, epoch, C)
    publish(words, split, first, second, epoch, C)


@triton.jit
def of_another_launch(words, split, first, second, epoch, C: tl.constexpr):
    publish(words, split, first + 1, second * 2, epoch + (1 << 33) + 2, C)


@triton.jit
def half_overwritten(words, split, first, second, epoch, C: tl.constexpr):
    """The first word of even programs, and the second of odd ones."""
    publish(words, split, first, second, epoch, C)
    publish_half(words, split, first + 1, epoch + (1 << 33) + 2, tl.program_id(0) % 2, C)


def publish_by(monkeypatch, replacement):
    """Makes kernels of the interpreter publish by another function."""
    for room in ("softmax", "log_probs"):
        monkeypatch.setattr(f"portable_softmax.kernels.{room}.publish", replacement)


LOSSES = split_lost, all_lost, late, halves_apart, of_another_launch, half_overwritten
FAULTS = {fault.fn.__name__: fault for fault in (*LOSSES, twice)}
