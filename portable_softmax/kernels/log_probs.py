"""Log-probabilities of chosen or drawn tokens, without the softmax of all of them; and their gradient.

Rows have n_ids tokens. The result is 0 for an id that is `ignored` and nan for one outside of the row. A row whose ids are all
ignored is not read, and its numbers are 0. A row with nan, +inf or no score has a drawn id of -1.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ELEMENTS, HIGHEST, START, NEG_INF, along, bounded, columns_from, columns_of_ends, end_of_split, exp, find_tile,
    first_column, last_tile, load_per_row, store,
)  # fmt: skip
from portable_softmax.kernels.exchange import combine_splits, publish, words_of
from portable_softmax.kernels.noise import gumbel
from portable_softmax.kernels.reduce import NO_GROUP, reduce_row, reduce_tile
from portable_softmax.kernels.scores import capped, find_mask, load_scores, shift, slope_of


@triton.jit
def token_log_probs_kernel(
    out_ptr, statistics_ptr, x_ptr, mask_ptr, ids_ptr, scale, temperature, min_p, seed, position, words_ptr,
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, m_batch, m_head, m_query, m_col, n_ids, ignored,
    epoch, C: tl.constexpr,
):  # fmt: skip
    """log_softmax(scores of x) at ids, and statistics of rows; with SAMPLE ids that are drawn, and their log-probabilities."""
    n_cols *= C.ROW_UNIT
    split, group = tl.program_id(0) % C.SPLITS, tl.program_id(0) // C.SPLITS
    first = first_column(split, n_cols, C)
    for tile in tl.range(group, last_tile(group, n_rows, n_queries, C), tl.num_programs(0) // C.SPLITS if C.WALK else 1):
        rows, head, query, exists, x_at, _y_at, misalignment, row_end, reads = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, C
        )
        x = x_ptr + x_at
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, m_col, misalignment, C)
        row_scale = load_per_row(scale, rows, exists, C.SCALE, C)
        row_temperature = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        key, turn = load_per_row(seed, rows, exists, C.SEED, C), load_per_row(position, rows, exists, C.POSITION, C)
        split_end, words = end_of_split(row_end, split, n_cols, C), words_of(words_ptr, tile, C)
        if not C.SAMPLE:
            ids = load_ids(ids_ptr, rows, exists, 0, n_ids, ignored, C)  # on their way meanwhile
        if C.SKIP_IGNORED:
            some = ids != ignored
            for k in tl.range(1, n_ids):
                some = some | (load_ids(ids_ptr, rows, exists, k, n_ids, ignored, C) != ignored)
            reads = reads & some

        # Ends as early as it can: where most rows are not read, their programs take most of the time.
        if tl.max(reads.to(tl.int32)) == 0 if C.SKIP_IGNORED else False:
            for k in tl.range(0, n_ids):
                tl.store(out_ptr + rows * n_ids + k, 0.0, mask=exists)
        else:
            if C.STEP != "map":
                if C.IN_REGISTERS:
                    peak, total, moment, best, drawn = reduce_tile(
                        x, mask, m_col, misalignment, split_end, reads, row_scale, row_temperature, first, C, key, turn
                    )
                else:
                    peak, total, moment, best, drawn = reduce_row(
                        x, mask, 1, m_col, misalignment, split_end, reads, row_scale, row_temperature, first, C, key, turn
                    )
            if not C.SAMPLE:
                score = load_score(x, mask, m_col, ids, misalignment, n_cols, ignored, row_scale, row_temperature, C)
            if C.SPLITS > 1 and C.STEP != "map":
                publish(words, split, peak, total, epoch, C)
                if C.ENTROPY:
                    publish(words + 2 * C.SPLITS * C.ROWS, split, moment, moment, epoch, C)
                if C.SAMPLE:
                    publish(words + 2 * C.SPLITS * C.ROWS, split, best, drawn.to(tl.float32, bitcast=True), epoch, C)
            if split == C.SPLITS - 1 if C.STEP != "reduce" else False:
                if C.SPLITS > 1:
                    peak, total, moment, drawn, _late = combine_splits(
                        words, x, mask, 1, m_col, misalignment, row_end, reads, row_scale, row_temperature, epoch, C, key, turn
                    )
                if C.SAMPLE:
                    least = peak + tl.log(load_per_row(min_p, rows, exists, C.MIN_P, C))
                    ids, score = draw_token(
                        x, mask, m_col, misalignment, row_end, reads, row_scale, row_temperature, key, turn, drawn, least, C
                    )
                    none = (drawn == NO_GROUP) | (total != total)
                    log_prob = tl.where(none, float("nan"), shift(score, peak, row_temperature, C) - tl.log(total))
                    tl.store(out_ptr + along(rows, C), tl.where(none, -1, ids).to(tl.int64), mask=along(exists, C))
                    tl.store(statistics_ptr + along(rows, C), log_prob, mask=along(exists, C))
                else:
                    store_statistics(statistics_ptr, rows, exists, n_rows, peak, total, moment, row_temperature, C)
                    for k in tl.range(0, n_ids):
                        log_prob = shift(score, peak, row_temperature, C) - tl.log(total)
                        if C.MASKED_ROWS_ZERO:
                            log_prob = tl.where((peak == NEG_INF) & (total == 0), NEG_INF, log_prob)
                        no_token = tl.where(ids == ignored, 0.0, float("nan"))
                        log_prob = tl.where(is_token(ids, n_cols, ignored), log_prob, no_token)
                        tl.store(out_ptr + along(rows, C) * n_ids + k, log_prob, mask=along(exists, C))
                        ids = load_ids(ids_ptr, rows, exists, k + 1, n_ids, ignored, C)
                        score = load_score(x, mask, m_col, ids, misalignment, n_cols, ignored, row_scale, row_temperature, C)


@triton.jit
def is_token(ids, n_cols, ignored):
    """Returns True for ids that are columns, and not ignored."""
    return (ids >= 0) & (ids < n_cols) & (ids != ignored)


@triton.jit
def load_ids(ids_ptr, rows, exists, k, n_ids, ignored, C: tl.constexpr):
    """Returns the k-th id per row, [ROWS, 1]."""
    return tl.load(ids_ptr + along(rows, C) * n_ids + k, mask=along(exists & (k + 0 * rows < n_ids), C), other=ignored)


@triton.jit
def load_score(x, mask, m_col, ids, misalignment, n_cols, ignored, scale, temperature, C: tl.constexpr):
    """Returns the scores of one token per row, [ROWS, 1]."""
    column = tl.where(is_token(ids, n_cols, ignored), ids.to(tl.int32) + misalignment, -1)
    exists = column >= misalignment
    return load_scores(x, mask, 0, column, 1, m_col, misalignment, column + 1, exists, scale, temperature, ELEMENTS, C)


@triton.jit
def store_statistics(statistics_ptr, rows, exists, n_rows, peak, total, moment, temperature, C: tl.constexpr):
    """Stores logsumexp, its rounding error, and entropy of rows."""
    at, mask = statistics_ptr + along(rows, C), along(exists, C)
    if C.CAP != 0.0 and C.TEMPERATURE != "":  # the maximum of greedy rows is that before the cap
        peak = tl.where(temperature == 0, capped(peak, C), peak)
    more = tl.log(total)
    lse = peak + more
    part = lse - peak
    rest = (peak - (lse - part)) + (more - part)
    tl.store(at, tl.where((peak >= HIGHEST) & (total != total), float("inf"), lse), mask=mask)
    tl.store(at + n_rows, rest, mask=mask)
    if C.ENTROPY:  # two terms that are not negative
        entropy = more - moment / total
        if C.MASKED_ROWS_ZERO:
            entropy = tl.where((peak == NEG_INF) & (total == 0), 0.0, entropy)
        tl.store(at + 2 * tl.cast(n_rows, tl.int64), entropy, mask=mask)


@triton.jit
def draw_token(
    x, mask, m_col, misalignment, row_end, exists, scale, temperature, seed, position, group, least, C: tl.constexpr
):
    """Returns (column, its score) per row, drawn from those of a group; those below `least` are replaced by a second draw."""
    ids, score = draw(x, mask, m_col, misalignment, row_end, exists, scale, temperature, seed, position, group, C)
    if C.MIN_P != "":
        below = exists & (score < least)
        if tl.max(below.to(tl.int32)) != 0:
            _peak, _total, _moment, _best, another = reduce_row(
                x, mask, 1, m_col, misalignment, row_end, below, scale, temperature, 0, C, seed, position, least
            )
            below = below & (another != NO_GROUP)  # min_p of 1 or more
            other, its_score = draw(
                x, mask, m_col, misalignment, row_end, below, scale, temperature, seed, position, another, C, least
            )
            ids, score = tl.where(below, other, ids), tl.where(below, its_score, score)
    return ids, score


@triton.jit
def draw(x, mask, m_col, misalignment, row_end, exists, scale, temperature, seed, position, group, C: tl.constexpr, least=None):
    """Returns (column, its score) per row, drawn from those of a group that have scores of `least` or more."""
    group = tl.max(group) if C.ROWS == 1 else group  # an address of a tensor of one number is not lowered everywhere
    columns = tl.where(group == NO_GROUP, 0, group) * C.GROUP + tl.expand_dims(tl.arange(0, C.GROUP), 0)
    s = load_scores(x, mask, 0, columns, 1, m_col, misalignment, row_end, exists, scale, temperature, ELEMENTS, C)
    if least is not None:
        s = tl.where(s < least, NEG_INF, s)
    noisy = s + gumbel(columns, seed, position, 1 if least is None else 3, C)
    if C.TEMPERATURE != "":
        noisy = tl.where(temperature == 0, s, noisy)
    column = tl.min(tl.where(noisy == tl.max(noisy, 1, keep_dims=True), columns, NO_GROUP), 1, keep_dims=True)
    return column, tl.max(tl.where(columns == column, s, NEG_INF), 1, keep_dims=True)


# ---------------------------------------------------------------- gradient
@triton.jit
def token_log_probs_backward_kernel(
    dx_ptr, x_ptr, mask_ptr, ids_ptr, statistics_ptr, d_out_ptr, d_lse_ptr, d_entropy_ptr, scale, temperature,
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, m_batch, m_head, m_query, m_col, n_ids, ignored,
    C: tl.constexpr,
):  # fmt: skip
    """The gradient of x from those of log-probabilities, logsumexp and entropies; any may be None. dx may be x."""
    n_cols *= C.ROW_UNIT
    split, group = tl.program_id(0) % C.SPLITS, tl.program_id(0) // C.SPLITS
    first = first_column(split, n_cols, C)
    for tile in tl.range(group, last_tile(group, n_rows, n_queries, C), tl.num_programs(0) // C.SPLITS if C.WALK else 1):
        rows, head, query, exists, x_at, dx_at, misalignment, row_end, present = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, C
        )
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, m_col, misalignment, C)
        x, dx, split_end = x_ptr + x_at, dx_ptr + dx_at, end_of_split(row_end, split, n_cols, C)
        row_scale = load_per_row(scale, rows, exists, C.SCALE, C)
        row_temperature = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        lse = along(tl.load(statistics_ptr + rows, mask=exists, other=0.0), C)
        rest = along(tl.load(statistics_ptr + n_rows + rows, mask=exists, other=0.0), C)
        # Of a score: d_out where it was chosen, less p * (total + slope * log(p)).
        token, d_out = load_gradient(ids_ptr, d_out_ptr, rows, exists, 0, n_cols, n_ids, ignored, C)
        total, busy = d_out, d_out != 0
        for k in tl.range(1, n_ids if C.MULTIPLE_IDS else 1):
            _, more = load_gradient(ids_ptr, d_out_ptr, rows, exists, k, n_cols, n_ids, ignored, C)
            total += more
            busy = busy | (more != 0)
        if d_lse_ptr is not None:
            total -= along(tl.load(d_lse_ptr + rows, mask=exists, other=0.0), C)
        d_entropy = total
        if C.ENTROPY:
            d_entropy = along(tl.load(d_entropy_ptr + rows, mask=exists, other=0.0), C)
            entropy = along(tl.load(statistics_ptr + 2 * tl.cast(n_rows, tl.int64) + rows, mask=exists, other=0.0), C)
            total = tl.where(d_entropy == 0, total, total + d_entropy * entropy)
        reads = present & busy if C.SKIP_IGNORED else present
        some = tl.max(reads.to(tl.int32)) != 0
        slope = slope_of(row_scale, row_temperature, C)
        idle = (total == 0) & (d_entropy == 0)

        # The ends of unaligned rows first: dx may be x, and they are not stored with the blocks.
        for EDGE in tl.static_range(ELEMENTS if C.UNALIGNED else BOTH, START, -1):
            end = row_end if EDGE == ELEMENTS else split_end
            begin = split if EDGE == ELEMENTS else first
            for start in tl.range(begin, 1 if EDGE == ELEMENTS else tl.max(end), C.STREAM):
                columns = columns_of_ends(row_end, C) if EDGE == ELEMENTS else columns_from(start, C.STREAM, C)
                ds = tl.zeros((C.ROWS, columns.shape[1]), tl.float32)
                if some:  # else zeros are stored as fast as memory takes them
                    score = load_scores(
                        x, mask, start, columns, 1, m_col, misalignment, end, reads, row_scale, row_temperature, EDGE, C
                    )
                    log_p = score - lse - rest
                    by = total + d_entropy * bounded(log_p) if C.ENTROPY else total
                    ds = tl.where(idle, 0.0, -exp(log_p, C) * by) + tl.where(columns - misalignment == token, d_out, 0.0)
                    for k in tl.range(1, n_ids if C.MULTIPLE_IDS else 1):
                        another, more = load_gradient(ids_ptr, d_out_ptr, rows, exists, k, n_cols, n_ids, ignored, C)
                        ds += tl.where(columns - misalignment == another, more, 0.0)
                    none = ds == 0
                    if C.TEMPERATURE != "":
                        none = none | (row_temperature == 0)
                    if C.HIDES or C.MASKED_ROWS_ZERO:  # nothing hidden has a gradient, nor have rows without a finite sum
                        none = none | (score == NEG_INF) | (tl.abs(lse) == float("inf")) | (lse != lse)
                    ds *= slope
                    if C.CAP != 0.0:
                        u = score * (row_temperature * (1.0 / C.CAP))
                        ds *= 1.0 - u * u
                    ds = tl.where(none, 0.0, ds)
                store(dx, ds, columns, 1, misalignment, end, present, EDGE, C)


@triton.jit
def load_gradient(ids_ptr, d_out_ptr, rows, exists, k, n_cols, n_ids, ignored, C: tl.constexpr):
    """Returns (column of the k-th token per row, gradient of its log-probability); (-1, 0) if it is none of the row."""
    at = rows * n_ids + k
    ids = tl.load(ids_ptr + at, mask=exists, other=-1)
    d_out = tl.load(d_out_ptr + at, mask=exists, other=0.0)  # it need not wait for the ids
    valid = is_token(ids, n_cols, ignored)
    return along(tl.where(valid, ids.to(tl.int32), -1), C), along(tl.where(valid, d_out, 0.0), C)
