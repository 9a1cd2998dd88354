"""The fused softmax, its gradient, and that of scores: one kernel.

A program takes tiles of rows. For each tile it loads a (x, or dy) and b (y, for a gradient), and reduces them to two statistics
per row. If other programs have other splits of the same rows, they exchange these statistics. Then the program computes the
results and stores them. formulas.py has what is computed, and scores.py what becomes of x first.
"""

import triton
import triton.language as tl

from portable_softmax.kernels.addressing import first_of_split, in_elements, operands_of, rows_of, shape_of, starts_of
from portable_softmax.kernels.exchange import MISSING, slots_of, swap
from portable_softmax.kernels.fallback import do_alone
from portable_softmax.kernels.form import name_of
from portable_softmax.kernels.held import load_edges, load_tile, reduce, store_edges, store_tile
from portable_softmax.kernels.log_probs import (
    chosen_first,
    number_of_row,
    numbers_of,
    pick,
    score_at,
    store_gradients,
)
from portable_softmax.kernels.masks import in_turn, mask_strides, starts_of_mask
from portable_softmax.kernels.scores import factors_of, number_of, of_each_row, with_sink
from portable_softmax.kernels.splits import combine
from portable_softmax.kernels.streamed import reduce_streamed, store_streamed


@triton.jit(repr=name_of)
def softmax_kernel(
    out_ptr, a_ptr, b_ptr, mask_ptr, factors_ptr, sinks_ptr, statistics_ptr,  # each operand that there is not is None
    ids_ptr, picked_ptr, entropies_ptr, lses_ptr,  # chosen columns of rows, their log-probabilities or the gradients of these
    n_lines, length, out_line, a_line,  # lines of a matrix, their length, and strides from line to line: in FORM.unit elements
    n_matrices, out_matrix, a_matrix,  # matrices of a batch, and strides
    n_batches, out_batch, a_batch,
    mask_col, mask_row, mask_matrix, mask_batch,  # a mask's strides, 0 along what it is the same for
    n_ids, ignored,  # chosen columns of a row, and the number that stands for none
    factor,  # the bits of the factor of all rows of scores
    workspace_ptr, epoch,  # memory of the exchange, and this launch's number
    FORM: tl.constexpr,  # see form.py
):  # fmt: skip
    """Walks from tile to tile: load and reduce, exchange, map and store.

    A softmax writes y = exp(x - max(x)) / sum(exp(x - max(x))) of each row, with FORM.log the logarithm of this. A gradient
    writes dx = y * (dy - sum(dy * y)), with FORM.log dx = dy - exp(y) * sum(dy).
    """
    n_rows, n_cols, per_matrix = shape_of(n_lines, length, n_matrices, n_batches, FORM)
    out_line, a_line = in_elements(out_line, a_line, FORM)
    out_matrix, a_matrix = in_elements(out_matrix, a_matrix, FORM)
    out_batch, a_batch = in_elements(out_batch, a_batch, FORM)
    if FORM.mask != "":
        mask_col, mask_row, mask_matrix, mask_batch = mask_strides(mask_col, mask_row, mask_matrix, mask_batch, FORM)
    b_stride = mask_col if FORM.mask != "" else out_line
    factor = factors_ptr if FORM.by_row else number_of(factor)
    group, groups = tl.program_id(0) // FORM.splits, tl.num_programs(0) // FORM.splits
    split = tl.program_id(0) % FORM.splits  # the split of each row of the tile that this program takes
    row_tiles = (n_rows + FORM.tile_rows - 1) // FORM.tile_rows
    tiles = row_tiles if FORM.flat else n_batches * n_matrices * row_tiles
    end, step = tiles if FORM.walks else group + 1, groups if FORM.walks else 1

    for tile in tl.range(group, end, step, num_stages=FORM.stages):
        # Locate: the tile's rows, this program's columns, and the start of each row.
        matrix, line, rows = rows_of(in_turn(tile, row_tiles, n_matrices, FORM), row_tiles, per_matrix, FORM)
        first_col = first_of_split(split, n_cols, FORM) if FORM.splits > 1 else 0
        a, b, lead = operands_of(
            a_ptr, b_ptr, matrix, line, n_matrices, a_line, a_matrix, a_batch, out_line, out_matrix, out_batch, FORM
        )
        if FORM.mask != "":
            b = starts_of_mask(mask_ptr, matrix, line, lead, n_matrices, mask_col, mask_row, mask_matrix, mask_batch, FORM)
        factors = factors_of(factor, matrix, line, per_matrix, n_rows, FORM)

        if FORM.picks != "":
            number = number_of_row(matrix, rows, per_matrix, FORM)
        if FORM.picks == "forward":
            ids, there = chosen_first(ids_ptr, number, rows, split, n_rows, n_cols, n_ids, ignored, FORM)

        # Load, and reduce to two statistics per row: (maximum, sum of exponentials), or (sum, 0) for a gradient.
        edge_a, edge_b = load_edges(a, b, rows, lead, split, n_rows, n_cols, b_stride, factors, FORM)
        tile_a = None
        tile_b = None
        if FORM.held:
            tile_a, tile_b = load_tile(a, b, rows, first_col, lead, n_rows, n_cols, a_line, b_stride, factors, FORM)
        if FORM.picks == "gradient":
            first, second, total, slope = numbers_of(
                statistics_ptr, ids_ptr, picked_ptr, entropies_ptr, lses_ptr, number, rows < n_rows, n_cols,
                per_matrix * n_matrices * n_batches, n_ids, ignored, FORM,
            )  # fmt: skip
        elif FORM.held:
            tile_b, base, first, second, falls = reduce(tile_a, tile_b, edge_a, edge_b, split, n_cols, factors, FORM)
        else:
            first, second, falls = reduce_streamed(
                a, b, edge_a, edge_b, rows, lead, first_col, n_rows, n_cols, a_line, b_stride, factors, FORM
            )

        if FORM.picks == "forward":
            score = score_at(ids, there, a, b, lead, a_line, b_stride, factors, FORM)

        # Exchange them with the programs that have the other splits of these rows.
        if FORM.splits > 1 and FORM.picks == "":
            slots = slots_of(workspace_ptr, tile, FORM)
            firsts, seconds, top = swap(slots, split, first, second, epoch, FORM)
            first, second = combine(firsts, seconds, top, factors, FORM)
        sinks = of_each_row(sinks_ptr, matrix, line, per_matrix, n_rows, FORM) if FORM.sink else 0.0
        first, second = with_sink(first, second, factors, sinks, FORM)

        # Pick; or map and store; if a neighbour has not answered in time, compute its statistics first.
        if FORM.picks == "forward":
            pick(
                picked_ptr, ids_ptr, statistics_ptr, workspace_ptr, epoch, a, b, ids, there, score, first, second, falls, tile,
                matrix, number, rows, lead, split, n_rows, n_cols, per_matrix * n_matrices * n_batches, a_line, b_stride,
                factors, n_ids, ignored, FORM,
            )  # fmt: skip
        elif top == MISSING if FORM.splits > 1 and FORM.picks == "" else False:  # False: the branch is not compiled
            again = tile + (top - MISSING)  # equals `tile`; the compiler does not know, and keeps no register alive
            do_alone(
                out_ptr, a_ptr, b if FORM.mask != "" else b_ptr, workspace_ptr, epoch, firsts, seconds, again, split,
                per_matrix, n_rows, n_cols, n_matrices, out_line, a_line, out_matrix, a_matrix, out_batch, a_batch, b_stride,
                factors, sinks, FORM,
            )  # fmt: skip
        else:
            out = starts_of(out_ptr, matrix, line, n_matrices, out_line, out_matrix, out_batch, FORM)
            if FORM.picks == "gradient":
                store_gradients(
                    out, a, b, tile_a, edge_a, first, second, total, slope, ids_ptr, picked_ptr, number, rows, lead, split,
                    first_col, n_rows, n_cols, out_line, a_line, n_ids, ignored, factors, FORM,
                )  # fmt: skip
            elif FORM.held:
                store_tile(
                    out, tile_a, tile_b, base, first, second, rows, first_col, lead, n_rows, n_cols, out_line, factors, FORM
                )
            else:
                store_streamed(
                    out, a, b, first, first, second, rows, lead, first_col, n_rows, n_cols, out_line, a_line, b_stride, factors,
                    FORM,
                )  # fmt: skip
            if FORM.picks == "":
                store_edges(out, edge_a, edge_b, first, second, rows, lead, split, n_rows, n_cols, factors, FORM)
