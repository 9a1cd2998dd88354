"""The two statistics of rows that are sharded over devices: one launch reduces a shard to them, one computes the results.

In between, the devices exchange the statistics. Both launches read a shard tile by tile, so any shape of a tile is right for
row. Statistics are [groups, 2, rows] in the type of the arithmetic: (first, second) of each group as in formulas.py. A
gradient has no second one: [groups, 1, rows].
"""

import triton
import triton.language as tl

from portable_softmax.kernels.exponents import add

GROUPS = tl.constexpr(8)  # groups whose statistics are loaded at once


@triton.jit
def store_statistics(ptr, matrix, rows, n_rows, per_matrix, matrices, first, second, FORM: tl.constexpr):
    """Stores the statistics of a tile's rows, as those of one group."""
    place = ptr + (rows if FORM.flat else matrix * per_matrix + rows)
    tl.store(place, first, mask=rows < n_rows)
    if not FORM.backward:
        tl.store(place + per_matrix * matrices, second, mask=rows < n_rows)


@triton.jit
def whole_of(ptr, matrix, rows, n_rows, per_matrix, matrices, n_groups, FORM: tl.constexpr):
    """Returns (first, second) of a tile's whole rows from the statistics of all groups."""
    NUMBERS: tl.constexpr = 1 if FORM.backward else 2
    all_rows = per_matrix * matrices
    place, known = ptr + (rows if FORM.flat else matrix * per_matrix + rows), rows < n_rows
    first = tl.full((known.shape[0],), 0.0 if FORM.backward else -float("inf"), FORM.compute)
    second = tl.zeros((known.shape[0],), FORM.compute)
    for start in tl.range(0, n_groups, GROUPS):
        groups = tl.expand_dims(start + tl.arange(0, GROUPS), 1)
        ptrs = tl.expand_dims(place, 0) + groups * (NUMBERS * all_rows)
        mask = (groups < n_groups) & tl.expand_dims(known, 0)
        if FORM.backward:
            first += tl.sum(tl.load(ptrs, mask=mask, other=0.0), axis=0)
        else:
            firsts = tl.load(ptrs, mask=mask, other=-float("inf"))
            seconds = tl.load(ptrs + all_rows, mask=mask, other=0.0)
            first, second = add(first, second, firsts, seconds, None, 0, FORM)
    return first, second
