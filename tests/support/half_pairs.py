"""Publishes one of the two words that a program publishes for each row; see kernels/exchange.py."""

import triton
import triton.language as tl

from portable_softmax.kernels.exchange import of_rows, word


@triton.jit
def publish_half(words_ptr, part, numbers, launch, half, FORM: tl.constexpr):
    """Writes the first numbers of a part of each row, half 0, or the second ones, half 1."""
    ROWS: tl.constexpr = numbers.shape[0]
    rows = words_ptr + (half * FORM.parts + part) * ROWS + tl.arange(0, ROWS)
    tl.atomic_xchg(
        words_ptr + 2 * part + half if ROWS == 1 else rows, word(of_rows(numbers), launch >> (32 * half)), sem="relaxed"
    )
