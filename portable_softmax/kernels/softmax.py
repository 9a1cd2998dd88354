"""The softmax and its gradient.

A program finds its rows, reduces its columns of them to two numbers per row, exchanges these with the programs that have the
rows' other columns, and stores the results.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ELEMENTS, NEG_INF, along, append_block, columns_from, columns_of_ends, end_of_split, exp, find_tile, finite,
    first_column, fma, get_block, last_tile, load, load_per_row, opaque, opaque_column, row_mask, store,
)  # fmt: skip
from portable_softmax.kernels.exchange import combine_splits, load_partials, of_rows, publish, words_of
from portable_softmax.kernels.reduce import filled, fold, load_tile, reduce_row, sum_of_exp
from portable_softmax.kernels.scores import add_sink, find_mask, load_scores, shift, slope_of


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
        rows, head, query, exists, x_at, y_at, misalignment, row_end, present = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, C
        )
        x, y, words = x_ptr + x_at, y_ptr + y_at, words_of(words_ptr, tile, C)
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, m_col, misalignment, C)
        row_scale = load_per_row(scale, rows, exists, C.SCALE, C)
        row_temperature = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        visible_end = row_end
        if C.CAUSAL != "":
            diagonal = (n_cols - n_queries).to(tl.int32) if C.CAUSAL == "lower_right" else 0
            visible_end = tl.minimum(row_end, misalignment + tl.maximum(along(query.to(tl.int32), C) + 1 + diagonal, 0))
        split_end, visible_split_end = end_of_split(row_end, split, n_cols, C), end_of_split(visible_end, split, n_cols, C)

        # Reduce.
        if C.STEP != "map":
            if C.IN_REGISTERS:
                scores, peak = load_tile(
                    x, mask, x_col, m_col, misalignment, visible_split_end, present, row_scale, row_temperature, first, C
                )
                total = sum_of_exp(scores, finite(peak), row_temperature, C)
            else:
                peak, total, _moment, _best, _group = reduce_row(
                    x, mask, x_col, m_col, misalignment, visible_split_end, present, row_scale, row_temperature, first, C
                )
            if C.SPLITS > 1:
                publish(words, split, peak, total, epoch, C)

        if C.STEP != "reduce":
            late = not C.IN_REGISTERS
            if C.SPLITS > 1:
                peak, total, _moment, _group, late = combine_splits(
                    words, x, mask, x_col, m_col, misalignment, visible_end, present, row_scale, row_temperature, epoch, C
                )
            peak, total = add_sink(peak, total, sink_ptr, rows, exists, row_temperature, C)

            # Store.
            if late if C.IN_REGISTERS else True:
                for start in tl.range(first, tl.max(split_end), C.STREAM):
                    store_again(
                        y, x, mask, start, columns_from(start, C.STREAM, C), x_col, y_col, m_col, misalignment,
                        visible_split_end, split_end, present, row_scale, row_temperature, peak, total, BOTH, C,
                    )  # fmt: skip
            else:
                begin = opaque_column(first, C)
                for k in tl.static_range(C.BLOCKS):
                    score = opaque(get_block(scores, k, C), 2, C).to(tl.float32)
                    columns = columns_from(begin + k * C.BLOCK, C.BLOCK, C)
                    result = result_of(score, peak, total, row_temperature, C)
                    store(y, result, columns, y_col, misalignment, split_end, present, C.EDGES >> 2 * k & 3, C)
            if split == 0 if C.UNALIGNED else False:
                store_again(
                    y, x, mask, 0, columns_of_ends(row_end, C), x_col, y_col, m_col, misalignment, visible_end, row_end,
                    present, row_scale, row_temperature, peak, total, ELEMENTS, C,
                )  # fmt: skip


@triton.jit
def store_again(
    y, x, mask, start, columns, x_col, y_col, m_col, misalignment, visible_end, row_end, present, scale, temperature,
    peak, total, EDGE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Stores the results of columns that are loaded a second time."""
    score = load_scores(x, mask, start, columns, x_col, m_col, misalignment, visible_end, present, scale, temperature, EDGE, C)
    store(y, result_of(score, peak, total, temperature, C), columns, y_col, misalignment, row_end, present, EDGE, C)


@triton.jit
def result_of(score, peak, total, temperature, C: tl.constexpr):
    """Returns the results of scores from the maximum and sum of their rows; EXACT takes a compensated reciprocal."""
    shifted = shift(score, peak, temperature, C)
    e, factor = exp(shifted, C), 1.0 / total
    if C.LOG:
        result = shifted - tl.log(total)
    elif C.EXACT:
        result = fma(e, factor, e * (fma(-factor, total, 1.0, C) * factor), C)
    elif C.FUSED:
        result = e * factor
    else:
        result = e / total
    return result


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
        rows, _head, _query, exists, dy_at, y_at, misalignment, row_end, present = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, dy_batch, dy_head, dy_query, C
        )
        dy, y, dx = dy_ptr + dy_at, y_ptr + y_at, dx_ptr + y_at
        x = x_ptr + y_at if C.CAP != 0.0 else y
        row_scale = load_per_row(scale, rows, exists, C.SCALE, C)
        row_temperature = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        split_end, words = end_of_split(row_end, split, n_cols, C), words_of(words_ptr, tile, C)

        # Reduce.
        if C.STEP != "map":
            if C.IN_REGISTERS:
                dys = None
                ys = None
                sums = None
                for k in tl.static_range(C.BLOCKS):
                    columns = columns_from(first + k * C.BLOCK, C.BLOCK, C)
                    a, b = load_pair(dy, y, columns, dy_col, y_col, misalignment, split_end, present, C.EDGES >> 2 * k & 3, C)
                    dys = append_block(dys, a.to(dy.dtype.element_ty) if C.AS_LOADED != "" else a, C)
                    ys = append_block(ys, b.to(y.dtype.element_ty) if C.AS_LOADED != "" else b, C)
                    terms = a if C.LOG else a * b
                    sums = terms if k == 0 else sums + terms
                total = tl.sum(sums, C.AXIS, keep_dims=True)
            else:
                total = reduce_gradient(dy, y, dy_col, y_col, misalignment, split_end, present, first, C)
            if C.SPLITS > 1:
                publish(words, split, total, total, epoch, C)

        if C.STEP != "reduce":
            late = not C.IN_REGISTERS
            if C.SPLITS > 1:
                _, totals, _, arrived = load_partials(words, epoch, C)
                late = arrived == 0
                if late if C.STEP == "" else False:
                    total = reduce_gradient(dy, y, dy_col, y_col, misalignment, row_end, present, 0, C)
                else:
                    total = of_rows(tl.sum(totals, 0, keep_dims=True), C)

            # Store.
            if late if C.IN_REGISTERS else True:
                for start in tl.range(first, tl.max(split_end), C.STREAM):
                    map_again(
                        dx, dy, y, total, x, columns_from(start, C.STREAM, C), dy_col, y_col, misalignment, split_end, present,
                        row_scale, row_temperature, BOTH, C,
                    )  # fmt: skip
            else:
                begin = opaque_column(first, C)
                for k in tl.static_range(C.BLOCKS):
                    a = opaque(get_block(dys, k, C), 2, C).to(tl.float32)
                    b = opaque(get_block(ys, k, C), 2, C).to(tl.float32)
                    store_gradient(
                        dx, a, b, total, x, columns_from(begin + k * C.BLOCK, C.BLOCK, C), y_col, misalignment, split_end,
                        present, row_scale, row_temperature, C.EDGES >> 2 * k & 3, C,
                    )  # fmt: skip
            if split == 0 if C.UNALIGNED else False:
                map_again(
                    dx, dy, y, total, x, columns_of_ends(row_end, C), dy_col, y_col, misalignment, row_end, present, row_scale,
                    row_temperature, ELEMENTS, C,
                )  # fmt: skip


@triton.jit
def map_again(
    dx, dy, y, total, x, columns, dy_col, y_col, misalignment, row_end, present, scale, temperature, EDGE: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """Stores the gradient of columns that are loaded a second time."""
    a, b = load_pair(dy, y, columns, dy_col, y_col, misalignment, row_end, present, EDGE, C)
    store_gradient(dx, a, b, total, x, columns, y_col, misalignment, row_end, present, scale, temperature, EDGE, C)


@triton.jit
def load_pair(dy, y, columns, dy_col, y_col, misalignment, row_end, present, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns dy and y of a block; 0 where the row has no element."""
    a = load(dy, columns, dy_col, misalignment, row_end, present, EDGE, C)
    b = load(y, columns, y_col, misalignment, row_end, present, EDGE, C)
    if C.UNALIGNED and EDGE > 0:
        mask = row_mask(columns, misalignment, row_end, present, EDGE, C)
        a, b = tl.where(mask, a, 0.0), tl.where(mask, b, 0.0)
    return a, b


@triton.jit
def reduce_gradient(dy, y, dy_col, y_col, misalignment, row_end, present, first, C: tl.constexpr):
    """Returns the sum of dy * y, or of dy with LOG, over columns from `first` on, a block at a time."""
    sums = filled(0.0, C.LANES, C)
    for start in tl.range(first, tl.max(row_end), C.STREAM):
        columns = columns_from(start, C.STREAM, C)
        a, b = load_pair(dy, y, columns, dy_col, y_col, misalignment, row_end, present, BOTH, C)
        sums += tl.sum(fold(a if C.LOG else a * b, C), C.AXIS)
    return tl.sum(sums, C.AXIS, keep_dims=True)


@triton.jit
def store_gradient(
    dx, dy, y, total, x, columns, x_col, misalignment, row_end, present, scale, temperature, EDGE: tl.constexpr, C: tl.constexpr
):
    """Stores the gradient of x at some columns."""
    ds = dy - exp(y, C) * total if C.LOG else y * (dy - total)
    slope = slope_of(scale, temperature, C)
    if C.CAP != 0.0:
        size = tl.abs(load(x, columns, x_col, misalignment, row_end, present, EDGE, C) * scale)
        e = tl.exp2(size * (-2.885390081777927 / C.CAP)) if C.FUSED else tl.exp(size * (-2.0 / C.CAP))
        slope = slope * (4.0 * e / ((1.0 + e) * (1.0 + e)))  # 1 - tanh**2, which would cancel
    ds = tl.where(temperature == 0, 0.0, ds * slope) if C.TEMPERATURE != "" else ds * slope
    if C.MASKED_GRADIENT != "":  # what a mask hides has no weight, and rows that it hides wholly are nan
        none = NEG_INF if C.LOG else 0.0
        ds = tl.where(y > none if C.MASKED_GRADIENT == "rows" else y != none, ds, 0.0)
    store(dx, ds, columns, x_col, misalignment, row_end, present, EDGE, C)
