"""The softmax and its gradient.

A program finds its rows, reduces its columns of them to two numbers per row, exchanges these with the programs that have the
rows' other columns, and stores the results. Columns are reduced in registers, or block by block; so are all of a row where the
words of other programs did not arrive, WHOLE.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ELEMENTS, NEG_INF, append_block, columns_from, columns_of_ends, end_of_split, exp, find_tile, finite, first_column,
    fma, get_block, last_tile, load, load_per_row, offsets_of, offsets_of_result, opaque, opaque_column, row_mask, store,
)  # fmt: skip
from portable_softmax.kernels.exchange import combine_splits, load_partials, of_rows, publish, words_of
from portable_softmax.kernels.reduce import add_block, fold, merge_row, no_statistics, sum_of_exp
from portable_softmax.kernels.scores import add_sink, find_mask, load_mask, load_scores, shift, slope_of


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
        rows, head, query, exists, x_at, misalignment = find_tile(tile, n_rows, n_heads, n_queries, x_batch, x_head, x_query, C)
        y_at = x_at if C.OUT_LIKE_X else offsets_of_result(rows, head, query, n_queries, n_cols, C)
        x, y, words = x_ptr + x_at, y_ptr + y_at, words_of(words_ptr, tile, C)
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, C)
        row_scale = load_per_row(scale, rows, exists, C.SCALE, C)
        row_temperature = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        row_end = misalignment + n_cols
        visible_end = row_end
        if C.CAUSAL != "":
            diagonal = (n_cols - n_queries).to(tl.int32) if C.CAUSAL == "lower_right" else 0
            visible_end = tl.minimum(row_end, misalignment + tl.maximum(query.to(tl.int32) + 1 + diagonal, 0))
        split_end, visible_split_end = end_of_split(row_end, split, n_cols, C), end_of_split(visible_end, split, n_cols, C)

        # Reduce: what is in registers, or block by block; all of the row block by block where words did not arrive.
        late = False
        if C.IN_REGISTERS:
            scores = None
            highest = None
            for k in tl.static_range(C.BLOCKS):
                columns_k, shown_k, vectors_k, added_k = load_mask(
                    mask, first + k * C.BLOCK, m_col, misalignment, visible_split_end, exists, C.EDGES >> 2 * k & 3, C
                )
                x_k = x + offsets_of(columns_k, x_col, C)
                score_k = load_scores(x_k, added_k, shown_k, vectors_k, row_scale, row_temperature, C)
                scores = append_block(scores, score_k.to(x.dtype.element_ty) if C.AS_LOADED != "" else score_k, C)
                highest = score_k if k == 0 else tl.maximum(highest, score_k)
            peak = tl.max(highest, C.AXIS, keep_dims=True)
            total = sum_of_exp(scores, finite(peak), row_temperature, C)
        for WHOLE in tl.static_range(2):  # 0: the split, unless it is in registers; 1: the whole row, if words are late
            if C.EXCHANGES if WHOLE else C.STREAMS:
                if late if WHOLE else True:
                    end = visible_end if WHOLE else visible_split_end
                    begin = 0 if WHOLE else first
                    stop = begin + tl.maximum(tl.min(end) - begin, 0) // C.BLOCK * C.BLOCK
                    peaks, sums, moments, best, at = no_statistics(C)
                    for MASKED in tl.static_range(2):  # blocks within all rows, then others; 2 is START
                        for start in tl.range(begin, stop, C.BLOCK):
                            columns, shown, vectors, added = load_mask(
                                mask, start, m_col, misalignment, end, exists, C.EDGES & 2 | MASKED, C
                            )
                            ptrs = x + offsets_of(columns, x_col, C)
                            score = load_scores(ptrs, added, shown, vectors, row_scale, row_temperature, C)
                            peaks, sums, moments, _top, _part = add_block(
                                score, peaks, sums, moments, row_temperature, False, C
                            )
                        begin, stop = stop, tl.max(end)
                    peak, total, _moment, _best, _group = merge_row(peaks, sums, moments, best, at, row_temperature, C)
            if C.SPLITS > 1 and WHOLE == 0:
                if C.STEP != "map":
                    publish(words, split, peak, total, epoch, C)
                if C.STEP != "reduce":
                    peak, total, _moment, _group, late = combine_splits(words, row_temperature, epoch, C)

        # Store: what is in registers; else blocks that are loaded again.
        if C.STEP != "reduce":
            peak, total = add_sink(peak, total, sink_ptr, rows, exists, row_temperature, C)
            for EDGE in tl.static_range(BOTH, ELEMENTS + 1 if C.UNALIGNED else ELEMENTS, ELEMENTS - BOTH):
                if (split == 0) if EDGE == ELEMENTS else (late if C.IN_REGISTERS else True):
                    for start in tl.range(first, first + 1 if EDGE == ELEMENTS else tl.max(split_end), C.BLOCK):
                        where = columns_of_ends(row_end, C) if EDGE == ELEMENTS else opaque_column(start, C)
                        columns, shown, vectors, added = load_mask(
                            mask, where, m_col, misalignment, visible_end, exists, EDGE, C
                        )
                        ptrs = x + offsets_of(columns, x_col, C)
                        score = load_scores(ptrs, added, shown, vectors, row_scale, row_temperature, C)
                        result = result_of(score, peak, total, row_temperature, C)
                        store(y + offsets_of(columns, y_col, C), result, columns, misalignment, row_end, exists, EDGE, C)
                elif EDGE < ELEMENTS:
                    begin = opaque_column(first, C)
                    for k in tl.static_range(C.BLOCKS):
                        columns_k = columns_from(begin + k * C.BLOCK, C.BLOCK, C)
                        score_k = opaque(get_block(scores, k, C), 2, C).to(tl.float32)
                        result_k = result_of(score_k, peak, total, row_temperature, C)
                        ptrs_k = y + offsets_of(columns_k, y_col, C)
                        store(ptrs_k, result_k, columns_k, misalignment, split_end, exists, C.EDGES >> 2 * k & 3, C)


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
        rows, head, query, exists, dy_at, misalignment = find_tile(
            tile, n_rows, n_heads, n_queries, dy_batch, dy_head, dy_query, C
        )
        y_at = dy_at if C.OUT_LIKE_X else offsets_of_result(rows, head, query, n_queries, n_cols, C)
        dy, y, dx = dy_ptr + dy_at, y_ptr + y_at, dx_ptr + y_at
        x = x_ptr + y_at if C.CAP != 0.0 else y
        row_scale = load_per_row(scale, rows, exists, C.SCALE, C)
        row_temperature = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        row_end, words = misalignment + n_cols, words_of(words_ptr, tile, C)
        split_end = end_of_split(row_end, split, n_cols, C)

        # Reduce, as above.
        late = False
        if C.IN_REGISTERS:
            dys = None
            ys = None
            sums = None
            for k in tl.static_range(C.BLOCKS):
                columns_k = columns_from(first + k * C.BLOCK, C.BLOCK, C)
                dy_k = load(dy, columns_k, dy_col, misalignment, split_end, exists, C.EDGES >> 2 * k & 3, C)
                y_k = load(y, columns_k, y_col, misalignment, split_end, exists, C.EDGES >> 2 * k & 3, C)
                dys = append_block(dys, dy_k.to(dy.dtype.element_ty) if C.AS_LOADED != "" else dy_k, C)
                ys = append_block(ys, y_k.to(y.dtype.element_ty) if C.AS_LOADED != "" else y_k, C)
                terms = dy_k if C.LOG else dy_k * y_k
                if C.UNALIGNED:
                    inside = row_mask(columns_k, misalignment, split_end, exists, C.EDGES >> 2 * k & 3, C)
                    terms = tl.where(inside, terms, 0.0)
                sums = terms if k == 0 else sums + terms
            total = tl.sum(sums, C.AXIS, keep_dims=True)
        for WHOLE in tl.static_range(2):
            if C.EXCHANGES if WHOLE else C.STREAMS:
                if late if WHOLE else True:
                    end = row_end if WHOLE else split_end
                    _peaks, parts, _moments, _best, _at = no_statistics(C)
                    for start in tl.range(0 if WHOLE else first, tl.max(end), C.BLOCK):
                        columns = columns_from(start, C.BLOCK, C)
                        a = load(dy, columns, dy_col, misalignment, end, exists, BOTH, C)
                        b = load(y, columns, y_col, misalignment, end, exists, BOTH, C)
                        terms_block = a if C.LOG else a * b
                        if C.UNALIGNED:
                            terms_block = tl.where(row_mask(columns, misalignment, end, exists, BOTH, C), terms_block, 0.0)
                        parts += tl.sum(fold(terms_block, C), C.AXIS)
                    total = tl.sum(parts, C.AXIS, keep_dims=True)
            if C.SPLITS > 1 and WHOLE == 0:
                if C.STEP != "map":
                    publish(words, split, total, total, epoch, C)
                if C.STEP != "reduce":
                    _firsts, totals, _highest, arrived = load_partials(words, epoch, C)
                    total, late = of_rows(tl.sum(totals, 0, keep_dims=True), C), arrived == 0

        # Store, as above.
        if C.STEP != "reduce":
            for EDGE in tl.static_range(BOTH, ELEMENTS + 1 if C.UNALIGNED else ELEMENTS, ELEMENTS - BOTH):
                if (split == 0) if EDGE == ELEMENTS else (late if C.IN_REGISTERS else True):
                    for start in tl.range(first, first + 1 if EDGE == ELEMENTS else tl.max(split_end), C.BLOCK):
                        columns = (
                            columns_of_ends(row_end, C)
                            if EDGE == ELEMENTS
                            else columns_from(opaque_column(start, C), C.BLOCK, C)
                        )
                        a = load(dy, columns, dy_col, misalignment, row_end, exists, EDGE, C)
                        b = load(y, columns, y_col, misalignment, row_end, exists, EDGE, C)
                        c = load(x, columns, y_col, misalignment, row_end, exists, EDGE, C) if C.CAP != 0.0 else b
                        ds = gradient_of(a, b, c, total, row_scale, row_temperature, C)
                        store(dx + offsets_of(columns, y_col, C), ds, columns, misalignment, row_end, exists, EDGE, C)
                elif EDGE < ELEMENTS:
                    begin = opaque_column(first, C)
                    for k in tl.static_range(C.BLOCKS):
                        columns_k = columns_from(begin + k * C.BLOCK, C.BLOCK, C)
                        dy_k = opaque(get_block(dys, k, C), 2, C).to(tl.float32)
                        y_k = opaque(get_block(ys, k, C), 2, C).to(tl.float32)
                        x_k = y_k
                        if C.CAP != 0.0:
                            x_k = load(x, columns_k, y_col, misalignment, split_end, exists, C.EDGES >> 2 * k & 3, C)
                        ds_k = gradient_of(dy_k, y_k, x_k, total, row_scale, row_temperature, C)
                        ptrs_k = dx + offsets_of(columns_k, y_col, C)
                        store(ptrs_k, ds_k, columns_k, misalignment, split_end, exists, C.EDGES >> 2 * k & 3, C)


@triton.jit
def gradient_of(dy, y, x, total, scale, temperature, C: tl.constexpr):
    """Returns dx from dy, y and the sum per row."""
    ds = dy - exp(y, C) * total if C.LOG else y * (dy - total)
    slope = slope_of(scale, temperature, C)
    if C.CAP != 0.0:
        size = tl.abs(x * scale)
        e = tl.exp2(size * (-2.885390081777927 / C.CAP)) if C.FUSED else tl.exp(size * (-2.0 / C.CAP))
        slope = slope * (4.0 * e / ((1.0 + e) * (1.0 + e)))  # 1 - tanh**2, which would cancel
    ds *= slope
    if C.TEMPERATURE != "":
        ds = tl.where(temperature == 0, 0.0, ds)
    if C.MASKED_GRADIENT != "":  # what a mask hides has no weight, and rows that it hides wholly are nan
        none = NEG_INF if C.LOG else 0.0
        ds = tl.where(y > none if C.MASKED_GRADIENT == "rows" else y != none, ds, 0.0)
    return ds
