"""A tile of the softmax: read once, reduced, and written; see __init__.py for what parameters mean."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import edges_of, load, piece_of, store
from portable_softmax.kernels.exponents import base_of, exp, inverse_of, normalise, scale_of, times
from portable_softmax.kernels.pieces import exp_of, get, joined, max_of


@triton.jit
def read(
    x_matrix,
    y_ptr,
    rows,
    cols,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    NEGATE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """A tile's elements, in pieces; `cols` are those of the first one."""
    x = None
    for k in tl.static_range(PIECES):
        ptrs, mask = piece_of(x_matrix, rows, cols, n_rows, n_cols, stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        x = joined(x, load(ptrs, mask, y_ptr, NEGATE, COMPUTE), k, PIECES)
    return x


@triton.jit
def read_edges(
    x_matrix,
    y_ptr,
    row,
    part,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    NEGATE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The elements of a RAGGED row before and after its body, for the first of its parts."""
    if RAGGED:
        ptrs, mask = edges_of(x_matrix, row, part, n_cols, stride, VECTOR)
        edges = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
    else:
        edges = tl.zeros((1,), COMPUTE)
    return edges


@triton.jit
def reduce(
    x, edges, part, RAGGED: tl.constexpr, PARTIAL: tl.constexpr, PIECES: tl.constexpr, AXIS: tl.constexpr, EXACT: tl.constexpr
):
    """(exp(x - base), base, maximum, sum of the first and of the edges') of rows, or of PARTIAL ones, which may be all -inf."""
    peak = max_of(x, PIECES, AXIS)
    if RAGGED:
        if part == 0:  # a constant 0 where a program has the whole row
            peak = tl.maximum(peak, tl.max(edges, axis=0))
    base = base_of(peak) if PARTIAL else peak
    e, total = exp_of(x, base, PIECES, AXIS, EXACT)
    if RAGGED:
        if part == 0:
            total += tl.sum(exp(edges - tl.max(base, axis=0), EXACT), axis=0)
    return e, base, peak, total


@triton.jit
def write(
    y_matrix,
    x,
    e,
    edges,
    base,
    peak,
    total,
    rows,
    cols,
    row,
    part,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The results of a tile and of its edges, by what is subtracted in e, and the rows' maximum and sum."""
    if PARTS == 1:
        scale, rest = inverse_of(total, EXACT)
    else:
        scale, rest = scale_of(base, peak, total, EXACT)
    for k in tl.static_range(PIECES):
        if LOG:
            y = normalise(get(x, k, PIECES), tl.expand_dims(peak, AXIS), tl.expand_dims(total, AXIS), LOG, EXACT)
        else:
            y = times(get(e, k, PIECES), tl.expand_dims(scale, AXIS), tl.expand_dims(rest, AXIS), EXACT)
        ptrs, mask = piece_of(y_matrix, rows, cols, n_rows, n_cols, stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        store(ptrs, y, mask)
    if RAGGED:
        if part == 0:
            edge_ptrs, edge_mask = edges_of(y_matrix, row, part, n_cols, stride, VECTOR)
            store(edge_ptrs, normalise(edges, tl.max(peak, axis=0), tl.max(total, axis=0), LOG, EXACT), edge_mask)
