"""Faults of the words that programs of a row publish: one table, for the interpreter and for devices.

A fault is a function in place of `kernels.exchange.publish`. A result must be right with all of them.
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
    """The second numbers of every third program come first, the first ones after others have looked, and most are done."""
    if tl.program_id(0) % 3 == 0:
        publish_half(words, split, second, epoch, 1, C)
        for _ in range(LATE):
            tl.atomic_or(words + split, 0, sem="relaxed")
        publish_half(words, split, first, epoch, 0, C)
    else:
        publish(words, split, first, second, epoch, C)


@triton.jit
def overwritten(words, split, first, second, epoch, C: tl.constexpr):
    """By another launch: the first word of one program, the second of another one, both of a third one."""
    publish(words, split, first, second, epoch, C)
    if tl.program_id(0) % 3 == 2:
        publish(words, split, first + 1, second * 2, epoch + (1 << 33) + 2, C)
    else:
        publish_half(words, split, first + 1, epoch + (1 << 33) + 2, tl.program_id(0) % 3, C)


def publish_by(monkeypatch, replacement):
    """Makes kernels of the interpreter publish by another function."""
    for room in ("softmax", "log_probs"):
        monkeypatch.setattr(f"portable_softmax.kernels.{room}.publish", replacement)


FAULTS = {fault.fn.__name__: fault for fault in (split_lost, all_lost, late, overwritten)}
