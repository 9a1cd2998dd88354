"""The ending that picks, in place of the one that stores: log-probabilities of chosen elements of rows; and their gradient.

A row's numbers are known as for its log_softmax: its maximum, its sum of exponentials, and with FORM.entropy the sum of
exp(x - maximum) * (x - maximum), which is called its falls. Where programs share a row, all publish the numbers of their split,
and the last of them alone looks for those of the others: it computes what is missing itself, and nobody waits for it.

Rows are numbered as in a contiguous tensor. Each has `n_ids` chosen columns. Results are those of log_softmax there, to the
bit; 0 for an id that is `ignored`, and nan for one outside of the row.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import block_of, edges_of, past_of_split, pointers
from portable_softmax.kernels.exchange import MISSING, is_missing, publish, slots_of, swap, top_of
from portable_softmax.kernels.exponents import exp, finite, inverse_of, steep, times
from portable_softmax.kernels.fallback import reduce_again
from portable_softmax.kernels.formulas import along, finish, load, of_rows, store
from portable_softmax.kernels.held import get
from portable_softmax.kernels.scores import multiplier, unscaled
from portable_softmax.kernels.splits import across_splits, combine, combine_falls, splits_of
from portable_softmax.kernels.streamed import load_block


@triton.jit
def pick(
    picked_ptr, ids_ptr, statistics_ptr, workspace_ptr, epoch, a, b, ids, there, score, first, second, falls, tile, matrix,
    number, rows, lead, split, n_rows, n_cols, all_rows, a_stride, b_stride, factor, n_ids, ignored, FORM: tl.constexpr,
):  # fmt: skip
    """Ends with the numbers of a tile's rows, from those of the program's split of them.

    The first chosen column of each row, and its score, are known: `chosen_first`.
    """
    if FORM.splits > 1:
        slots = slots_of(workspace_ptr, tile, FORM)
        publish(slots, split, first, second, epoch, FORM)
        if FORM.entropy:
            publish(slots + FORM.slots // 2, split, falls, tl.zeros_like(falls), epoch, FORM)
    if split == FORM.splits - 1 if FORM.splits > 1 else True:
        if FORM.splits > 1:
            peak, total, all_falls = whole_rows(
                slots, epoch, a, b, rows, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM
            )
        else:
            peak, total, all_falls = first, second, falls
        write(
            picked_ptr, ids_ptr, statistics_ptr, a, b, ids, there, score, peak, total, all_falls, number, rows, lead, n_rows,
            n_cols, all_rows, a_stride, b_stride, factor, n_ids, ignored, FORM,
        )  # fmt: skip


@triton.jit
def number_of_row(matrix, rows, per_matrix, FORM: tl.constexpr):
    """Returns the number of each of a tile's rows among all rows, [rows]."""
    return rows.to(tl.int64) if FORM.flat else tl.cast(matrix, tl.int64) * per_matrix + rows


@triton.jit
def chosen_of(ids_ptr, number, at, known, n_cols, n_ids, ignored, FORM: tl.constexpr):
    """Returns (one chosen column of each row, whether it is one of the row and not ignored), [rows] each; 0 past the last."""
    known = known & (at < n_ids)
    ids = tl.load(ids_ptr + number * n_ids + at, mask=known, other=0)
    return ids, known & (ids != ignored) & (ids >= 0) & (ids < n_cols)


@triton.jit
def chosen_first(ids_ptr, number, rows, split, n_rows, n_cols, n_ids, ignored, FORM: tl.constexpr):
    """Returns `chosen_of` for the first chosen column, of none in a program that does not `write`.

    Ahead of the tile's elements: memory takes as long for this number as for all of them.
    """
    return chosen_of(ids_ptr, number, 0, (rows < n_rows) & (split == FORM.splits - 1), n_cols, n_ids, ignored, FORM)


@triton.jit
def score_at(ids, there, a, b, lead, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns the score of one column of each row, of the rank of a tile with one column."""
    cols = tl.expand_dims(ids, FORM.axis) + lead
    there = tl.expand_dims(there, FORM.axis)
    score, _ = load(a, b, cols, there, there, a_stride, b_stride, factor, FORM)
    return score


@triton.jit
def write(
    picked_ptr, ids_ptr, statistics_ptr, a, b, ids, there, score, first, second, falls, number, rows, lead, n_rows, n_cols,
    all_rows, a_stride, b_stride, factor, n_ids, ignored, FORM: tl.constexpr,
):  # fmt: skip
    """Writes the numbers of whole rows: maximum, sum, with FORM.entropy the entropy, and log-probabilities of chosen columns.

    The entropy is log(sum) - falls / sum, of two terms that are not negative. Each score is loaded a column ahead.
    """
    known = rows < n_rows
    place = statistics_ptr + number
    tl.store(place, first, mask=known)
    tl.store(place + all_rows, second, mask=known)
    if FORM.entropy:
        tl.store(place + 2 * all_rows, tl.log(second) - falls / second, mask=known)
    for at in tl.range(0, n_ids):
        result = finish(score, score, first, second, first, first, factor, FORM.axis, FORM)
        result = tl.where(tl.expand_dims(there, FORM.axis), result, float("nan"))
        result = tl.where(tl.expand_dims(ids == ignored, FORM.axis), 0.0, result)
        tl.store(tl.expand_dims(picked_ptr + number * n_ids + at, FORM.axis), result, mask=tl.expand_dims(known, FORM.axis))
        ids, there = chosen_of(ids_ptr, number, at + 1, known, n_cols, n_ids, ignored, FORM)
        score = score_at(ids, there, a, b, lead, a_stride, b_stride, factor, FORM)


@triton.jit
def whole_rows(slots, epoch, a, b, rows, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Returns (first, second, falls) of whole rows from what their programs have published; computes itself what is missing."""
    firsts, seconds, top = swap(slots, None, None, None, epoch, FORM)
    falls = firsts
    late = top == MISSING
    if FORM.entropy:
        falls, found, last = swap(slots + FORM.slots // 2, None, None, None, epoch, FORM)
        late = late | (last == MISSING)
        seconds = tl.where(found < 0, -1.0, seconds)
    if late:
        for other in tl.range(0, FORM.splits):
            if is_missing(seconds, other, FORM):
                first, second, more = reduce_again(a, b, rows, lead, other, n_rows, n_cols, a_stride, b_stride, factor, FORM)
                is_found = splits_of(FORM) == other
                firsts = tl.where(is_found, across_splits(of_rows(first), FORM), firsts)
                seconds = tl.where(is_found, across_splits(of_rows(second), FORM), seconds)
                if FORM.entropy:
                    falls = tl.where(is_found, across_splits(of_rows(more), FORM), falls)
        top = top_of(firsts, seconds, FORM)
    first, second = combine(firsts, seconds, top, factor, FORM)
    if FORM.entropy:
        whole = combine_falls(firsts, seconds, falls, first, factor, FORM)
    else:
        whole = second
    return first, second, whole


@triton.jit
def store_gradients(
    out, a, b, tile_a, edge_a, first, second, total, slope, ids_ptr, picked_ptr, number, rows, lead, split, first_col, n_rows,
    n_cols, out_stride, a_stride, n_ids, ignored, factor, FORM: tl.constexpr,
):  # fmt: skip
    """Writes the gradient of logits, from these and the numbers of their rows; `out` may be `a`.

    Of scores it is g at a chosen element, less p * (the row's sum of g), and with an entropy less p * h * (log(p) + entropy).
    """
    known = rows < n_rows
    if FORM.held:
        for k in tl.static_range(FORM.blocks):
            cols, mask = block_of(rows, first_col, lead, n_rows, n_cols, k, FORM)
            result = gradient_at(
                get(tile_a, k, FORM), cols, lead, first, second, total, slope, ids_ptr, picked_ptr, number, known, n_cols,
                n_ids, ignored, factor, FORM.axis, FORM,
            )  # fmt: skip
            store(pointers(out, cols, out_stride, FORM.axis), result, mask)
    else:
        for col in tl.range(first_col, past_of_split(first_col, n_cols, FORM), FORM.width):
            block, _b, cols, mask = load_block(a, b, rows, col, lead, n_rows, n_cols, a_stride, out_stride, factor, FORM)
            result = gradient_at(
                block, cols, lead, first, second, total, slope, ids_ptr, picked_ptr, number, known, n_cols, n_ids, ignored,
                factor, FORM.axis, FORM,
            )  # fmt: skip
            store(pointers(out, cols, out_stride, FORM.axis), result, mask)
    if FORM.unaligned:
        if split == 0:
            edge_cols, edge_mask = edges_of(rows, lead, 0, n_rows, n_cols, FORM)
            edge_result = gradient_at(
                edge_a, edge_cols, lead, first, second, total, slope, ids_ptr, picked_ptr, number, known, n_cols, n_ids,
                ignored, factor, None, FORM,
            )  # fmt: skip
            store(pointers(out, edge_cols, 0, 1), edge_result, edge_mask)


@triton.jit
def numbers_of(
    statistics_ptr, ids_ptr, picked_ptr, entropies_ptr, lses_ptr, number, known, n_cols, all_rows, n_ids, ignored,
    FORM: tl.constexpr,
):  # fmt: skip
    """Returns (maximum, sum, what p is multiplied by, what p * log(p) is), [rows] each."""
    first = tl.load(statistics_ptr + number, mask=known, other=0.0)
    second = tl.load(statistics_ptr + all_rows + number, mask=known, other=1.0)
    total = tl.zeros_like(first)
    for at in tl.range(0, n_ids):
        _, there = chosen_of(ids_ptr, number, at, known, n_cols, n_ids, ignored, FORM)
        given = tl.load(picked_ptr + number * n_ids + at, mask=known, other=0.0)  # it need not wait for ids
        total += tl.where(there, given, 0.0)
    if FORM.lse:
        total -= tl.load(lses_ptr + number, mask=known, other=0.0)
    slope = total
    if FORM.entropy:
        slope = tl.load(entropies_ptr + number, mask=known, other=0.0)
        entropy = tl.load(statistics_ptr + 2 * all_rows + number, mask=known, other=0.0)
        total = tl.where(slope == 0, total, total + slope * entropy)
    return first, second, total, slope


@triton.jit
def gradient_at(
    a, cols, lead, first, second, total, slope, ids_ptr, picked_ptr, number, known, n_cols, n_ids, ignored, factor,
    AXIS: tl.constexpr, FORM: tl.constexpr,
):  # fmt: skip
    """Returns the gradients of elements. Those of a row whose numbers have none are 0, whatever the row holds."""
    ACROSS: tl.constexpr = 1 if AXIS is None else AXIS
    fall = steep(a - along(first, AXIS), factor, ACROSS, FORM)
    inverse, rest = inverse_of(second, FORM.exact)
    p = times(exp(fall, FORM.exact), along(inverse, AXIS), along(rest, AXIS), FORM.exact)
    by = along(total, AXIS)
    if FORM.entropy:
        h = along(slope, AXIS)
        no_gradient = (by == 0) & (h == 0)
        by = by + h * (finite(fall) - tl.log(along(second, AXIS)))
    else:
        no_gradient = by == 0
    ds = tl.where(no_gradient, 0.0, -p * by)
    if FORM.many:
        for at in tl.range(0, n_ids):
            ds += given_at(cols, lead, at, ids_ptr, picked_ptr, number, known, n_cols, n_ids, ignored, AXIS, FORM)
    else:
        ds += given_at(cols, lead, 0, ids_ptr, picked_ptr, number, known, n_cols, n_ids, ignored, AXIS, FORM)
    if FORM.cap != 0:
        u = a / (multiplier(tl.expand_dims(factor, ACROSS), FORM) * FORM.cap)
        ds = ds * ((1.0 - u * u) * FORM.cap_scale)
    return unscaled(ds, p, factor, ACROSS, FORM)


@triton.jit
def given_at(
    cols, lead, at, ids_ptr, picked_ptr, number, known, n_cols, n_ids, ignored, AXIS: tl.constexpr, FORM: tl.constexpr
):
    """Returns the gradient that is given for a chosen column, at that column, and 0 elsewhere."""
    ids, there = chosen_of(ids_ptr, number, at, known, n_cols, n_ids, ignored, FORM)
    given = tl.load(picked_ptr + number * n_ids + at, mask=there, other=0.0)
    column = tl.where(there, ids, -1).to(cols.dtype)
    return tl.where(cols - lead == along(column, AXIS), along(given, AXIS), 0.0)
