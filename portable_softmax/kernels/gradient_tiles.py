"""A tile of the gradient: read once, reduced, and written; see __init__.py for what parameters mean."""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import edges_of, piece_of, store
from portable_softmax.kernels.exponents import exp
from portable_softmax.kernels.pieces import get, joined


@triton.jit
def share(dy, y, LOG: tl.constexpr):
    """What elements add to the sum that their row's gradient needs."""
    return dy if LOG else dy * y


@triton.jit
def add_share(shares, dy, y, LOG: tl.constexpr):
    return shares + dy if LOG else tl.fma(dy, y, shares)


@triton.jit
def gradient(dy, y, total, LOG: tl.constexpr, NEGATE: tl.constexpr, EXACT: tl.constexpr):
    if LOG:
        dx = dy - exp(y, EXACT) * total
    else:
        dx = y * (dy - total)
    return -dx if NEGATE else dx


@triton.jit
def load(ptrs, mask, COMPUTE: tl.constexpr):
    return tl.load(ptrs, mask=mask, other=0.0).to(COMPUTE)


@triton.jit
def read(
    dy_matrix,
    y_matrix,
    rows,
    cols,
    n_rows,
    n_cols,
    dy_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """A tile's elements of dy and of y, in pieces; `cols` are those of the first one."""
    dy = None
    y = None
    for k in tl.static_range(PIECES):
        ptrs, mask = piece_of(dy_matrix, rows, cols, n_rows, n_cols, dy_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        dy = joined(dy, load(ptrs, mask, COMPUTE), k, PIECES)
        ptrs, mask = piece_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        y = joined(y, load(ptrs, mask, COMPUTE), k, PIECES)
    return dy, y


@triton.jit
def read_edges(
    dy_matrix,
    y_matrix,
    row,
    part,
    n_cols,
    dy_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The elements of RAGGED rows of dy and y before and after their bodies, for the first of their parts."""
    if RAGGED:
        ptrs, mask = edges_of(dy_matrix, row, part, n_cols, dy_stride, VECTOR)
        dy = load(ptrs, mask, COMPUTE)
        ptrs, mask = edges_of(y_matrix, row, part, n_cols, y_stride, VECTOR)
        y = load(ptrs, mask, COMPUTE)
    else:
        dy = tl.zeros((1,), COMPUTE)
        y = dy
    return dy, y


@triton.jit
def reduce(dy, y, edge_dy, edge_y, part, PIECES: tl.constexpr, RAGGED: tl.constexpr, AXIS: tl.constexpr, LOG: tl.constexpr):
    """The sum of a tile's shares, and of its edges'."""
    shares = None
    for k in tl.static_range(PIECES):
        if k == 0:
            shares = share(get(dy, k, PIECES), get(y, k, PIECES), LOG)
        else:
            shares = add_share(shares, get(dy, k, PIECES), get(y, k, PIECES), LOG)
    total = tl.sum(shares, axis=AXIS)
    if RAGGED:
        if part == 0:  # a constant 0 where a program has the whole row
            total += tl.sum(share(edge_dy, edge_y, LOG), axis=0)
    return total


@triton.jit
def write(
    dx_matrix,
    dy,
    y,
    edge_dy,
    edge_y,
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
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
):
    for k in tl.static_range(PIECES):
        dx = gradient(get(dy, k, PIECES), get(y, k, PIECES), tl.expand_dims(total, AXIS), LOG, NEGATE, EXACT)
        ptrs, mask = piece_of(dx_matrix, rows, cols, n_rows, n_cols, stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        store(ptrs, dx, mask)
    if RAGGED:
        if part == 0:
            edge_ptrs, edge_mask = edges_of(dx_matrix, row, part, n_cols, stride, VECTOR)
            store(edge_ptrs, gradient(edge_dy, edge_y, tl.max(total, axis=0), LOG, NEGATE, EXACT), edge_mask)
