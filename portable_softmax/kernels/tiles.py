"""A tile that is read once, in pieces, and the edges of RAGGED rows: loaded, reduced, stored."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import edges_of, piece_of, pointers
from portable_softmax.kernels.directions import add_shares, finish, first_shares, load, scale_from, shares, weights
from portable_softmax.kernels.exchange import of_rows
from portable_softmax.kernels.exponents import base_of
from portable_softmax.kernels.pieces import get, joined, max_of


@triton.jit
def load_tile(
    a, b, rows, cols, lead, n_rows, n_cols, a_stride, b_stride,
    PIECES: tl.constexpr, PARTS: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr, LIES: tl.constexpr,
    BACKWARD: tl.constexpr, NEGATE: tl.constexpr, ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(a, b) of a tile, in pieces; `cols` are those of the first one."""
    tile_a = None
    tile_b = None
    for k in tl.static_range(PIECES):
        piece, mask = piece_of(rows, cols, lead, n_rows, n_cols, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        piece_a, piece_b = load(a, b, piece, mask, a_stride, b_stride, AXIS, LIES, BACKWARD, NEGATE, ROUND, COMPUTE)
        tile_a, tile_b = joined(tile_a, piece_a, k, PIECES), joined(tile_b, piece_b, k, PIECES)
    return tile_a, tile_b


@triton.jit
def load_edges(
    a, b, rows, lead, part, n_rows, n_cols, VECTOR: tl.constexpr, RAGGED: tl.constexpr,
    BACKWARD: tl.constexpr, NEGATE: tl.constexpr, ROUND: tl.constexpr, COMPUTE: tl.constexpr,
):  # fmt: skip
    """(a, b) of RAGGED rows before and after their bodies, for the first of their parts: [rows, 2 * VECTOR] each."""
    if RAGGED:
        cols, mask = edges_of(rows, lead, part, n_rows, n_cols, VECTOR)
        edge_a, edge_b = load(a, b, cols, mask, 0, 0, 1, 1, BACKWARD, NEGATE, ROUND, COMPUTE)
    else:
        edge_a = tl.zeros((1,), COMPUTE)
        edge_b = edge_a
    return edge_a, edge_b


@triton.jit
def reduce(
    a, b, edge_a, edge_b, part, n_cols, PIECES: tl.constexpr, PARTS: tl.constexpr, RAGGED: tl.constexpr, AXIS: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """(b, base, first, second) of a tile and its edges: b in pieces, the numbers of each row, or of parts of rows."""
    peak = None
    base = None
    if not BACKWARD:
        peak = max_of(a, PIECES, AXIS)
        if RAGGED:
            if part == 0:  # a constant 0 where a program has the whole row
                peak = tl.maximum(peak, of_rows(tl.max(edge_a, axis=1)))
        base = peak if PARTS == 1 else base_of(peak)  # a part may be all -inf
    tile_b = None
    sums = None
    for k in tl.static_range(PIECES):
        piece_a = get(a, k, PIECES)
        piece_b = weights(piece_a, get(b, k, PIECES), base, AXIS, BACKWARD, EXACT)
        if k == 0:
            sums = first_shares(piece_a, piece_b, n_cols, PIECES == 1 and PARTS > 1, BACKWARD, LOG)
        else:
            sums = add_shares(sums, piece_a, piece_b, BACKWARD, LOG)
        tile_b = joined(tile_b, piece_b, k, PIECES)
    total = tl.sum(sums, axis=AXIS)
    if RAGGED:
        if part == 0:
            edges = shares(edge_a, weights(edge_a, edge_b, base, None, BACKWARD, EXACT), BACKWARD, LOG)
            total += of_rows(tl.sum(edges, axis=1))
    if BACKWARD:
        base, first, second = total, total, tl.zeros_like(total)
    else:
        first, second = peak, total
    return tile_b, base, first, second


@triton.jit
def store(ptrs, value, mask):
    """Stores results, rounded to the type of the tensor."""
    tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)


@triton.jit
def store_tile(
    out, a, b, base, first, second, rows, cols, lead, n_rows, n_cols, out_stride,
    PIECES: tl.constexpr, PARTS: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr, LIES: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Maps a tile, by the numbers of its rows, and stores the results."""
    scale, rest = scale_from(base, first, second, PARTS == 1, BACKWARD, EXACT)
    for k in tl.static_range(PIECES):
        piece_a, piece_b = get(a, k, PIECES), get(b, k, PIECES)
        result = finish(piece_a, piece_b, first, second, scale, rest, AXIS, BACKWARD, LOG, NEGATE, EXACT)
        piece, mask = piece_of(rows, cols, lead, n_rows, n_cols, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        store(pointers(out, piece, out_stride, LIES), result, mask)


@triton.jit
def store_edges(
    out, a, b, first, second, rows, lead, part, n_rows, n_cols, VECTOR: tl.constexpr, RAGGED: tl.constexpr,
    BACKWARD: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Maps what load_edges gave, and stores the results."""
    if RAGGED:
        if part == 0:
            cols, mask = edges_of(rows, lead, 0, n_rows, n_cols, VECTOR)
            scale, rest = scale_from(first, first, second, True, BACKWARD, EXACT)
            b = weights(a, b, first, None, BACKWARD, EXACT)
            result = finish(a, b, first, second, scale, rest, None, BACKWARD, LOG, NEGATE, EXACT)
            store(pointers(out, cols, 0, 1), result, mask)
