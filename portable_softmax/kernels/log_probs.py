"""Log-probabilities of chosen tokens, without the softmax of all of them; and their gradient.

Rows have n_ids tokens. The result is 0 for an id that is `ignored` and nan for one outside of the row. A row whose ids
are all ignored is not read, and its numbers are 0.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ENDS, HIGHEST, NEG_INF, along, bounded, end_of_split, exp, find_tile, finite, first_column, last_tile, load_per_row,
    places, places_of_ends, store,
)  # fmt: skip
from portable_softmax.kernels.exchange import of_splits, publish, words_of
from portable_softmax.kernels.groups import reduce_groups, reduce_tile
from portable_softmax.kernels.scores import (
    add_powers, capped, fall_of, find_mask, load_scores, load_tile, reduce_row, slope_of,
)  # fmt: skip


@triton.jit
def token_log_probs_kernel(
    out_ptr, statistics_ptr, x_ptr, mask_ptr, ids_ptr, scale, temperature, words_ptr,
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, m_batch, m_head, m_query, m_col, n_ids, ignored,
    epoch, C: tl.constexpr,
):  # fmt: skip
    """log_softmax(scores of x) at ids, and statistics of rows. The program of a row's last split writes them."""
    n_cols *= C.ROW_UNIT
    split, group = tl.program_id(0) % C.SPLITS, tl.program_id(0) // C.SPLITS
    first = first_column(split, n_cols, C)
    for tile in tl.range(group, last_tile(group, n_rows, n_queries, C), tl.num_programs(0) // C.SPLITS if C.WALK else 1):
        rows, head, query, exists, x_at, _y_at, lead, past, reads = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, C
        )
        x = x_ptr + x_at
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, m_col, lead, C)
        by = load_per_row(scale, rows, exists, C.SCALE, C)
        heat = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        writes = exists & (split + 0 * rows == C.SPLITS - 1)  # by row: Triton 3.9's interpreter makes no mask of scalars
        ids = load_ids(ids_ptr, rows, exists if C.SKIP else writes, 0, n_ids, ignored, C)  # on their way meanwhile
        if C.SKIP:
            reads = reads & any_token(ids, ids_ptr, rows, exists, n_ids, ignored, C)
        end, words = end_of_split(past, split, n_cols, C), words_of(words_ptr, tile, C)

        # Ends as early as it can: where most rows are not read, their programs take most of the time.
        if tl.max(reads.to(tl.int32)) == 0 if C.SKIP else False:
            tl.store(statistics_ptr + rows, 0.0, mask=exists)
            tl.store(statistics_ptr + n_rows + rows, 0.0, mask=exists)
            for k in tl.range(0, n_ids):
                tl.store(out_ptr + rows * n_ids + k, 0.0, mask=exists)
        else:
            if C.STEP != "map":
                if C.GROUP == 0:
                    peak, total, falls = reduce_columns(x, mask, m_col, lead, end, reads, by, heat, first, C)
                elif C.IN_REGISTERS:
                    peak, total, falls, _best, _at = reduce_tile(x, mask, m_col, lead, end, reads, by, heat, first, 0, 0, C)
                else:
                    peak, total, falls, _best, _at = reduce_groups(
                        x, mask, m_col, lead, end, reads, by, heat, first, 0, 0, 0.0, 1, C
                    )
            score = load_score(x, mask, m_col, ids, lead, n_cols, ignored, by, heat, C)
            if C.SPLITS > 1 and C.STEP != "map":
                publish(words, split, peak, total, epoch, C)
                if C.ENTROPY:
                    publish(words + 2 * C.SPLITS * C.ROWS, split, falls, falls, epoch, C)
            if split == C.SPLITS - 1 if C.STEP != "reduce" else False:
                if C.SPLITS > 1:
                    peak, total, falls, _late = of_splits(words, x, mask, 1, m_col, lead, past, reads, by, heat, epoch, C)
                write_rows(statistics_ptr, ids, ids_ptr, rows, exists, n_rows, n_ids, ignored, peak, total, falls, heat, C)
                for k in tl.range(0, n_ids):
                    log_prob = fall_of(score, peak, heat, C) - tl.log(total)
                    if C.MASKED_ROWS_ZERO:
                        log_prob = tl.where((peak == NEG_INF) & (total == 0), NEG_INF, log_prob)
                    log_prob = tl.where(is_token(ids, n_cols, ignored), log_prob, tl.where(ids == ignored, 0.0, float("nan")))
                    tl.store(out_ptr + along(rows, C) * n_ids + k, log_prob, mask=along(exists, C))
                    ids = load_ids(ids_ptr, rows, writes, k + 1, n_ids, ignored, C)
                    score = load_score(x, mask, m_col, ids, lead, n_cols, ignored, by, heat, C)


@triton.jit
def reduce_columns(x, mask, m_col, lead, past, exists, scale, temperature, first, C: tl.constexpr):
    """Returns (maximum, sum, falls) without groups, where an axis of 8 columns takes the memory of a longer one."""
    if C.IN_REGISTERS:
        scores, peak = load_tile(x, mask, 1, m_col, lead, past, exists, scale, temperature, first, C)
        _powers, total, falls = add_powers(scores, finite(peak), temperature, C)
    else:
        peak, total, falls = reduce_row(x, mask, 1, m_col, lead, past, exists, scale, temperature, first, C)
    return peak, total, falls


@triton.jit
def any_token(ids, ids_ptr, rows, exists, n_ids, ignored, C: tl.constexpr):
    """Returns True for rows that are read: with ENTROPY or LSE all, else those with an id that is not ignored. [ROWS, 1]."""
    some = along(exists, C) if C.ENTROPY or C.LSE else ids != ignored
    for k in tl.range(1, 1 if C.ENTROPY or C.LSE else n_ids):
        some = some | (load_ids(ids_ptr, rows, exists, k, n_ids, ignored, C) != ignored)
    return some


@triton.jit
def is_token(ids, n_cols, ignored):
    """Returns True for ids that are columns, and not ignored."""
    return (ids >= 0) & (ids < n_cols) & (ids != ignored)


@triton.jit
def load_ids(ids_ptr, rows, writes, k, n_ids, ignored, C: tl.constexpr):
    """Returns the k-th id per row, [ROWS, 1]."""
    return tl.load(ids_ptr + along(rows, C) * n_ids + k, mask=along(writes & (k + 0 * rows < n_ids), C), other=ignored)


@triton.jit
def load_score(x, mask, m_col, ids, lead, n_cols, ignored, scale, temperature, C: tl.constexpr):
    """Returns the scores of one token per row, [ROWS, 1]."""
    place = tl.where(is_token(ids, n_cols, ignored), ids.to(tl.int32) + lead, -1)
    return load_scores(x, mask, 0, place, 1, m_col, lead, place + 1, place >= lead, scale, temperature, ENDS, C)


@triton.jit
def write_rows(
    statistics_ptr, ids, ids_ptr, rows, exists, n_rows, n_ids, ignored, peak, total, falls, temperature, C: tl.constexpr
):
    """Stores logsumexp, its rounding error, and entropy of rows; 0 for those that are not read."""
    read = any_token(ids, ids_ptr, rows, exists, n_ids, ignored, C)
    at, mask = statistics_ptr + along(rows, C), along(exists, C)
    if C.CAP != 0.0 and C.TEMPERATURE != "":  # the maximum of greedy rows is that ahead of the cap
        peak = tl.where(temperature == 0, capped(peak, C), peak)
    more = tl.log(total)
    lse = peak + more
    part = lse - peak
    rest = (peak - (lse - part)) + (more - part)
    lse = tl.where((peak >= HIGHEST) & (total != total), float("inf"), lse)
    tl.store(at, tl.where(read, lse, 0.0), mask=mask)
    tl.store(at + n_rows, tl.where(read, rest, 0.0), mask=mask)
    if C.ENTROPY:  # two terms that are not negative
        read = read & ((peak != NEG_INF) | (total != 0)) if C.MASKED_ROWS_ZERO else read
        tl.store(at + 2 * tl.cast(n_rows, tl.int64), tl.where(read, more - falls / total, 0.0), mask=mask)


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
        rows, head, query, exists, x_at, dx_at, lead, past, there = find_tile(
            tile, n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, C
        )
        mask = find_mask(mask_ptr, head, query, n_heads, m_batch, m_head, m_query, m_col, lead, C)
        x, dx, end = x_ptr + x_at, dx_ptr + dx_at, end_of_split(past, split, n_cols, C)
        by = load_per_row(scale, rows, exists, C.SCALE, C)
        heat = load_per_row(temperature, rows, exists, C.TEMPERATURE, C)
        lse = along(tl.load(statistics_ptr + rows, mask=exists, other=0.0), C)
        rest = along(tl.load(statistics_ptr + n_rows + rows, mask=exists, other=0.0), C)
        # Of a score: d_out where it was chosen, less p * (total + slope * log(p)).
        token, d_out = load_gradient(ids_ptr, d_out_ptr, rows, exists, 0, n_cols, n_ids, ignored, C)
        total, busy = d_out, d_out != 0
        for k in tl.range(1, n_ids if C.MANY else 1):
            _, more = load_gradient(ids_ptr, d_out_ptr, rows, exists, k, n_cols, n_ids, ignored, C)
            total += more
            busy = busy | (more != 0)
        if d_lse_ptr is not None:
            total -= along(tl.load(d_lse_ptr + rows, mask=exists, other=0.0), C)
        slope = total
        if C.ENTROPY:
            slope = along(tl.load(d_entropy_ptr + rows, mask=exists, other=0.0), C)
            entropy = along(tl.load(statistics_ptr + 2 * tl.cast(n_rows, tl.int64) + rows, mask=exists, other=0.0), C)
            total = tl.where(slope == 0, total, total + slope * entropy)
        reads = there & busy if C.SKIP else there

        if split == 0 if C.UNALIGNED else False:  # first: dx may be x, and ends are not stored below
            ends = places_of_ends(past, C)
            s = load_scores(x, mask, 0, ends, 1, m_col, lead, past, reads, by, heat, ENDS, C)
            ds = gradient(s, lse, rest, total, slope, C)
            ds = of_x(
                ds, s, lse, by, heat, ends - lead, token, d_out, ids_ptr, d_out_ptr, rows, exists, n_cols, n_ids, ignored, C
            )
            store(dx, ds, ends, 1, lead, past, there, ENDS, C)
        some = tl.max(reads.to(tl.int32)) != 0
        for column in tl.range(first, tl.max(end), C.STREAM):
            place = places(column, C.STREAM, C)
            ds = tl.full((C.ROWS, C.STREAM), 0.0, tl.float32)
            if some:  # else zeros are stored as fast as memory takes them
                s = load_scores(x, mask, column, place, 1, m_col, lead, end, reads, by, heat, BOTH, C)
                ds = gradient(s, lse, rest, total, slope, C)
                ds = of_x(
                    ds,
                    s,
                    lse,
                    by,
                    heat,
                    place - lead,
                    token,
                    d_out,
                    ids_ptr,
                    d_out_ptr,
                    rows,
                    exists,
                    n_cols,
                    n_ids,
                    ignored,
                    C,
                )
            store(dx, ds, place, 1, lead, end, there, BOTH, C)


@triton.jit
def load_gradient(ids_ptr, d_out_ptr, rows, exists, k, n_cols, n_ids, ignored, C: tl.constexpr):
    """Returns (column of the k-th token per row, gradient of its log-probability); (-1, 0) if it is none of the row."""
    at = rows * n_ids + k
    ids = tl.load(ids_ptr + at, mask=exists, other=-1)
    d_out = tl.load(d_out_ptr + at, mask=exists, other=0.0)  # it need not wait for the ids
    there = is_token(ids, n_cols, ignored)
    return along(tl.where(there, ids.to(tl.int32), -1), C), along(tl.where(there, d_out, 0.0), C)


@triton.jit
def gradient(score, lse, rest, total, slope, C: tl.constexpr):
    """Returns the gradient of scores, but for what their tokens add: 0, whatever the row holds, if nothing else is."""
    log_p = score - lse - rest
    by = total + slope * bounded(log_p) if C.ENTROPY else total
    return tl.where((total == 0) & (slope == 0), 0.0, -exp(log_p, C) * by)


@triton.jit
def of_x(
    ds, score, lse, scale, temperature, columns, token, d_out, ids_ptr, d_out_ptr, rows, exists, n_cols, n_ids, ignored,
    C: tl.constexpr,
):  # fmt: skip
    """Returns the gradient of x, 0 in greedy rows: from that of scores and those of tokens, the first per row is here."""
    ds += tl.where(columns == token, d_out, 0.0)
    for k in tl.range(1, n_ids if C.MANY else 1):
        another, more = load_gradient(ids_ptr, d_out_ptr, rows, exists, k, n_cols, n_ids, ignored, C)
        ds += tl.where(columns == another, more, 0.0)
    slope = slope_of(scale, temperature, C)
    if C.CAP != 0.0:
        u = score * (temperature * (1.0 / C.CAP))
        slope = slope * (1.0 - u * u)
    none = ds == 0
    if C.TEMPERATURE != "":
        none = none | (temperature == 0)
    if C.HIDES or C.MASKED_ROWS_ZERO:  # what is hidden has no gradient, nor have rows without a finite sum
        none = none | (score == NEG_INF) | (tl.abs(lse) == float("inf")) | (lse != lse)
    return tl.where(none, 0.0, ds * slope)
