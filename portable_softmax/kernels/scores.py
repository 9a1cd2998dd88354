"""From x to the scores of which a softmax is computed: cap * tanh(scale * x / cap) / temperature, then a mask.

Rows with a temperature of 0 are greedy: all weight is on their largest elements, whatever cap and sink are, and an added mask
counts where it is -inf alone. Their scores are not divided, and `shift` makes -inf of all that is below the maximum.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    ELEMENTS, ENDS, HIGHEST, NEG_INF, clamped, exp, find_block, finite, offsets_of_rows, product,
)  # fmt: skip


@triton.jit
def find_mask(mask_ptr, head, query, n_heads, s_batch, s_head, s_query, C: tl.constexpr):
    """Returns pointers to the first elements, or words, of the mask's rows; 0 without a mask."""
    mask = 0
    if C.MASK != "":
        s_query = s_query * C.MASK_UNIT if C.AXIS == 1 else s_query
        mask = mask_ptr + offsets_of_rows(head, query, n_heads, s_batch * C.MASK_UNIT, s_head * C.MASK_UNIT, s_query, C)
    return mask


@triton.jit
def locate(mask, start, m_col, misalignment, row_end, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns (columns, which are visible, vectors with a visible one, what is added); `mask`: 0, pointers or loaded words."""
    columns, shown, vectors = find_block(start, misalignment, row_end, exists, EDGE, C)
    is_block: tl.constexpr = EDGE != ELEMENTS and EDGE != ENDS
    added = 0.0
    if C.MASK == "bits":
        column = columns - misalignment
        if C.MASK_WORDS and is_block:
            words = mask
            if mask.dtype.is_ptr():
                words = load_words(mask, start, m_col, row_end, exists, C)
            words = tl.broadcast_to(tl.expand_dims(words, 2), (words.shape[0], C.BLOCK // 32, 32))
            words = tl.reshape(words, (words.shape[0], C.BLOCK))
        else:
            words = tl.load(mask + (column >> 5) * m_col, mask=shown, other=0)
        byte = words >> (column & 24)  # one shift for neighbors; the bits of theirs are constants where rows are aligned
        shown = shown & ((byte & (tl.full((1, 1), 1, tl.int32) << (column & 7))) != 0)  # bits past a row are no elements
        if (is_block and C.ACCESS > 1) and not C.WHOLE_VECTORS:
            some = ((words >> (columns & (32 - C.ACCESS))) & ((1 << C.ACCESS) - 1)) != 0
            vectors = vectors & tl.max_constancy(some, [1, C.ACCESS])
        else:
            vectors = shown
    elif C.MASK != "":
        ptrs, present = mask, exists
        if C.MASK_COL != 0 or not is_block:
            ptrs, present = mask - misalignment * m_col + columns * m_col, shown if C.WHOLE_VECTORS else vectors
        loaded = tl.load(ptrs, mask=present, other=0)
        if C.MASK == "added":
            added = loaded.to(tl.float32)
        else:
            shown = shown & (loaded != 0)
            if C.ACCESS == 1 or not is_block:
                vectors = vectors & (loaded != 0)
            else:  # as numbers: LLVM would pack predicates into bits, by way of memory
                some = tl.reshape((loaded != 0).to(tl.int32), (loaded.shape[0], loaded.shape[1] // C.ACCESS, C.ACCESS))
                some = tl.broadcast_to(tl.max(some, 2, keep_dims=True), some.shape)
                # The hint is on the comparison: Triton up to 3.7 loses that of a reshape, and then reads x element by element.
                vectors = vectors & tl.max_constancy(tl.reshape(some, loaded.shape) != 0, [1, C.ACCESS])
    return columns, shown, vectors, added


@triton.jit
def load_words(mask, start, m_col, row_end, exists, C: tl.constexpr):
    """Returns a block's words of bits, one for 32 columns."""
    number = tl.expand_dims(start // 32 + tl.arange(0, C.BLOCK // 32), 0)
    return tl.load(mask + number * m_col, mask=(number * 32 < row_end) & exists, other=0)


@triton.jit
def load_scores(ptrs, added, shown, vectors, scale, temperature, C: tl.constexpr):
    """Returns scores; -inf where the row has no element or a mask hides it. Vectors without a visible element are not read."""
    score = tl.load(ptrs, mask=vectors, other=NEG_INF).to(tl.float32)
    if C.SCALE != "":
        score = product(score, scale, C)
    plain = score  # of greedy rows
    if C.CAP != 0.0:
        plain = clamped(score, HIGHEST)  # a cap makes infinite scores finite
        score = capped(score, C)
    if C.TEMPERATURE != "":
        score = product(score, inverse_of(temperature), C)
    if C.MASK == "added":
        score += added
        plain = tl.where(added == NEG_INF, added, plain)
    if C.TEMPERATURE != "" and (C.CAP != 0.0 or C.MASK == "added"):
        score = tl.where(temperature == 0, plain, score)
    if C.SELECT:  # what is computed of rows that do not exist is not stored
        score = tl.where(shown, score, NEG_INF)
    return score


@triton.jit
def load_score(x, mask, column, m_col, misalignment, scale, temperature, C: tl.constexpr):
    """Returns scores of columns anywhere, of adjacent elements; -inf for a column of -1."""
    column, shown, vectors, added = locate(mask, column, m_col, misalignment, column + 1, column >= 0, ELEMENTS, C)
    return load_scores(x + column, added, shown, vectors, scale, temperature, C)


@triton.jit
def inverse_of(temperature):
    """Returns 1 / temperature, finite; 1 for greedy rows."""
    return clamped(1.0 / (temperature + (temperature == 0).to(tl.float32)), HIGHEST)


@triton.jit
def capped(score, C: tl.constexpr):
    """Returns cap * tanh(score / cap).

    EXACT takes tanh(u) = 2 * t / (1 + t * t) of t = tanh(u / 2), a rational function that was fitted to |u| / 2 <= 4.6, up to
    0.14 * 2**-24 of tanh(u); above, tanh(u) rounds to 1. Without FUSED too: nothing is selected.
    """
    if C.EXACT or not C.FUSED:
        v = clamped(score * (0.5 / C.CAP), 4.6)
        z = v * v
        p = (z * 0.0018167089438065886 + 0.11896266788244247) * z + 1.0
        q = ((z * 7.771158561808988e-05 + 0.019249416887760162) * z + 0.45229578018188477) * z + 1.0
        t = p * v / q
        tanh = (t + t) / (t * t + 1.0)
    else:
        e = exp(tl.abs(score) * (-2.0 / C.CAP), C)
        tanh = (1.0 - e) / (1.0 + e)
        tanh = tl.where(score < 0, -tanh, tanh)
    return product(tanh, tl.full((1, 1), C.CAP, tl.float32), C)


@triton.jit
def slope_of(scale, temperature, C: tl.constexpr):
    """Returns the derivative of scores by x but for that of a cap; 0 for greedy rows."""
    return tl.where(temperature == 0, 0.0, scale * inverse_of(temperature)) if C.TEMPERATURE != "" else scale


@triton.jit
def shift(score, peak, temperature, C: tl.constexpr, IN_SUM: tl.constexpr = False):
    """Returns differences to a maximum; -inf for all below it in greedy rows, or IN_SUM what has no weight from 1e-36 on."""
    shifted = score - peak
    if C.TEMPERATURE != "":
        gain = (temperature == 0).to(tl.float32) * HIGHEST + 1.0
        shifted = shifted * gain if IN_SUM else shifted * gain * gain * gain  # the smallest difference becomes infinite
    return shifted


@triton.jit
def add_sink(peak, total, sink_ptr, rows, exists, temperature, C: tl.constexpr):
    """Returns (maximum, sum) of rows with their sinks; those of rows without a score make them 0 with MASKED_ROWS_ZERO."""
    if C.SINK or C.MASKED_ROWS_ZERO:
        empty = (peak == NEG_INF) & (total == 0)  # a maximum leaves nan out, the sum has it
        if C.SINK:
            sink = tl.load(sink_ptr + rows, mask=exists, other=0.0)
            if C.TEMPERATURE != "":
                sink = tl.where(temperature == 0, NEG_INF, sink)
            top = tl.maximum(finite(peak), sink)
            total = total * exp(peak - top, C) + exp(sink - top, C)
            peak = top
        peak, total = tl.where(empty, 0.0, peak), tl.where(empty, 1.0, total)
    return peak, total


@triton.jit
def pack_kernel(words_ptr, ids_ptr, n_ids, row_ids, n_cols, n_words, BLOCK: tl.constexpr):
    """Sets the bits of ids, `row_ids` of each row, in words that are 0; ids that are no column set none."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + at, mask=at < n_ids, other=-1)
    word = at // row_ids * n_words + (ids >> 5)
    bit = tl.full((BLOCK,), 1, tl.int32) << (ids & 31).to(tl.int32)
    tl.atomic_or(words_ptr + word, bit, mask=(ids >= 0) & (ids < n_cols), sem="relaxed")
