"""Samples of tokens, with their log-probabilities: another ending of the statistics of log_probs.py.

A group of columns is drawn while a row is reduced, and then one of its columns. A row with nan, +inf or no score has id -1.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    ENDS, NEG_INF, along, end_of_split, find_tile, first_column, last_tile, load_per_row,
)  # fmt: skip
from portable_softmax.kernels.exchange import MISSING, left_behind, look, of_rows, of_splits, publish, words_of
from portable_softmax.kernels.groups import NO_GROUP, gumbel, reduce_groups, reduce_tile
from portable_softmax.kernels.scores import fall_of, find_mask, load_scores


@triton.jit
def sample_token_kernel(
    ids_ptr, out_ptr, x_ptr, mask_ptr, scale, temperature, min_p, seed, position, words_ptr,
    n_rows, n_cols, n_heads, n_queries, x_batch, x_head, x_query, m_batch, m_head, m_query, m_col, epoch, C: tl.constexpr,
):  # fmt: skip
    """Draws an id from the softmax of each row, and stores its log-probability."""
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
        key, place = load_integer(seed, rows, exists, C.SEED, C), load_integer(position, rows, exists, C.POSITION, C)
        end, words = end_of_split(past, split, n_cols, C), words_of(words_ptr, tile, C)
        if C.STEP != "map":
            if C.IN_REGISTERS:
                peak, total, _falls, best, at = reduce_tile(x, mask, m_col, lead, end, reads, by, heat, first, key, place, C)
            else:
                peak, total, _falls, best, at = reduce_groups(
                    x, mask, m_col, lead, end, reads, by, heat, first, key, place, 0.0, 1, C
                )
            if C.SPLITS > 1:
                publish(words, split, peak, total, epoch, C)
                publish(words + 2 * C.SPLITS * C.ROWS, split, best, at.to(tl.float32, bitcast=True), epoch, C)
        if split == C.SPLITS - 1 if C.STEP != "reduce" else False:
            if C.SPLITS > 1:
                peak, total, _falls, late = of_splits(words, x, mask, 1, m_col, lead, past, reads, by, heat, epoch, C)
                words += 2 * C.SPLITS * C.ROWS
                bests, ats, highest = look(words, epoch, C) if C.STEP == "" else left_behind(words, C)
                late = late | (tl.max(highest) == MISSING)
                at = tl.where((bests == highest) & (bests != NEG_INF), ats.to(tl.int32, bitcast=True), NO_GROUP)
                at = of_rows(tl.min(at, 0, keep_dims=True), C)
                if late if C.STEP == "" else False:
                    peak, total, _falls, _best, at = reduce_groups(
                        x, mask, m_col, lead, past, reads, by, heat, 0, key, place, 0.0, 1, C
                    )
            ids, score = draw(x, mask, m_col, lead, past, reads, by, heat, key, place, at, 0.0, 1, C)
            none = (at == NO_GROUP) | (total != total)
            if C.MIN_P != "":
                least = peak + tl.log(load_per_row(min_p, rows, exists, C.MIN_P, C))
                below = reads & (score < least)
                if tl.max(below.to(tl.int32)) != 0:
                    _peak, _total, _falls, _best, another = reduce_groups(
                        x, mask, m_col, lead, past, below, by, heat, 0, key, place, least, 2, C
                    )
                    below = below & (another != NO_GROUP)  # min_p of 1 or more
                    other, its_score = draw(x, mask, m_col, lead, past, below, by, heat, key, place, another, least, 2, C)
                    ids, score = tl.where(below, other, ids), tl.where(below, its_score, score)
            log_prob = fall_of(score, peak, heat, C) - tl.log(total)
            tl.store(ids_ptr + along(rows, C), tl.where(none, -1, ids).to(tl.int64), mask=along(exists, C))
            tl.store(out_ptr + along(rows, C), tl.where(none, float("nan"), log_prob), mask=along(exists, C))


@triton.jit
def load_integer(value, rows, exists, KIND: tl.constexpr, C: tl.constexpr):
    """Returns an integer of 64 bits per row, from a pointer to them; [1, 1] if all rows have the same."""
    number = value
    if KIND == "row":
        number = along(tl.load(value + rows, mask=exists, other=0), C)
    else:
        number = tl.full((1, 1), value, tl.int64)
    return number


@triton.jit
def draw(
    x, mask, m_col, lead, past, exists, scale, temperature, seed, position, group, least, DRAW: tl.constexpr, C: tl.constexpr
):
    """Returns (column, its score) per row, drawn from those of a group."""
    place = tl.where(group == NO_GROUP, 0, group) * C.GROUP + tl.expand_dims(tl.arange(0, C.GROUP), 0)
    s = load_scores(x, mask, 0, place, 1, m_col, lead, past, exists, scale, temperature, ENDS, C)
    if DRAW == 2:
        s = tl.where(s < least, NEG_INF, s)
    noisy = s + gumbel(place, seed, position, 2 * DRAW - 1, C)
    if C.TEMPERATURE != "":
        noisy = tl.where(temperature == 0, s, noisy)
    column = tl.min(tl.where(noisy == tl.max(noisy, 1, keep_dims=True), place, NO_GROUP), 1, keep_dims=True)
    return column, tl.max(tl.where(place == column, s, NEG_INF), 1, keep_dims=True)
