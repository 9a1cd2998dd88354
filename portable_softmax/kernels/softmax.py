"""The softmax and its gradient.

A program finds its rows, reduces its columns of them to two numbers per row, exchanges these with the programs that have the
rows' other columns, and stores the results.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ENDS, NEG_INF, end_of_split, exp, find_tile, finite, first_column, fma, get, hidden, last_tile,
    load, load_per_row, of_row, opaque, places, places_of_ends, put, store, times,
)  # fmt: skip
from portable_softmax.kernels.exchange import MISSING, left_behind, look, of_rows, of_splits, publish, words_of
from portable_softmax.kernels.scores import (
    add_powers, add_sink, causal_past, fall_of, filled, find_mask, in_lanes, load_scores, load_tile, reduce_row, slope_of,
)  # fmt: skip


@triton.jit
def softmax_kernel(
    y_ptr, x_ptr, mask_ptr, scale, temperature, sink_ptr, words_ptr,  # None for what there is not
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, x_col, m_batch, m_head, m_query, m_col,
    epoch, C: tl.constexpr,
):  # fmt: skip
    """y = softmax(scores of x), or its logarithm."""
    n_cols, n_queries, x_col = n_cols * C.ROW_UNIT, n_queries * C.COL_UNIT, x_col * C.COL_UNIT
    y_col = x_col if C.OUT_LIKE_X else n_queries
    split, group = tl.program_id(0) % C.SPLITS, tl.program_id(0) // C.SPLITS
    first = first_column(split, n_cols, C)
    for tile in tl.range(group, last_tile(group, n_rows, n_queries, C), tl.num_programs(0) // C.SPLITS if C.WALK else 1):
        rows, head, query, exists, x_at, y_at, lead, past, there = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, C
        )
        x, y = x_ptr + x_at, y_ptr + y_at
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, m_col, lead, C)
        by = load_per_row(scale, rows, exists, C.SCALE, C)
        heat = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        seen = causal_past(query, n_cols, n_queries, lead, past, C)
        end, seen_end = end_of_split(past, split, n_cols, C), end_of_split(seen, split, n_cols, C)
        words = words_of(words_ptr, tile, C)

        # Reduce.
        if C.STEP != "map":
            if C.IN_REGISTERS:
                scores, peak = load_tile(x, mask, x_col, m_col, lead, seen_end, there, by, heat, first, C)
                base = finite(peak)
                powers, total, _ = add_powers(scores, base, heat, C)
            else:
                peak, total, _ = reduce_row(x, mask, x_col, m_col, lead, seen_end, there, by, heat, first, C)
            if C.SPLITS > 1:
                publish(words, split, peak, total, epoch, C)

        if C.STEP != "reduce":
            late = not C.IN_REGISTERS
            if C.SPLITS > 1:
                peak, total, _, late = of_splits(words, x, mask, x_col, m_col, lead, seen, there, by, heat, epoch, C)
            peak, total = add_sink(peak, total, sink_ptr, rows, exists, heat, C)

            # Store.
            if late if C.IN_REGISTERS else True:
                for column in tl.range(first, tl.max(end), C.STREAM):
                    place = places(column, C.STREAM, C)
                    again = load_scores(x, mask, column, place, x_col, m_col, lead, seen_end, there, by, heat, BOTH, C)
                    store(y, result_of(again, peak, total, heat, C), place, y_col, lead, end, there, BOTH, C)
            else:
                factor, rest = factor_of(base, peak, total, heat, C)
                begin = opaque(first, C)
                for k in tl.static_range(C.BLOCKS):
                    if C.LOG or C.AS_LOADED != "":
                        result = result_of(hidden(get(scores, k, C), 2, C).to(tl.float32), peak, total, heat, C)
                    else:
                        result = times(get(powers, k, C), factor, rest, C)
                    place = places(begin + k * C.BLOCK, C.BLOCK, C)
                    store(y, result, place, y_col, lead, end, there, 2 * (k == 0) + (k >= C.WHOLE), C)
            if split == 0 if C.UNALIGNED else False:
                ends = places_of_ends(past, C)
                s_ends = load_scores(x, mask, 0, ends, x_col, m_col, lead, seen, there, by, heat, ENDS, C)
                store(y, result_of(s_ends, peak, total, heat, C), ends, y_col, lead, past, there, ENDS, C)


@triton.jit
def factor_of(base, peak, total, temperature, C: tl.constexpr):
    """Returns exp(base - peak) / total and, for EXACT, its rounding error: what makes a softmax of exp(score - base).

    Without FUSED it returns exp(base - peak) and total.

    A split that is all -inf has a base of 0, which may be above the maximum: then any factor is right.
    """
    factor = 1.0 / total
    rest = fma(-factor, total, 1.0) * factor if C.EXACT else factor
    if C.SPLITS > 1 or C.SINK:
        down = exp(fall_of(tl.minimum(base - peak, 0.0), 0.0, temperature, C), C)
        inverse = factor
        factor = down * inverse
        rest = fma(down, inverse, -factor) + down * rest if C.EXACT else factor
        if not C.FUSED:
            factor = down
    if not C.FUSED:
        rest = total
    return factor, rest


@triton.jit
def result_of(score, peak, total, temperature, C: tl.constexpr):
    """Returns the results of scores from the maximum and sum of their rows."""
    fall = fall_of(score, peak, temperature, C)
    factor, rest = factor_of(peak, peak, total, temperature, C)
    return fall - tl.log(total) if C.LOG else times(exp(fall, C), factor, rest, C)


# ---------------------------------------------------------------- gradient
@triton.jit
def softmax_backward_kernel(
    dx_ptr, dy_ptr, y_ptr, x_ptr, scale, temperature, words_ptr,
    n_rows, n_cols, n_heads, n_queries, dy_batch, dy_head, dy_query, dy_col, epoch, C: tl.constexpr,
):  # fmt: skip
    """dx = y * (dy - sum(dy * y)), or dy - exp(y) * sum(dy) with LOG, times the derivative of scores.

    y and dx are contiguous, or have the strides of dy; so has x, which a CAP alone needs.
    """
    n_cols, n_queries, dy_col = n_cols * C.ROW_UNIT, n_queries * C.COL_UNIT, dy_col * C.COL_UNIT
    y_col = dy_col if C.OUT_LIKE_X else n_queries
    split, group = tl.program_id(0) % C.SPLITS, tl.program_id(0) // C.SPLITS
    first = first_column(split, n_cols, C)
    for tile in tl.range(group, last_tile(group, n_rows, n_queries, C), tl.num_programs(0) // C.SPLITS if C.WALK else 1):
        rows, _head, _query, exists, dy_at, y_at, lead, past, there = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, dy_batch, dy_head, dy_query, C
        )
        dy, y, dx = dy_ptr + dy_at, y_ptr + y_at, dx_ptr + y_at
        x = x_ptr + y_at if C.CAP != 0.0 else y
        by = load_per_row(scale, rows, exists, C.SCALE, C)
        heat = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        end, words = end_of_split(past, split, n_cols, C), words_of(words_ptr, tile, C)

        # Reduce.
        if C.STEP != "map":
            if C.IN_REGISTERS:
                kept_dy = None
                kept_y = None
                sums = None
                for k in tl.static_range(C.BLOCKS):
                    place = places(first + k * C.BLOCK, C.BLOCK, C)
                    a, b = load_pair(dy, y, place, dy_col, y_col, lead, end, there, 2 * (k == 0) + (k >= C.WHOLE), C)
                    kept_dy = put(kept_dy, a.to(dy.dtype.element_ty) if C.AS_LOADED != "" else a, C)
                    kept_y = put(kept_y, b.to(y.dtype.element_ty) if C.AS_LOADED != "" else b, C)
                    terms = a if C.LOG else a * b
                    sums = terms if k == 0 else sums + terms
                total = tl.sum(sums, C.AXIS, keep_dims=True)
            else:
                total = reduce_gradient(dy, y, dy_col, y_col, lead, end, there, first, C)
            if C.SPLITS > 1:
                publish(words, split, total, total, epoch, C)

        if C.STEP != "reduce":
            late = not C.IN_REGISTERS
            if C.SPLITS > 1:
                _, totals, highest = look(words, epoch, C) if C.STEP == "" else left_behind(words, C)
                late = tl.max(highest) == MISSING
                if late if C.STEP == "" else False:
                    total = reduce_gradient(dy, y, dy_col, y_col, lead, past, there, 0, C)
                else:
                    total = of_rows(tl.sum(totals, 0, keep_dims=True), C)

            # Store.
            if late if C.IN_REGISTERS else True:
                for column in tl.range(first, tl.max(end), C.STREAM):
                    block = places(column, C.STREAM, C)
                    dy_again, y_again = load_pair(dy, y, block, dy_col, y_col, lead, end, there, BOTH, C)
                    dx_again = gradient(dy_again, y_again, total, x, block, y_col, lead, end, there, by, heat, BOTH, C)
                    store(dx, dx_again, block, y_col, lead, end, there, BOTH, C)
            else:
                begin = opaque(first, C)
                for k in tl.static_range(C.BLOCKS):
                    place = places(begin + k * C.BLOCK, C.BLOCK, C)
                    a, b = hidden(get(kept_dy, k, C), 2, C).to(tl.float32), hidden(get(kept_y, k, C), 2, C).to(tl.float32)
                    ds = gradient(a, b, total, x, place, y_col, lead, end, there, by, heat, 2 * (k == 0) + (k >= C.WHOLE), C)
                    store(dx, ds, place, y_col, lead, end, there, 2 * (k == 0) + (k >= C.WHOLE), C)
            if split == 0 if C.UNALIGNED else False:
                ends = places_of_ends(past, C)
                dy_ends, y_ends = load_pair(dy, y, ends, dy_col, y_col, lead, past, there, ENDS, C)
                dx_ends = gradient(dy_ends, y_ends, total, x, ends, y_col, lead, past, there, by, heat, ENDS, C)
                store(dx, dx_ends, ends, y_col, lead, past, there, ENDS, C)


@triton.jit
def load_pair(dy, y, place, dy_col, y_col, lead, past, there, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns dy and y of a block; 0 where the row has no element."""
    a = load(dy, place, dy_col, lead, past, there, 0.0, EDGE, C)
    b = load(y, place, y_col, lead, past, there, 0.0, EDGE, C)
    if C.UNALIGNED and EDGE > 0:
        row = of_row(place, lead, past, there, EDGE, C)
        a, b = tl.where(row, a, 0.0), tl.where(row, b, 0.0)
    return a, b


@triton.jit
def reduce_gradient(dy, y, dy_col, y_col, lead, past, there, first, C: tl.constexpr):
    """Returns the sum of dy * y, or of dy with LOG, over columns from `first` on, a block at a time."""
    sums = filled(0.0, C)
    for column in tl.range(first, tl.max(past), C.STREAM):
        a, b = load_pair(dy, y, places(column, C.STREAM, C), dy_col, y_col, lead, past, there, BOTH, C)
        sums += tl.sum(in_lanes(a if C.LOG else a * b, C), C.AXIS)
    return tl.sum(sums, C.AXIS, keep_dims=True)


@triton.jit
def gradient(dy, y, total, x, place, x_col, lead, past, there, scale, temperature, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns the gradient of x at some elements."""
    dx = dy - exp(y, C) * total if C.LOG else y * (dy - total)
    slope = slope_of(scale, temperature, C)
    if C.CAP != 0.0:
        size = tl.abs(load(x, place, x_col, lead, past, there, 0.0, EDGE, C) * scale)
        e = tl.exp2(size * (-2.885390081777927 / C.CAP)) if C.FUSED else tl.exp(size * (-2.0 / C.CAP))
        slope = slope * (4.0 * e / ((1.0 + e) * (1.0 + e)))  # 1 - tanh**2, which would cancel
    dx = tl.where(temperature == 0, 0.0, dx * slope) if C.TEMPERATURE != "" else dx * slope
    if C.MASKED_GRADIENT != "":  # what a mask hides has no weight, and rows that it hides wholly are nan
        none = NEG_INF if C.LOG else 0.0
        dx = tl.where(y > none if C.MASKED_GRADIENT == "rows" else y != none, dx, 0.0)
    return dx
