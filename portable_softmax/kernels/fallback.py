"""A program whose neighbours have not published in time computes their splits of the rows itself.

It also reads its own split once more.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import first_of_split, operands_of, rows_of, starts_of
from portable_softmax.kernels.exchange import found, is_missing, publish, slots_of, top_of
from portable_softmax.kernels.exponents import base_of
from portable_softmax.kernels.held import load_edges, store_edges
from portable_softmax.kernels.masks import in_turn
from portable_softmax.kernels.scores import with_sink
from portable_softmax.kernels.splits import by_row, combine, reduce_split, splits_of
from portable_softmax.kernels.streamed import reduce_streamed, store_streamed


@triton.jit
def do_alone(
    out_ptr, a_ptr, b_ptr, workspace_ptr, epoch, firsts, seconds, tile, split, per_matrix, n_rows, n_cols,
    n_matrices, out_line, a_line, out_matrix, a_matrix, out_batch, a_batch, b_stride, factors, sinks, FORM: tl.constexpr,
):  # fmt: skip
    """Computes the statistics of all missing splits of a tile's rows, then stores the results of the program's own split.

    A mask comes as pointers to its rows, in place of b_ptr.
    """
    row_tiles = (n_rows + FORM.tile_rows - 1) // FORM.tile_rows
    matrix, line, rows = rows_of(in_turn(tile, row_tiles, n_matrices, FORM), row_tiles, per_matrix, FORM)
    a, b, lead = operands_of(
        a_ptr, b_ptr, matrix, line, n_matrices, a_line, a_matrix, a_batch, out_line, out_matrix, out_batch, FORM
    )
    if FORM.mask != "":
        b = b_ptr
    slots = slots_of(workspace_ptr, tile, FORM)
    for other in tl.range(0, FORM.splits):
        if is_missing(seconds, other, FORM):
            first, second, _ = reduce_again(a, b, rows, lead, other, n_rows, n_cols, a_line, b_stride, factors, FORM)
            publish(slots, other, first, second, epoch, FORM)
            firsts, seconds = found(slots, other, first, second, firsts, seconds, epoch, FORM)
    first, second = combine(firsts, seconds, top_of(firsts, seconds, FORM), factors, FORM)
    first, second = with_sink(first, second, factors, sinks, FORM)
    base = first
    if FORM.held:
        own = tl.where(splits_of(FORM) == split, firsts, -float("inf"))
        base = by_row(base_of(tl.max(own, axis=0)), FORM)
    out = starts_of(out_ptr, matrix, line, n_matrices, out_line, out_matrix, out_batch, FORM)
    edge_a, edge_b = load_edges(a, b, rows, lead, split, n_rows, n_cols, b_stride, factors, FORM)
    first_col = first_of_split(split, n_cols, FORM)
    store_streamed(
        out, a, b, base, first, second, rows, lead, first_col, n_rows, n_cols, out_line, a_line, b_stride, factors, FORM
    )
    store_edges(out, edge_a, edge_b, first, second, rows, lead, split, n_rows, n_cols, factors, FORM)


@triton.jit
def reduce_again(a, b, rows, lead, split, n_rows, n_cols, a_stride, b_stride, factors, FORM: tl.constexpr):
    """Returns (first, second, falls) of a split of rows, the same bits as the program that has this split."""
    edge_a, edge_b = load_edges(a, b, rows, lead, split, n_rows, n_cols, b_stride, factors, FORM)
    first_col = first_of_split(split, n_cols, FORM)
    if FORM.held:
        first, second, falls = reduce_split(
            a, b, edge_a, edge_b, rows, lead, first_col, n_rows, n_cols, a_stride, b_stride, factors, FORM
        )
    else:
        first, second, falls = reduce_streamed(
            a, b, edge_a, edge_b, rows, lead, first_col, n_rows, n_cols, a_stride, b_stride, factors, FORM
        )
    return first, second, falls
