"""A program whose neighbours have not published in time does their part of a row, and its own once more."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import lead_of, starts_of
from portable_softmax.kernels.directions import combine
from portable_softmax.kernels.exchange import found, highest_of, is_missing
from portable_softmax.kernels.exponents import base_of
from portable_softmax.kernels.tiles import load_edges, store_edges
from portable_softmax.kernels.twice import reduce_part, store_again


@triton.jit
def do_alone(
    out_ptr, a_ptr, b_ptr, row_words, launch, firsts, seconds, row, part, n_cols, out_stride, a_stride, b_stride,
    TILE_COLS: tl.constexpr, PIECES: tl.constexpr, PARTS: tl.constexpr, LANES: tl.constexpr, POLL: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
    ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """Finds the numbers of the parts of a row that are missing, then stores the results of a program's own part."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    rows = tl.cast(row, tl.int64) + tl.arange(0, 1)
    lead = lead_of(row, a_stride, VECTOR, RAGGED)
    a = starts_of(a_ptr, row, 0, rows, 1, a_stride, 0, 0, VECTOR, RAGGED, 1, 1, True)
    b = starts_of(b_ptr, row, 0, rows, 1, b_stride, 0, 0, VECTOR, RAGGED, 1, 1, True)
    end = n_cols + VECTOR  # no more pieces than the row has
    for other in tl.range(0, PARTS):
        if is_missing(seconds, other, LANES):
            edge_a, edge_b = load_edges(a, b, lead, other, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE)
            first_col = other * TILE_COLS
            first, second = reduce_part(
                a, b, edge_a, edge_b, rows, lead, first_col, tl.minimum(first_col + TILE_COLS, end), n_cols, WIDTH,
                VECTOR, RAGGED, PADDED, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
            )  # fmt: skip
            firsts, seconds = found(row_words, other, first, second, firsts, seconds, launch, PARTS, LANES, POLL, BACKWARD)
    first, second = combine(firsts, seconds, highest_of(firsts, seconds, BACKWARD), BACKWARD, EXACT)
    own_first = tl.max(tl.where(tl.arange(0, LANES) == part, firsts, -float("inf")), axis=0)
    base = tl.full((1,), base_of(own_first), tl.float32)
    out = starts_of(out_ptr, row, 0, rows, 1, out_stride, 0, 0, VECTOR, RAGGED, 1, 1, True)
    edge_a, edge_b = load_edges(a, b, lead, part, n_cols, VECTOR, RAGGED, BACKWARD, NEGATE, ROUND, COMPUTE)
    first_col = part * TILE_COLS
    store_again(
        out, a, b, base, first, second, rows, lead, first_col, tl.minimum(first_col + TILE_COLS, end), 1, n_cols, 0, 0, 0,
        WIDTH, False, VECTOR, RAGGED, PADDED, 1, BACKWARD, LOG, NEGATE, EXACT, ROUND, COMPUTE,
    )  # fmt: skip
    store_edges(out, edge_a, edge_b, first, second, lead, part, n_cols, VECTOR, RAGGED, BACKWARD, LOG, NEGATE, EXACT)
