"""The fused softmax, for all vendors; its gradient is in gradient_kernel.py.

A tensor is taken as matrices of lines; the elements of a line are next to each other in memory. AXIS 1: a line is a row,
a softmax is taken along it. AXIS 0: a line holds the same column of neighbouring rows, and the softmax is taken across
lines; so an inner dimension of a tensor needs no transposed copy. A program walks tiles of TILE_ROWS rows and TILE_COLS
columns, `tl.num_programs(0)` apart, so any number of programs is correct. A row that fits a tile is read once; a longer
one is read twice, with a running (maximum, sum) in between; or PARTS programs read a tile of it each, and exchange theirs.
What a program reads once, it holds in PIECES of a power of two columns each.

Rules that keep it one kernel on three vendors:
* Lengths of lines and all strides come in units of VECTOR elements, from which compilers make 16-byte accesses; the JIT
  alone would tell them only about multiples of 16. RAGGED rows start anywhere, and come in elements: their columns are
  counted from the last multiple of VECTOR before them, whole vectors are a row's body, and what is left its two edges; a
  tile holds one.
* Masked loads take their padding from `other=`: a `tl.where` on columns becomes a scalar loop on Ascend's vector unit.
* Offsets of lines are 64 bits wide, offsets within a line 32.
* No parameter is called num_stages: Triton 3.2's interpreter swallows it.
"""

import triton
import triton.language as tl

from portable_softmax.addressing import body_of, edges_of, load, piece_of, rows_of, store
from portable_softmax.exchange import LOG2E, add, base_of, collect, group_of, publish, swap
from portable_softmax.pieces import exp_of, get, joined, max_of


@triton.jit
def _normalise(x, peak, total, LOG: tl.constexpr):
    """The softmax of elements of rows, or its logarithm, by the rows' maximum and sum of exp(x - maximum)."""
    if LOG:
        y = x - peak - tl.log(total)
    else:
        y = tl.exp2((x - peak) * LOG2E) * (1.0 / total)
    return y


@triton.jit
def softmax_kernel(
    y_ptr,
    x_ptr,
    n_lines,
    n_line_vectors,
    y_line_vectors,
    x_line_vectors,
    n_matrices,
    y_matrix_vectors,
    x_matrix_vectors,
    words_ptr,  # of the exchange; None without
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,  # then the rows of y are to those of x as if both had the same stride
    PADDED: tl.constexpr,  # whether tiles end elsewhere than rows do
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row, or a program's part of it, fits a tile
    PARTS: tl.constexpr,  # programs that share a row
    EXCHANGE: tl.constexpr,  # none; wait: for each other; publish, then collect: in two launches
    LANES: tl.constexpr,  # of a warp
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row; its logarithm with LOG; of -x with NEGATE."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    x_stride, y_stride = x_line_vectors * UNIT, y_line_vectors * UNIT
    group, groups = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    part = tl.program_id(0) % PARTS
    tile_cols = part * TILE_COLS + tl.arange(0, TILE_COLS // PIECES)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    if EXCHANGE == "wait":
        group_ptr, turn = group_of(words_ptr, group, PARTS)
    for tile in tl.range(group, n_matrices * row_tiles, groups, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        x_matrix, y_matrix = x_ptr + matrix * x_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        peak, total = tl.full((TILE_ROWS,), -float("inf"), COMPUTE), tl.zeros((TILE_ROWS,), COMPUTE)
        if RAGGED:
            edge_ptrs, edge_mask = edges_of(x_matrix, tile, part, n_cols, x_stride, VECTOR)
            edge = load(edge_ptrs, edge_mask, y_ptr, NEGATE, COMPUTE)
        if ONE_TILE:
            x = None
            for k in tl.static_range(PIECES):
                ptrs, mask = piece_of(
                    x_matrix, rows, tile_cols, n_rows, n_cols, x_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS
                )
                x = joined(x, load(ptrs, mask, y_ptr, NEGATE, COMPUTE), k, PIECES)
        if EXCHANGE != "collect":
            if RAGGED:
                peak = tl.maximum(peak, tl.max(edge, axis=0))
            if ONE_TILE:
                peak = tl.maximum(peak, max_of(x, PIECES, AXIS))
                base = peak if EXCHANGE == "none" else base_of(peak)
                e, total = exp_of(x, base, PIECES, AXIS)
            else:
                for col in tl.range(0, n_cols, TILE_COLS):
                    cols = col + tile_cols
                    ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    x = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
                    peak, total = add(peak, total, x, 1.0, AXIS)
                base = base_of(peak)
            if RAGGED:
                total += tl.sum(tl.exp2((edge - tl.max(base, axis=0)) * LOG2E), axis=0)
        if EXCHANGE == "wait":
            peak, total = swap(group_ptr, turn, part, peak, total, PARTS, LANES, False)
            turn += 1
        elif EXCHANGE == "publish":
            publish(words_ptr + rows * PARTS, part, peak, total)
        elif EXCHANGE == "collect":
            peak, total = collect(words_ptr + tile * PARTS, 0, PARTS, LANES, False, False)
        if EXCHANGE != "publish":
            if ONE_TILE:
                if not LOG and EXCHANGE != "collect":
                    scale = (1.0 if EXCHANGE == "none" else tl.exp2((base - peak) * LOG2E)) / total
                for k in tl.static_range(PIECES):
                    if LOG or EXCHANGE == "collect":
                        y = _normalise(get(x, k, PIECES), tl.expand_dims(peak, AXIS), tl.expand_dims(total, AXIS), LOG)
                    else:
                        y = get(e, k, PIECES) * tl.expand_dims(scale, AXIS)
                    ptrs, mask = piece_of(
                        y_matrix, rows, tile_cols, n_rows, n_cols, y_stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS
                    )
                    store(ptrs, y, mask)
            else:
                for done in tl.range(0, n_cols, TILE_COLS):
                    cols = last - done + tile_cols  # backwards: what was read last is still in a cache
                    ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    x = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
                    y = _normalise(x, tl.expand_dims(peak, AXIS), tl.expand_dims(total, AXIS), LOG)
                    ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                    store(ptrs, y, mask)
            if RAGGED:
                edge_ptrs, edge_mask = edges_of(y_matrix, tile, part, n_cols, y_stride, VECTOR)
                store(edge_ptrs, _normalise(edge, tl.max(peak, axis=0), tl.max(total, axis=0), LOG), edge_mask)
    if EXCHANGE == "wait":
        tl.store(group_ptr, turn, mask=part == 0)
