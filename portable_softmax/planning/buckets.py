"""Buckets of problems: a launch that is chosen for one number of rows serves all similar numbers.

Two buckets per octave: launches from 2**k to 1.5 * 2**k rows, and from there to 2**(k + 1), are chosen for a number between.
"""

import math
import operator
from dataclasses import replace
from itertools import accumulate

from portable_softmax.planning.lines import Level, Lines
from portable_softmax.planning.problem import MANY_ROWS, Problem


def bucket_of(problem: Problem) -> Problem:
    """Returns the problem for which the launch of a problem is chosen: it differs in the number of rows, and in strides.

    Strides are those of tensors that are laid out alike, as far as kernels and launches depend on it. Launches whose bits may
    not depend on the number of rows have a single bucket.
    """
    lines, inner = problem.lines, problem.inner
    if problem.batch_invariant:
        n_rows = inner * MANY_ROWS  # a multiple of the rows of a level below, for fewer rows too
    elif lines is None:
        n_rows = inner * representative(problem.n_rows // inner)
    else:
        n_rows = inner * math.prod(representative(size) for size, _ in lines.levels[: 2 if lines.across else 3])
    return replace(problem, n_rows=n_rows, lines=lines and _bucket_of_lines(lines, problem.widest, problem.batch_invariant))


def representative(number: int) -> int:
    """Returns the number for which launches of a bucket of numbers are chosen."""
    octave = 1 << number.bit_length() - 1
    half = octave // 2
    if not half:
        return number
    first = octave if number < octave + half else octave + half
    return first + (half - 1) // 2


def _bucket_of_lines(lines: Lines, widest: int, is_single: bool) -> Lines:
    """Returns contiguous lines, or some that are not, with as equal strides of operands, and a mask that is shared alike."""
    sizes = [min(size, 2) if is_single else representative(size) for size, _ in lines.levels]
    if lines.across:
        sizes[2] = lines.levels[2][0]  # columns
    elif is_single:
        sizes[2] = 2
    row = lines.length + (0 if lines.out_is_contiguous else widest)
    batch, matrix, line = [*accumulate((row, *sizes[:0:-1]), operator.mul)][::-1]

    def level(at: int, step: int) -> Level:
        strides = lines.levels[at][1]
        return sizes[at], tuple(step + (stride - strides[0]) % widest for stride in strides)

    mask = lines.mask and tuple(min(stride, 2) for stride in lines.mask)
    return Lines((level(0, batch), level(1, matrix), level(2, line)), lines.length, lines.across, mask)
