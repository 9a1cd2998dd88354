"""A tile that is read once and held, and the edges of unaligned rows: loaded, reduced, stored.

The columns of a tile are held in FORM.blocks tensors of a power of two each, because Triton has no tensors of another length.
So a program holds little more than its row, not up to twice as much. The operations of the blocks follow each other, block
after block: if all loads came first, the compiler would keep more registers alive. A tile of one block is a tensor, a tile of
several blocks a tuple of tensors.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import block_of, edges_of, pointers
from portable_softmax.kernels.exponents import base_of, fma
from portable_softmax.kernels.formulas import add_shares, falls_of, finish, load, of_rows, scale_from, shares, store, weights
from portable_softmax.kernels.masks import before_diagonal
from portable_softmax.kernels.splits import first_shares, nothing


@triton.jit
def joined(tile, block, BLOCK: tl.constexpr, FORM: tl.constexpr):
    """Returns the tile with one more block."""
    if FORM.blocks == 1:
        more = block
    elif BLOCK == 0:
        more = (block,)
    else:
        more = tile + (block,)  # noqa: RUF005 - Triton does not know (*tile, block)
    return more


@triton.jit
def get(tile, BLOCK: tl.constexpr, FORM: tl.constexpr):
    """Returns one block of the tile."""
    return tile if FORM.blocks == 1 else tile[BLOCK]


@triton.jit
def load_tile(a, b, rows, first_col, lead, n_rows, n_cols, a_stride, b_stride, factor, FORM: tl.constexpr):
    """Loads (a, b) of a tile, in blocks."""
    tile_a = None
    tile_b = None
    for k in tl.static_range(FORM.blocks):
        cols, mask = block_of(None if FORM.causal != "" else rows, first_col, lead, n_rows, n_cols, k, FORM)
        seen, read = before_diagonal(mask, rows, cols, lead, n_rows, n_cols, FORM)
        block_a, block_b = load(a, b, cols, read, seen, a_stride, b_stride, factor, FORM)
        tile_a, tile_b = joined(tile_a, block_a, k, FORM), joined(tile_b, block_b, k, FORM)
    return tile_a, tile_b


@triton.jit
def load_edges(a, b, rows, lead, split, n_rows, n_cols, b_stride, factor, FORM: tl.constexpr):
    """Loads (a, b) of unaligned rows on both sides of their bodies: [rows, 2 * FORM.vector] each.

    The first split of a row has both edges; in all other splits the mask is empty.
    """
    if FORM.unaligned:
        cols, mask = edges_of(rows, lead, split, n_rows, n_cols, FORM)
        seen, read = before_diagonal(mask, rows, cols, lead, n_rows, n_cols, FORM)
        edge_a, edge_b = load(a, b, cols, read, seen, 0, b_stride, factor, FORM)
    else:
        edge_a = tl.zeros((1,), tl.float32)
        edge_b = edge_a
    return edge_a, edge_b


@triton.jit
def peak_of(tile, edge, split, FORM: tl.constexpr):
    """Returns the maximum of each row, or split of a row, with its edges."""
    most = get(tile, 0, FORM)
    for k in tl.static_range(1, FORM.blocks):
        most = tl.maximum(most, get(tile, k, FORM))
    peak = tl.max(most, axis=FORM.axis)
    if FORM.unaligned:
        if split == 0:  # `split` is the constant 0 if a program has the whole row
            peak = tl.maximum(peak, of_rows(tl.max(edge, axis=1)))
    return peak


@triton.jit
def reduce(a, b, edge_a, edge_b, split, n_cols, factor, FORM: tl.constexpr):
    """Returns (b, base, first, second, falls) of a tile and its edges: b in blocks, and statistics of rows, or of their splits.

    With FORM.entropy, falls is the sum of exp(a - base) * (a - base).
    """
    peak = None
    base = None
    if not FORM.backward:
        peak = peak_of(a, edge_a, split, FORM)
        base = base_of(peak) if FORM.in_parts else peak  # a split may be all -inf
    tile_b = None
    sums = None
    falls = None
    if FORM.entropy:
        falls = nothing(n_cols, FORM)
    for k in tl.static_range(FORM.blocks):
        block_a = get(a, k, FORM)
        block_b = weights(block_a, get(b, k, FORM), base, factor, FORM.axis, FORM)
        if k == 0:
            sums = first_shares(block_a, block_b, n_cols, FORM)
        else:
            sums = add_shares(sums, block_a, block_b, FORM)
        if FORM.entropy:
            falls = fma(block_b, falls_of(block_a, base, factor, FORM.axis, FORM), falls)
        tile_b = joined(tile_b, block_b, k, FORM)
    total = tl.sum(sums, axis=FORM.axis)
    falls = tl.sum(falls, axis=FORM.axis) if FORM.entropy else total
    if FORM.unaligned:
        if split == 0:
            edges = shares(edge_a, weights(edge_a, edge_b, base, factor, None, FORM), FORM)
            total += of_rows(tl.sum(edges, axis=1))
            if FORM.entropy:
                falls += of_rows(tl.sum(edges * falls_of(edge_a, base, factor, None, FORM), axis=1))
    if FORM.backward:
        base, first, second = total, total, tl.zeros_like(total)
    else:
        first, second = peak, total
    return tile_b, base, first, second, falls


@triton.jit
def store_tile(out, a, b, base, first, second, rows, first_col, lead, n_rows, n_cols, out_stride, factor, FORM: tl.constexpr):
    """Computes the results of a tile from the statistics of its rows, and stores them."""
    scale, rest = scale_from(base, first, second, factor, FORM.splits == 1 and not FORM.sink, FORM)
    for k in tl.static_range(FORM.blocks):
        result = finish(get(a, k, FORM), get(b, k, FORM), first, second, scale, rest, factor, FORM.axis, FORM)
        cols, mask = block_of(rows, first_col, lead, n_rows, n_cols, k, FORM)
        store(pointers(out, cols, out_stride, FORM.axis), result, mask)


@triton.jit
def store_edges(out, a, b, first, second, rows, lead, split, n_rows, n_cols, factor, FORM: tl.constexpr):
    """Computes the results of the edges that load_edges gave, and stores them."""
    if FORM.unaligned:
        if split == 0:
            cols, mask = edges_of(rows, lead, 0, n_rows, n_cols, FORM)
            scale, rest = scale_from(first, first, second, factor, True, FORM)
            b = weights(a, b, first, factor, None, FORM)
            result = finish(a, b, first, second, scale, rest, factor, None, FORM)
            store(pointers(out, cols, 0, 1), result, mask)
