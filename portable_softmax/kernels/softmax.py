"""The softmax and its gradient.

A program finds its rows, reduces its columns of them to two numbers per row, exchanges these with the programs that have the
rows' other columns, and stores the results. Columns are reduced in registers or block by block; whole rows, if words are late.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ENDS, NEG_INF, START, append_block, end_of_split, exp, find_block, find_tile, finite, first_column, fma, get_block,
    load, load_per_row, offsets_of, offsets_of_result, opaque, opaque_column, store, tiles_of_program,
)  # fmt: skip
from portable_softmax.kernels.exchange import combine_splits, publish, words_of
from portable_softmax.kernels.reduce import add_block, fold, merge_row, no_statistics
from portable_softmax.kernels.scores import add_sink, find_mask, locate, load_scores, shift, slope_of


@triton.jit
def softmax_kernel(
    result_ptr, x_ptr, mask_ptr, scale, temperature, sink_ptr, dy_ptr, y_ptr, words_ptr,  # None for what there is not
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, x_col, m_batch, m_head, m_query, m_col,
    tag, C: tl.constexpr,
):  # fmt: skip
    """y = softmax(scores of x), or its logarithm; with GRADIENT dx from dy, the strides of which are passed, and y.

    dx = y * (dy - sum(dy * y)), or dy - exp(y) * sum(dy) with LOG, times the derivative of scores. y and the result are
    contiguous, or have the strides that are passed; so has x of a gradient, which a CAP alone needs.
    """
    n_cols, n_queries, x_col = n_cols * C.ROW_UNIT, n_queries * C.COL_UNIT, x_col * C.COL_UNIT
    y_col = x_col if C.OUT_LIKE_X else n_queries
    BY_BLOCK: tl.constexpr = not C.IN_REGISTERS and C.STEP != "map"  # else in registers, or by another launch
    split, own_tile, end_tile, step = tiles_of_program(n_rows, n_queries, C)
    first = first_column(split, n_cols, C)
    for tile in tl.range(own_tile, end_tile, step):
        rows, head, query, exists, x_at, misalignment = find_tile(tile, n_rows, n_heads, n_queries, x_batch, x_head, x_query, C)
        y_at = offsets_of_result(x_at, rows, head, query, n_queries, n_cols, C)
        out, words = result_ptr + y_at, words_of(words_ptr, tile, C)
        if C.GRADIENT:
            source, y, x = dy_ptr + x_at, y_ptr + y_at, y_ptr + y_at  # x is read with a CAP alone
            if C.CAP != 0.0:
                x = x_ptr + y_at
        else:
            source = x_ptr + x_at
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, C)
        scales = load_per_row(scale, rows, exists, C.SCALE, C)
        temperatures = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        row_end = misalignment + n_cols
        visible_end = row_end
        if C.CAUSAL != "":
            diagonal = (n_cols - n_queries).to(tl.int32) if C.CAUSAL == "lower_right" else 0
            visible_end = tl.minimum(row_end, misalignment + tl.maximum(query.to(tl.int32) + 1 + diagonal, 0))
        split_end, visible_split_end = end_of_split(row_end, split, n_cols, C), end_of_split(visible_end, split, n_cols, C)

        # Reduce the split, in registers or block by block, and exchange (RESCUE 0); where words are late, the row (RESCUE 1).
        late, begin, end = False, first, visible_split_end
        if C.IN_REGISTERS:
            blocks = None  # of scores, or of dy
            ys = None
            merged = None
            for k in tl.static_range(C.BLOCKS):
                columns_k, shown_k, vectors_k, added_k = locate(
                    mask, first + k * C.BLOCK, m_col, misalignment, visible_split_end, exists, C.EDGES[k], C
                )
                ptrs_k = source + offsets_of(columns_k, x_col, C)
                if C.GRADIENT:
                    block_k, y_k = load(ptrs_k, vectors_k), load(y + offsets_of(columns_k, y_col, C), vectors_k)
                    ys = append_block(ys, y_k, y.dtype.element_ty, C)
                    terms_k = block_k if C.LOG else block_k * y_k
                    if C.WHOLE_VECTORS:
                        terms_k = tl.where(shown_k, terms_k, 0.0)
                    merged = terms_k if k == 0 else merged + terms_k
                else:
                    block_k = load_scores(ptrs_k, added_k, shown_k, vectors_k, scales, temperatures, C)
                    merged = block_k if k == 0 else tl.maximum(merged, block_k)
                blocks = append_block(blocks, block_k, source.dtype.element_ty, C)
            if C.GRADIENT:
                total = tl.sum(merged, C.AXIS, keep_dims=True)
                peak = total  # two numbers are published
            else:
                peak = tl.max(merged, C.AXIS, keep_dims=True)
                for k in tl.static_range(C.BLOCKS):
                    e = exp(shift(get_block(blocks, k, C), finite(peak), temperatures, C, True), C, True)
                    merged = opaque(e if k == 0 else merged + e, 1, C)
                total = tl.sum(merged, C.AXIS, keep_dims=True)
        for RESCUE in tl.static_range(2 if C.SPLITS > 1 and C.STEP == "" else 1):
            if late if RESCUE else BY_BLOCK:
                peaks, sums, moments, best, at = no_statistics(C)
                stop = begin
                if RESCUE == 0 and not C.GRADIENT:
                    stop += tl.maximum(tl.min(end) - begin, 0) // C.BLOCK * C.BLOCK
                for HAS_END in tl.static_range(2):  # blocks before `stop` end within all rows, and take a 40th less time
                    for start in tl.range(begin, stop, C.BLOCK):
                        columns, shown, vectors, added = locate(
                            mask, start, m_col, misalignment, end, exists, BOTH if HAS_END else START, C
                        )
                        ptrs = source + offsets_of(columns, x_col, C)
                        if C.GRADIENT:
                            block, y_block = load(ptrs, vectors), load(y + offsets_of(columns, y_col, C), vectors)
                            terms = block if C.LOG else block * y_block
                            if C.WHOLE_VECTORS:
                                terms = tl.where(shown, terms, 0.0)
                            sums += tl.sum(fold(terms, C), C.AXIS)
                        else:
                            block = load_scores(ptrs, added, shown, vectors, scales, temperatures, C)
                            peaks, sums, moments, _top, _part = add_block(block, peaks, sums, moments, temperatures, C)
                    begin, stop = stop, tl.max(end)
                peak, total, _moment, _best, _group = merge_row(peaks, sums, moments, best, at, temperatures, C)
            if RESCUE == 0 and C.SPLITS > 1:
                begin, end = 0, visible_end
                if C.STEP != "map":
                    publish(words, split, peak, total, tag, C)
                if C.STEP != "reduce":
                    peak, total, _moment, _group, late = combine_splits(words, temperatures, tag, C)

        # Store blocks in registers, or load them again; then load and store the ends of unaligned rows (AT_ENDS), by split 0.
        if C.STEP != "reduce":
            peak, total = add_sink(peak, total, sink_ptr, rows, exists, temperatures, C)
            is_loaded = late | (not C.IN_REGISTERS)
            for AT_ENDS in tl.static_range(2 if C.WHOLE_VECTORS else 1):
                if is_loaded:
                    for start in tl.range(first, first + 1 if AT_ENDS else tl.max(split_end), C.BLOCK):
                        place = row_end if AT_ENDS else opaque_column(start, C)
                        columns, shown, vectors, added = locate(
                            mask, place, m_col, misalignment, visible_end, exists, ENDS if AT_ENDS else BOTH, C
                        )
                        ptrs, offsets = source + offsets_of(columns, x_col, C), offsets_of(columns, y_col, C)
                        if C.GRADIENT:
                            block, y_block = load(ptrs, vectors), load(y + offsets, vectors)
                            result = gradient_of(block, y_block, x + offsets, vectors, total, scales, temperatures, C)
                        else:
                            block = load_scores(ptrs, added, shown, vectors, scales, temperatures, C)
                            result = result_of(block, peak, total, temperatures, C)
                        store(out + offsets, result, columns, misalignment, row_end, exists, ENDS if AT_ENDS else BOTH, C)
                elif C.IN_REGISTERS and not AT_ENDS:
                    begin = opaque_column(first, C)
                    for j in tl.static_range(C.BLOCKS):
                        columns_j, _elements_j, vectors_j = find_block(
                            begin + j * C.BLOCK, misalignment, split_end, exists, C.EDGES[j], C
                        )
                        offsets_j, block_j = offsets_of(columns_j, y_col, C), get_block(blocks, j, C)
                        if C.GRADIENT:
                            y_j, x_j = get_block(ys, j, C), x + offsets_j
                            result_j = gradient_of(block_j, y_j, x_j, vectors_j, total, scales, temperatures, C)
                        else:
                            result_j = result_of(block_j, peak, total, temperatures, C)
                        store(out + offsets_j, result_j, columns_j, misalignment, split_end, exists, C.EDGES[j], C)
                is_loaded = split == 0  # at ends: by one program


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


@triton.jit
def gradient_of(dy, y, x_ptrs, vectors, total, scale, temperature, C: tl.constexpr):
    """Returns dx from dy, y and the sum per row."""
    ds = dy - exp(y, C) * total if C.LOG else y * (dy - total)
    slope = slope_of(scale, temperature, C)
    if C.CAP != 0.0:
        size = tl.abs(load(x_ptrs, vectors) * scale)
        e = tl.exp2(size * (-2.885390081777927 / C.CAP)) if C.FUSED else tl.exp(size * (-2.0 / C.CAP))
        slope = slope * (4.0 * e / ((1.0 + e) * (1.0 + e)))  # 1 - tanh**2, which would cancel
    ds *= slope
    if C.TEMPERATURE != "":
        ds = tl.where(temperature == 0, 0.0, ds)
    if C.MASKED_GRADIENT:  # what a mask hides has no weight, and rows that it hides wholly are nan
        ds = tl.where(y > (NEG_INF if C.LOG else 0.0), ds, 0.0)
    return ds
