"""Log-probabilities of chosen or drawn tokens, without the softmax of all of them; and their gradient.

Rows have n_ids tokens. The result is 0 for an ignored id and nan for one outside of the row. With SKIP_IGNORED, tiles of
ignored ids alone are not read, and their statistics not written. A row with nan, +inf or no score has a drawn id of -1.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ENDS, HIGHEST, NEG_INF, START, append_block, bounded, end_of_split, exp, find_tile, first_column, get_block,
    load_per_row, offsets_of_result, store, tiles_of_program,
)  # fmt: skip
from portable_softmax.kernels.exchange import combine_splits, publish, words_of
from portable_softmax.kernels.noise import gumbel
from portable_softmax.kernels.reduce import NO_GROUP, add_block, best_groups, merge_row, no_statistics
from portable_softmax.kernels.scores import capped, find_mask, locate, load_score, load_scores, load_words, shift, slope_of


@triton.jit
def token_log_probs_kernel(
    out_ptr, statistics_ptr, x_ptr, mask_ptr, ids_ptr, scale, temperature, min_p, seed, position, words_ptr,
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, m_batch, m_head, m_query, m_col, n_ids, ignored,
    tag, C: tl.constexpr,
):  # fmt: skip
    """log_softmax(scores of x) at ids, and statistics of rows; with SAMPLE ids that are drawn, and their log-probabilities."""
    n_cols *= C.ROW_UNIT
    split, own_tile, end_tile, step = tiles_of_program(n_rows, n_queries, C)
    first = first_column(split, n_cols, C)
    for tile in tl.range(own_tile, end_tile, step):
        rows, head, query, exists, x_at, misalignment = find_tile(tile, n_rows, n_heads, n_queries, x_batch, x_head, x_query, C)
        x, words, row_end = x_ptr + x_at, words_of(words_ptr, tile, C), misalignment + n_cols
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, C)
        scales = load_per_row(scale, rows, exists, C.SCALE, C)
        temperatures = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        key, row_position = load_per_row(seed, rows, exists, C.SEED, C), load_per_row(position, rows, exists, C.POSITION, C)
        split_end, reads, parts = end_of_split(row_end, split, n_cols, C), exists, tl.expand_dims(tl.arange(0, C.PARTS), 0)
        if not C.SAMPLE:
            tokens = rows * n_ids
            ids = tl.load(ids_ptr + tokens, mask=exists, other=ignored)  # on their way meanwhile
        if C.SKIP_IGNORED:
            some = ids != ignored
            for k in tl.range(1, n_ids):
                some = some | (tl.load(ids_ptr + tokens + k, mask=exists, other=ignored) != ignored)
            reads = reads & some

        # Ends as early as it can: where most rows are not read, their programs take most of the time.
        if (tl.max(reads.to(tl.int32)) == 0) if C.SKIP_IGNORED else False:
            for k in tl.range(0, n_ids):
                tl.store(out_ptr + tokens + k, 0.0, mask=exists)
        else:
            if C.STEP != "map":
                peaks, sums, moments, best, at = no_statistics(C)
                bits, begin, stop = mask, 0, 1  # in registers: one iteration, of all blocks
                if not C.IN_REGISTERS:
                    stop = tl.maximum(tl.min(split_end) - first, 0) // C.BLOCK * C.BLOCK
                if C.MASK_WORDS:  # a block ahead, as elements are loaded after their words
                    bits = load_words(mask, first, m_col, split_end, reads, C)
                for HAS_END in tl.static_range(1 if C.IN_REGISTERS else 0, 2):  # blocks within all rows, then others
                    for offset in tl.range(begin, stop, C.BLOCK):
                        tile_scores = None
                        for block in tl.static_range(C.BLOCKS):  # all loads before what needs them
                            start = first + offset + block * C.BLOCK
                            columns, shown, vectors, added = locate(
                                bits, start, m_col, misalignment, split_end, reads, C.EDGES[block] if HAS_END else START, C
                            )
                            scores = load_scores(x + columns, added, shown, vectors, scales, temperatures, C)
                            tile_scores = append_block(tile_scores, scores, tl.float32, C)
                            if C.MASK_WORDS:
                                bits = load_words(mask, start + C.BLOCK, m_col, split_end, reads, C)
                        for block in tl.static_range(C.BLOCKS):
                            scores = get_block(tile_scores, block, C)
                            peaks, sums, moments, top, part = add_block(scores, peaks, sums, moments, temperatures, C)
                            if C.SAMPLE:
                                groups = (first + offset + block * C.BLOCK) // C.GROUP + parts
                                noise = gumbel(groups, key, row_position, 0, C)
                                best, at = best_groups(best, at, top, part, groups, noise, temperatures, C)
                    begin, stop = stop, tl.max(split_end) - first
                peak, total, moment, largest, drawn = merge_row(peaks, sums, moments, best, at, temperatures, C)
            if not C.SAMPLE:
                column = column_of(ids, misalignment, n_cols, ignored)
                score = load_score(x, mask, column, m_col, misalignment, scales, temperatures, C)
            if C.SPLITS > 1 and C.STEP != "map":
                publish(words, split, peak, total, tag, C)
                if C.ENTROPY:
                    publish(words + 2 * C.SPLITS * C.ROWS, split, moment, moment, tag, C)
                if C.SAMPLE:
                    publish(words + 2 * C.SPLITS * C.ROWS, split, largest, drawn.to(tl.float32, bitcast=True), tag, C)
            if (split == C.SPLITS - 1) if C.STEP != "reduce" else False:  # the program of the last split finishes the row
                again, least = False, NEG_INF
                if C.SPLITS > 1:
                    peak, total, moment, drawn, again = combine_splits(words, temperatures, tag, C)
                # REDRAW 0: the row is read if words are late, and a token drawn. REDRAW 1: rows whose token is below min_p, now
                # `reads`, are read again, and another one drawn from scores of `least` or more.
                for REDRAW in tl.static_range(2 if C.MIN_P != "" else 1):
                    if again:  # all of the row block by block
                        peaks, sums, moments, best, at = no_statistics(C)
                        for base in tl.range(0, tl.max(row_end), C.BLOCK):
                            columns, shown, vectors, added = locate(mask, base, m_col, misalignment, row_end, reads, BOTH, C)
                            scores = load_scores(x + columns, added, shown, vectors, scales, temperatures, C)
                            scores = tl.where(scores < least, NEG_INF, scores)
                            peaks, sums, moments, top, part = add_block(scores, peaks, sums, moments, temperatures, C)
                            if C.SAMPLE:
                                groups = base // C.GROUP + parts
                                noise = gumbel(groups, key, row_position, 2 * REDRAW, C)
                                best, at = best_groups(best, at, top, part, groups, noise, temperatures, C)
                        row_peak, row_total, row_moment, _, drawn = merge_row(peaks, sums, moments, best, at, temperatures, C)
                        if REDRAW == 0:  # log-probabilities are those before min_p
                            peak, total, moment = row_peak, row_total, row_moment
                    if C.SAMPLE:
                        group = tl.where(drawn == NO_GROUP, 0, drawn)
                        if C.ROWS == 1:  # an address of a tensor of one number is not lowered everywhere
                            group = tl.max(group)
                        members = group * C.GROUP + tl.expand_dims(tl.arange(0, C.GROUP), 0)
                        members = tl.where((members < row_end) & reads, members, -1)
                        member_scores = load_score(x, mask, members, m_col, misalignment, scales, temperatures, C)
                        member_scores = tl.where(member_scores < least, NEG_INF, member_scores)
                        column, its_score = draw(member_scores, members, key, row_position, temperatures, 2 * REDRAW + 1, C)
                        if REDRAW:
                            reads = reads & (drawn != NO_GROUP)  # min_p of 1 or more
                            ids, score = tl.where(reads, column, ids), tl.where(reads, its_score, score)
                        else:
                            ids, score, no_token = column, its_score, (drawn == NO_GROUP) | (total != total)
                        if C.MIN_P != "":
                            least = peak + tl.log(load_per_row(min_p, rows, exists, C.MIN_P, C))
                            reads = reads & (score < least)
                            again = tl.max(reads.to(tl.int32)) != 0
                if C.SAMPLE:
                    log_prob = tl.where(no_token, float("nan"), shift(score, peak, temperatures, C) - tl.log(total))
                    tl.store(out_ptr + rows, tl.where(no_token, -1, ids).to(tl.int64), mask=exists)
                    tl.store(statistics_ptr + rows, log_prob, mask=exists)
                else:
                    store_statistics(statistics_ptr + rows, exists, n_rows, peak, total, moment, temperatures, C)
                    for k in tl.range(0, n_ids):
                        log_prob = shift(score, peak, temperatures, C) - tl.log(total)
                        if C.MASKED_ROWS_ZERO:
                            log_prob = tl.where((peak == NEG_INF) & (total == 0), NEG_INF, log_prob)
                        other = tl.where(ids == ignored, 0.0, float("nan"))
                        tl.store(out_ptr + tokens + k, tl.where(column >= 0, log_prob, other), mask=exists)
                        ids = tl.load(ids_ptr + tokens + k + 1, mask=exists & (k + 1 < n_ids), other=ignored)
                        column = column_of(ids, misalignment, n_cols, ignored)
                        score = load_score(x, mask, column, m_col, misalignment, scales, temperatures, C)


@triton.jit
def column_of(ids, misalignment, n_cols, ignored):
    """Returns the columns of ids; -1 for one that is `ignored`, or outside of its row."""
    is_token = (ids >= 0) & (ids < n_cols) & (ids != ignored)
    return tl.where(is_token, ids.to(tl.int32) + misalignment, -1)


@triton.jit
def draw(scores, columns, seed, position, temperature, PURPOSE: tl.constexpr, C: tl.constexpr):
    """Returns (column, its score) per row, drawn from those of a group."""
    noisy = scores + gumbel(columns, seed, position, PURPOSE, C)
    if C.TEMPERATURE != "":
        noisy = tl.where(temperature == 0, scores, noisy)
    column = tl.min(tl.where(noisy == tl.max(noisy, 1, keep_dims=True), columns, NO_GROUP), 1, keep_dims=True)
    return column, tl.max(tl.where(columns == column, scores, NEG_INF), 1, keep_dims=True)


@triton.jit
def store_statistics(ptrs, exists, n_rows, peak, total, moment, temperature, C: tl.constexpr):
    """Stores logsumexp, its rounding error, and entropy of rows."""
    if C.CAP != 0.0 and C.TEMPERATURE != "":  # the maximum of greedy rows is that before the cap
        peak = tl.where(temperature == 0, capped(peak, C), peak)
    more = tl.log(total)
    lse = peak + more
    part = lse - peak
    rest = (peak - (lse - part)) + (more - part)
    tl.store(ptrs, tl.where((peak >= HIGHEST) & (total != total), float("inf"), lse), mask=exists)
    tl.store(ptrs + n_rows, rest, mask=exists)
    if C.ENTROPY:  # two terms that are not negative
        entropy = more - moment / total
        if C.MASKED_ROWS_ZERO:
            entropy = tl.where((peak == NEG_INF) & (total == 0), 0.0, entropy)
        tl.store(ptrs + 2 * tl.cast(n_rows, tl.int64), entropy, mask=exists)


# ---------------------------------------------------------------- gradient
@triton.jit
def token_log_probs_backward_kernel(
    dx_ptr, x_ptr, mask_ptr, ids_ptr, statistics_ptr, d_out_ptr, d_lse_ptr, d_entropy_ptr, scale, temperature,
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, m_batch, m_head, m_query, m_col, n_ids, ignored,
    C: tl.constexpr,
):  # fmt: skip
    """The gradient of x from those of log-probabilities, logsumexp and entropies; any may be None. dx may be x."""
    n_cols *= C.ROW_UNIT
    split, own_tile, end_tile, step = tiles_of_program(n_rows, n_queries, C)
    first = first_column(split, n_cols, C)
    for tile in tl.range(own_tile, end_tile, step):
        rows, head, query, exists, x_at, misalignment = find_tile(tile, n_rows, n_heads, n_queries, x_batch, x_head, x_query, C)
        dx_at = offsets_of_result(x_at, rows, head, query, n_queries, n_cols, C)
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, C)
        x, dx, row_end = x_ptr + x_at, dx_ptr + dx_at, misalignment + n_cols
        split_end = end_of_split(row_end, split, n_cols, C)
        scales = load_per_row(scale, rows, exists, C.SCALE, C)
        temperatures = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        lse = tl.load(statistics_ptr + rows, mask=exists, other=0.0)
        rest = tl.load(statistics_ptr + n_rows + rows, mask=exists, other=0.0)
        # Of a score: d_out where it was chosen, less p * (total + slope * log(p)).
        ids, d_outs = ids_ptr + rows * n_ids, d_out_ptr + rows * n_ids
        n_tokens = n_ids if C.MULTIPLE_IDS else 1
        token, d_out = load_gradient(ids, d_outs, exists, misalignment, n_cols, ignored)
        total, busy = d_out, d_out != 0
        for k in tl.range(1, n_tokens):
            _, more = load_gradient(ids + k, d_outs + k, exists, misalignment, n_cols, ignored)
            total += more
            busy = busy | (more != 0)
        if d_lse_ptr is not None:
            total -= tl.load(d_lse_ptr + rows, mask=exists, other=0.0)
        d_entropy = total
        if C.ENTROPY:
            d_entropy = tl.load(d_entropy_ptr + rows, mask=exists, other=0.0)
            entropy = tl.load(statistics_ptr + 2 * tl.cast(n_rows, tl.int64) + rows, mask=exists, other=0.0)
            total = tl.where(d_entropy == 0, total, total + d_entropy * entropy)
        reads = exists & busy if C.SKIP_IGNORED else exists
        some = tl.max(reads.to(tl.int32)) != 0
        slope = slope_of(scales, temperatures, C)
        idle = (total == 0) & (d_entropy == 0)

        begin, stop = first, tl.max(split_end)
        for AT_ENDS in tl.static_range(2 if C.WHOLE_VECTORS else 1):
            for start in tl.range(begin, stop, C.BLOCK):
                columns, shown, vectors, added = locate(
                    mask, row_end if AT_ENDS else start, m_col, misalignment, row_end, reads, ENDS if AT_ENDS else BOTH, C
                )
                ds = tl.zeros((C.ROWS, columns.shape[1]), tl.float32)
                if some:  # else zeros are stored as fast as memory takes them
                    score = load_scores(x + columns, added, shown, vectors, scales, temperatures, C)
                    log_p = score - lse - rest
                    weight = total + d_entropy * bounded(log_p) if C.ENTROPY else total
                    ds = tl.where(idle, 0.0, -exp(log_p, C) * weight) + tl.where(columns == token, d_out, 0.0)
                    for k in tl.range(1, n_tokens):
                        another, more = load_gradient(ids + k, d_outs + k, exists, misalignment, n_cols, ignored)
                        ds += tl.where(columns == another, more, 0.0)
                    none = ds == 0
                    if C.TEMPERATURE != "":
                        none = none | (temperatures == 0)
                    if C.HIDES or C.MASKED_ROWS_ZERO:  # nothing hidden has a gradient, nor have rows without a finite sum
                        none = none | (score == NEG_INF) | (tl.abs(lse) == float("inf")) | (lse != lse)
                    ds *= slope
                    if C.CAP != 0.0:
                        u = score * (temperatures * (1.0 / C.CAP))
                        ds *= 1.0 - u * u
                    ds = tl.where(none, 0.0, ds)
                store(dx + columns, ds, columns, misalignment, row_end, exists, ENDS if AT_ENDS else BOTH, C)
            begin, stop = split, 1  # ends: one iteration of split 0, none of others


@triton.jit
def load_gradient(ids, d_outs, exists, misalignment, n_cols, ignored):
    """Returns (column of a token per row, gradient of its log-probability); (-1, 0) if it is none of the row."""
    column = column_of(tl.load(ids, mask=exists, other=ignored), misalignment, n_cols, ignored)
    d_out = tl.load(d_outs, mask=exists, other=0.0)  # it need not wait for the ids
    return column, tl.where(column >= 0, d_out, 0.0)
