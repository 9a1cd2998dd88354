"""Faults of the words that programs of a row publish: one table, for the emulator and for devices.

A fault is a function in place of `kernels.exchange.publish`. A result must be right with all of them.
"""

import triton
import triton.language as tl

from portable_softmax.kernels import log_probs, softmax
from portable_softmax.kernels.exchange import publish

LATE = tl.constexpr(3000)  # atomic operations of a program that is late: longer than others look


@triton.jit
def split_lost(words, split, first, second, tag, C: tl.constexpr):
    if split != 1:
        publish(words, split, first, second, tag, C)


@triton.jit
def late(words, split, first, second, tag, C: tl.constexpr):
    """Every third program publishes after others have looked, and most are done."""
    if tl.program_id(0) % 3 == 0:
        for _ in range(LATE):
            tl.atomic_or(words + split, 0, sem="relaxed")
    publish(words, split, first, second, tag, C)


@triton.jit
def overwritten(words, split, first, second, tag, C: tl.constexpr):
    """By another launch: the first word of one program, the second of another one, both of a third one."""
    publish(words, split, first, second, tag, C)
    both = tl.cast(tl.program_id(0) % 3 + 1, tl.int64)  # a bit for each word
    publish(words, split, first + (both & 1), second + (both >> 1), tag ^ (both & 1 | (both & 2) << 32), C)


@triton.jit
def entropies_lost(words, split, first, second, tag, C: tl.constexpr):
    """Both words of a pair are equal in those of entropies alone, which seem to be of another launch."""
    publish(words, split, first, second, tag ^ tl.reshape(first == second, (C.ROWS,)).to(tl.int64), C)


def publish_by(fault, setattr=setattr):
    """Makes kernels publish by another function: a @triton.jit function keeps the one that it was compiled with."""
    for room in softmax, log_probs:
        setattr(room, "publish", fault)
        for name, value in list(vars(room).items()):
            if isinstance(value, triton.JITFunction) and value.fn.__module__ == room.__name__:
                setattr(room, name, triton.jit(value.fn))


FAULTS = {fault.fn.__name__: fault for fault in (split_lost, late, overwritten, entropies_lost)}
