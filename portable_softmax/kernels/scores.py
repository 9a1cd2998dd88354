"""From x to the scores whose softmax is computed: cap * tanh(scale * x / cap) / temperature, then a mask; and their reduction.

Rows with a temperature of 0 are greedy: all weight is on their largest elements, whatever cap and sink are, and an added mask
counts where it is -inf alone. Their scores are not divided, and `fall_of` makes -inf of all that is below the maximum.
"""

# isort: skip_file
import triton
import triton.language as tl

from portable_softmax.kernels.common import (
    BOTH, ENDS, HIGHEST, NEG_INF, along, bounded, exp, finite, fma, get, hidden, in_vectors, of_row, offsets_of,
    offsets_of_rows,
    places, put,
)  # fmt: skip


@triton.jit
def find_mask(mask_ptr, head, query, n_heads, s_batch, s_head, s_query, s_col, lead, C: tl.constexpr):
    """Returns pointers to the mask at place 0, per row."""
    mask = lead
    if C.MASK != "":
        s_query = s_query * C.MASK_UNIT if C.AXIS == 1 else s_query
        offset = offsets_of_rows(head, query, n_heads, s_batch * C.MASK_UNIT, s_head * C.MASK_UNIT, s_query, C)
        mask = mask_ptr + along(offset, C)
        if C.MASK != "bits":
            mask -= lead * s_col
    return mask


@triton.jit
def causal_past(query, n_cols, n_queries, lead, past, C: tl.constexpr):
    """Returns the end of the columns that are visible, per row."""
    if C.CAUSAL != "":
        seen = along(query.to(tl.int32), C) + 1
        if C.CAUSAL == "lower_right":
            seen += (n_cols - n_queries).to(tl.int32)
        past = tl.minimum(past, lead + tl.maximum(seen, 0))
    return past


@triton.jit
def load_scores(
    x, mask, column, place, x_col, m_col, lead, past, exists, scale, temperature, EDGE: tl.constexpr, C: tl.constexpr
):
    """Returns scores; -inf where the row has no element or a mask hides it. A block begins at `column`; ENDS are anywhere."""
    row, vectors = of_row(place, lead, past, exists, EDGE, C), in_vectors(place, lead, past, exists, EDGE, C)
    if C.MASK == "bits":
        words = load_words(mask, column, place, m_col, lead, past, exists, EDGE, C)
        column_of = place - lead
        byte = words >> (column_of & 24)  # one shift for neighbours; the bits of theirs are constants where rows are aligned
        row = (byte & (tl.full((1, 1), 1, tl.int32) << (column_of & 7))) != 0
        vectors = row
        if (EDGE < ENDS and C.ACCESS > 1) and not C.UNALIGNED:  # x is not read in vectors without a bit
            some = ((words >> (place & (32 - C.ACCESS))) & ((1 << C.ACCESS) - 1)) != 0
            vectors = in_vectors(place, lead, past, exists, EDGE, C) & tl.max_constancy(some, [1, C.ACCESS])
    elif C.MASK != "":
        at = mask if C.MASK_COL == 0 else mask + place * m_col
        loaded = tl.load(at, mask=exists if C.MASK_COL == 0 else row if C.UNALIGNED else vectors, other=0)
        if C.MASK == "bool":
            row = row & (loaded != 0)
            vectors = row if EDGE == ENDS else vectors & any_of_vector(loaded, C)
    score = tl.load(x + offsets_of(place, x_col, C), mask=vectors, other=NEG_INF).to(tl.float32)
    if C.SCALE != "":
        score = product(score, scale, C)
    plain = score
    if C.CAP != 0.0:
        plain = clamped(score)  # a cap makes infinite scores finite
        score = capped(score, C)
    if C.TEMPERATURE != "":
        score = product(score, inverse_of(temperature, C), C)
    if C.MASK == "added":
        added = loaded.to(tl.float32)
        score += added
        plain = tl.where(added == NEG_INF, added, plain)
    if C.TEMPERATURE != "" and (C.CAP != 0.0 or C.MASK == "added"):
        score = of_greedy(plain, score, temperature, C)
    if C.HIDES or ((C.SELECT or C.VECTOR_MASKS) and EDGE > 0):  # what is computed of rows that do not exist is not stored
        score = tl.where(row, score, NEG_INF)
    return score


@triton.jit
def load_words(mask, column, place, m_col, lead, past, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns the word of a mask's bits for every element, loaded once for 32 of an aligned block."""
    WIDTH: tl.constexpr = place.shape[1]
    if (EDGE < ENDS and WIDTH >= 32) and (C.AXIS == 1 and not C.UNALIGNED):
        number = places(column // 32, WIDTH // 32, C)
        words = tl.load(mask + number * m_col, mask=(number * 32 < past) & exists, other=0)
        if EDGE % 2 == 1:  # bits behind the row are no elements
            behind = tl.minimum(tl.maximum(number * 32 + 32 - past, 0), 31)
            words = words & (tl.full((1, 1), 0xFFFFFFFF, tl.uint32) >> behind.to(tl.uint32)).to(tl.int32, bitcast=True)
        words = tl.broadcast_to(tl.expand_dims(words, 2), (words.shape[0], WIDTH // 32, 32))
        words = tl.reshape(words, (words.shape[0], WIDTH))
    else:
        words = tl.load(mask + ((place - lead) >> 5) * m_col, mask=of_row(place, lead, past, exists, EDGE, C), other=0)
    return words


@triton.jit
def any_of_vector(shown, C: tl.constexpr):
    """Returns True in vectors of a boolean mask's block that have True anywhere: x is not read in others."""
    if C.ACCESS > 1:
        # As numbers: LLVM would pack predicates into bits, some of them by way of memory.
        vectors = tl.reshape(shown.to(tl.int32), (shown.shape[0], shown.shape[1] // C.ACCESS, C.ACCESS))
        some = tl.broadcast_to(tl.max(vectors, 2, keep_dims=True), vectors.shape)
        # The hint is on the comparison: Triton up to 3.7 loses that of a reshape, and then reads x element by element.
        shown = tl.max_constancy(tl.reshape(some, shown.shape) != 0, [1, C.ACCESS])
    return shown != 0


@triton.jit
def product(x, factor, C: tl.constexpr):
    """Returns x * factor, rounded ahead of any sum: -0.0 is added, in a form that no compiler folds."""
    return fma(x, factor, tl.where(factor == factor, -0.0, factor)) if C.FUSED else x * factor


@triton.jit
def greedy(temperature):
    """Returns 1.0 for greedy rows, else 0.0: arithmetic on them takes the place of selects."""
    return (temperature == 0).to(tl.float32)


@triton.jit
def of_greedy(plain, score, temperature, C: tl.constexpr):
    """Returns `plain` for greedy rows, else `score`. Without FUSED both are finite, but for an added mask."""
    if C.FUSED or C.MASK == "added":
        score = tl.where(temperature == 0, plain, score)
    else:
        score = score * (1.0 - greedy(temperature)) + plain * greedy(temperature)
    return score


@triton.jit
def inverse_of(temperature, C: tl.constexpr):
    """Returns 1 / temperature, finite; 1 for greedy rows."""
    if C.FUSED:
        inverse = tl.where(temperature == 0, 1.0, clamped(1.0 / temperature))
    else:
        inverse = clamped(1.0 / (temperature + greedy(temperature)))
    return inverse


@triton.jit
def clamped(x):
    """Returns numbers with those that are infinite replaced by finite ones."""
    x = tl.maximum(x, -HIGHEST, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(x, HIGHEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def capped(score, C: tl.constexpr):
    """Returns cap * tanh(score / cap). EXACT takes Cephes' polynomial where 1 - exp cancels."""
    u = score * (1.0 / C.CAP)
    if C.FUSED:
        size = tl.abs(u)
        e = exp(-2.0 * size, C)
        tanh = (1.0 - e) / (1.0 + e)
        if C.EXACT:
            z = u * u
            p = fma(fma(z, -5.70498872745e-3, 2.06390887954e-2), z, -5.37397155531e-2)
            p = fma(fma(p, z, 1.33314422036e-1), z, -3.33332819422e-1)
            tanh = tl.where(size < 0.625, fma(p * z, size, size), tanh)
        tanh = tl.where(u < 0, -tanh, tanh)
    else:
        tanh = tanh_of_halves(u)
    return product(tanh, tl.full((1, 1), C.CAP, tl.float32), C)


@triton.jit
def tanh_of_halves(u):
    """Returns tanh(u) = 2 * t / (1 + t * t) of t = tanh(u / 2), a rational function: nothing is selected.

    It was fitted to |u| / 2 <= 4.6, up to 0.14 * 2**-24 of tanh(u); above, tanh(u) rounds to 1.
    """
    v = tl.maximum(u * 0.5, -4.6, propagate_nan=tl.PropagateNan.ALL)
    v = tl.minimum(v, 4.6, propagate_nan=tl.PropagateNan.ALL)
    z = v * v
    p = (z * 0.0018167089438065886 + 0.11896266788244247) * z + 1.0
    q = ((z * 7.771158561808988e-05 + 0.019249416887760162) * z + 0.45229578018188477) * z + 1.0
    t = p * v / q
    return (t + t) / (t * t + 1.0)


@triton.jit
def slope_of(scale, temperature, C: tl.constexpr):
    """Returns the derivative of scores by x but for that of a cap; 0 for greedy rows."""
    return tl.where(temperature == 0, 0.0, scale * inverse_of(temperature, C)) if C.TEMPERATURE != "" else scale


@triton.jit
def fall_of(score, peak, temperature, C: tl.constexpr):
    """Returns differences to a maximum; -inf for all below it in greedy rows."""
    fall = score - peak
    if C.TEMPERATURE != "":
        if C.FUSED:
            fall = tl.where((temperature == 0) & (fall < 0), NEG_INF, fall)
        else:  # three times: so does the smallest difference become infinite
            gain = greedy(temperature) * HIGHEST + 1.0
            fall = fall * gain * gain * gain
    return fall


# ---------------------------------------------------------------- row statistics: maximum, sum of exp(score - maximum)
@triton.jit
def load_tile(x, mask, x_col, m_col, lead, past, exists, scale, temperature, first, C: tl.constexpr):
    """Returns (the scores of a program's columns, their maximum), by one reduction for all blocks."""
    scores = None
    highest = None
    for k in tl.static_range(C.BLOCKS):
        place = places(first + k * C.BLOCK, C.BLOCK, C)
        s = load_scores(
            x, mask, first + k * C.BLOCK, place, x_col, m_col, lead, past, exists, scale, temperature,
            2 * (k == 0) + (k >= C.WHOLE), C,
        )  # fmt: skip
        scores = put(scores, s.to(x.dtype.element_ty) if C.AS_LOADED != "" else s, C)
        highest = s if k == 0 else tl.maximum(highest, s)
    return scores, tl.max(highest, C.AXIS, keep_dims=True)


@triton.jit
def add_powers(scores, base, temperature, C: tl.constexpr):
    """Returns (exp(score - base) of a tile, their sum, with ENTROPY the sum of exp(score - base) * (score - base))."""
    powers = None
    sums = None
    falls = None
    for k in tl.static_range(C.BLOCKS):
        fall = fall_of(hidden(get(scores, k, C), 2, C).to(tl.float32), base, temperature, C)
        e = exp(fall, C)
        powers = put(powers, e, C)
        sums = hidden(e if k == 0 else sums + e, 1, C)
        if C.ENTROPY:
            term = e * bounded(fall)
            falls = term if k == 0 else falls + term
    total = tl.sum(sums, C.AXIS, keep_dims=True)
    return powers, total, tl.sum(falls, C.AXIS, keep_dims=True) if C.ENTROPY else total


@triton.jit
def reduce_row(x, mask, x_col, m_col, lead, past, exists, scale, temperature, first, C: tl.constexpr):
    """Returns (maximum, sum, falls) of columns from `first` on as `load_tile` and `add_powers` do, read a block at a time.

    LANES columns of a block have statistics of their own, and there is one reduction over them.
    """
    peaks = filled(NEG_INF, C)
    sums = filled(0.0, C)
    falls = sums
    heat = tl.expand_dims(temperature, C.AXIS) if C.TEMPERATURE != "" else temperature
    for column in tl.range(first, tl.max(past), C.STREAM):
        place = places(column, C.STREAM, C)
        s = load_scores(x, mask, column, place, x_col, m_col, lead, past, exists, scale, temperature, BOTH, C)
        s = in_lanes(s, C)
        higher = tl.maximum(peaks, tl.max(s, C.AXIS))
        base = finite(higher)
        drop = fall_of(peaks, base, temperature, C)
        fall = fall_of(s, tl.expand_dims(base, C.AXIS), heat, C)
        shrink, e = exp(drop, C), exp(fall, C)
        if C.ENTROPY:
            falls = shrink * (falls + sums * bounded(drop)) + tl.sum(e * bounded(fall), C.AXIS)
        sums = sums * shrink + tl.sum(e, C.AXIS)
        peaks = higher
    peak = tl.max(peaks, C.AXIS, keep_dims=True)
    total, falls = merge(peaks, peak, sums, falls, temperature, C.AXIS, C)
    return peak, total, falls


@triton.jit
def merge(peaks, peak, sums, falls, temperature, AXIS: tl.constexpr, C: tl.constexpr):
    """Returns (sum, falls) of rows from those of their parts, which have maxima; `peak` is that of the row."""
    drop = fall_of(peaks, finite(peak), temperature, C)
    shrink = exp(drop, C)
    total = tl.sum(sums * shrink, AXIS, keep_dims=True)
    return total, tl.sum(shrink * (falls + sums * bounded(drop)), AXIS, keep_dims=True) if C.ENTROPY else total


@triton.jit
def filled(value, C: tl.constexpr):
    """Returns one number for all lanes of a tile's rows."""
    return tl.full((C.ROWS, C.LANES) if C.AXIS == 1 else (C.LANES, C.ROWS), value, tl.float32)


@triton.jit
def in_lanes(block, C: tl.constexpr):
    """Returns a block with one more axis, AXIS, along which columns share a lane."""
    return tl.reshape(block, (C.ROWS, C.STREAM // C.LANES, C.LANES) if C.AXIS == 1 else (C.STREAM // C.LANES, C.LANES, C.ROWS))


@triton.jit
def add_sink(peak, total, sink_ptr, rows, exists, temperature, C: tl.constexpr):
    """Returns (maximum, sum) of rows with their sinks; those of rows without a score make them 0 with MASKED_ROWS_ZERO."""
    if C.SINK or C.MASKED_ROWS_ZERO:
        empty = (peak == NEG_INF) & (total == 0)  # a maximum leaves nan out, the sum has it
        if C.SINK:
            sink = along(tl.load(sink_ptr + rows, mask=exists, other=0.0), C)
            if C.TEMPERATURE != "":
                sink = tl.where(temperature == 0, NEG_INF, sink)
            top = tl.maximum(finite(peak), sink)
            total = total * exp(peak - top, C) + exp(sink - top, C)
            peak = top
        peak, total = tl.where(empty, 0.0, peak), tl.where(empty, 1.0, total)
    return peak, total
