"""A fused softmax and its fused gradient, for all vendors.

A tensor is taken as matrices of lines; the elements of a line are next to each other in memory. AXIS 1: a line is a row,
a softmax is taken along it. AXIS 0: a line holds the same column of neighbouring rows, and the softmax is taken across
lines; so an inner dimension of a tensor needs no transposed copy. A program walks tiles of TILE_ROWS rows and TILE_COLS
columns, `tl.num_programs(0)` apart, so any number of programs is correct. A row that fits a tile is read once; a longer
one is read twice, with a running (maximum, sum) in between; or PARTS programs read a tile of it each, and exchange theirs.

Rules that keep it one kernel on three vendors:
* Lengths of lines and all strides come in units of VECTOR elements, from which compilers make 16-byte accesses; the JIT
  alone would tell them only about multiples of 16. RAGGED rows start anywhere, and come in elements: their columns are
  counted from the last multiple of VECTOR before them, whole vectors are a row's body, and what is left its two edges.
* Masked loads take their padding from `other=`: a `tl.where` on columns becomes a scalar loop on Ascend's vector unit.
* Offsets of lines are 64 bits wide, offsets within a line 32.
* No parameter is called num_stages: Triton 3.2's interpreter swallows it.
"""

import triton
import triton.language as tl

from portable_softmax.addressing import body_of, edges_of, load, rows_of, store
from portable_softmax.exchange import LOG2E, add, collect, group_of, publish, swap


@triton.jit
def _normalise(x, peak, total, AXIS: tl.constexpr, LOG: tl.constexpr):
    """The softmax of elements of rows, or its logarithm, by the rows' maximum and sum of exp(x - maximum)."""
    shifted = x - tl.expand_dims(peak, AXIS)
    if LOG:
        y = shifted - tl.expand_dims(tl.log(total), AXIS)
    else:
        y = tl.exp2(shifted * LOG2E) * tl.expand_dims(1.0 / total, AXIS)
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
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
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
    tile_cols = part * TILE_COLS + tl.arange(0, TILE_COLS)
    end = n_cols + VECTOR - 1 if RAGGED else n_cols
    last = (end - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    if EXCHANGE == "wait":
        group_ptr, turn = group_of(words_ptr, group, PARTS)
    for tile in tl.range(group, n_matrices * row_tiles, groups, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        x_matrix, y_matrix = x_ptr + matrix * x_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        peak, total = tl.full((TILE_ROWS,), -float("inf"), COMPUTE), tl.zeros((TILE_ROWS,), COMPUTE)
        if RAGGED:
            edges, edges_mask = edges_of(rows, part, n_rows, n_cols, x_stride, VECTOR)
            edge = load(x_matrix + edges, edges_mask, y_ptr, NEGATE, COMPUTE)
        if ONE_TILE:
            at, mask = body_of(rows, tile_cols, n_rows, n_cols, x_stride, VECTOR, RAGGED, AXIS)
            x = load(x_matrix + at, mask, y_ptr, NEGATE, COMPUTE)
        if ONE_TILE and EXCHANGE == "none" and not RAGGED:
            peak = tl.max(x, axis=AXIS)
            total = tl.sum(tl.exp2((x - tl.expand_dims(peak, AXIS)) * LOG2E), axis=AXIS)
        elif EXCHANGE != "collect":
            if RAGGED:
                peak, total = add(peak, total, edge, 1.0, AXIS)
            if ONE_TILE:
                peak, total = add(peak, total, x, 1.0, AXIS)
            else:
                for col in tl.range(0, end, TILE_COLS):
                    at, mask = body_of(rows, col + tile_cols, n_rows, n_cols, x_stride, VECTOR, RAGGED, AXIS)
                    x = load(x_matrix + at, mask, y_ptr, NEGATE, COMPUTE)
                    peak, total = add(peak, total, x, 1.0, AXIS)
        if EXCHANGE == "wait":
            peak, total = swap(group_ptr, turn, part, peak, total, PARTS, LANES, False)
            turn += 1
        elif EXCHANGE == "publish":
            publish(words_ptr + rows * PARTS, part, peak, total)
        elif EXCHANGE == "collect":
            peak, total = collect(words_ptr + rows * PARTS, 0, PARTS, LANES, False, False)
        if EXCHANGE != "publish":
            if ONE_TILE:
                at, mask = body_of(rows, tile_cols, n_rows, n_cols, y_stride, VECTOR, RAGGED, AXIS)
                store(y_matrix + at, _normalise(x, peak, total, AXIS, LOG), mask)
            else:
                for done in tl.range(0, end, TILE_COLS):
                    cols = last - done + tile_cols  # backwards: what was read last is still in a cache
                    at, mask = body_of(rows, cols, n_rows, n_cols, x_stride, VECTOR, RAGGED, AXIS)
                    x = load(x_matrix + at, mask, y_ptr, NEGATE, COMPUTE)
                    at, mask = body_of(rows, cols, n_rows, n_cols, y_stride, VECTOR, RAGGED, AXIS)
                    store(y_matrix + at, _normalise(x, peak, total, AXIS, LOG), mask)
            if RAGGED:
                edges, edges_mask = edges_of(rows, part, n_rows, n_cols, y_stride, VECTOR)
                store(y_matrix + edges, _normalise(edge, peak, total, AXIS, LOG), edges_mask)
    if EXCHANGE == "wait":
        tl.store(group_ptr, turn, mask=part == 0)


@triton.jit
def _share(dy, y, AXIS: tl.constexpr, LOG: tl.constexpr):
    """What elements of rows add to the sum that their gradient needs."""
    return tl.sum(dy if LOG else dy * y, axis=AXIS)


@triton.jit
def _gradient(dy, y, total, AXIS: tl.constexpr, LOG: tl.constexpr, NEGATE: tl.constexpr):
    if LOG:
        dx = dy - tl.exp2(y * LOG2E) * tl.expand_dims(total, AXIS)
    else:
        dx = y * (dy - tl.expand_dims(total, AXIS))
    return -dx if NEGATE else dx


@triton.jit
def _load_gradient(ptrs, mask, COMPUTE: tl.constexpr):
    return tl.load(ptrs, mask=mask, other=0.0).to(COMPUTE)


@triton.jit
def softmax_backward_kernel(
    dx_ptr,
    dy_ptr,
    y_ptr,
    n_lines,
    n_line_vectors,
    dx_line_vectors,
    dy_line_vectors,
    y_line_vectors,
    n_matrices,
    dx_matrix_vectors,
    dy_matrix_vectors,
    y_matrix_vectors,
    words_ptr,  # this and what follows: as softmax_kernel
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    ONE_TILE: tl.constexpr,
    PARTS: tl.constexpr,
    EXCHANGE: tl.constexpr,
    LANES: tl.constexpr,
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """dx = y * (dy - sum(dy * y)) for each row; dy - exp(y) * sum(dy) with LOG; the negative with NEGATE."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    dx_stride, dy_stride, y_stride = dx_line_vectors * UNIT, dy_line_vectors * UNIT, y_line_vectors * UNIT
    group, groups = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    part = tl.program_id(0) % PARTS
    tile_cols = part * TILE_COLS + tl.arange(0, TILE_COLS)
    end = n_cols + VECTOR - 1 if RAGGED else n_cols
    last = (end - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    if EXCHANGE == "wait":
        group_ptr, turn = group_of(words_ptr, group, PARTS)
    for tile in tl.range(group, n_matrices * row_tiles, groups, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        dx_matrix = dx_ptr + matrix * dx_matrix_vectors * UNIT
        dy_matrix, y_matrix = dy_ptr + matrix * dy_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        total = tl.zeros((TILE_ROWS,), COMPUTE)
        if RAGGED:
            edges, edges_mask = edges_of(rows, part, n_rows, n_cols, dy_stride, VECTOR)
            edge_dy = _load_gradient(dy_matrix + edges, edges_mask, COMPUTE)
            edges, edges_mask = edges_of(rows, part, n_rows, n_cols, y_stride, VECTOR)
            edge_y = _load_gradient(y_matrix + edges, edges_mask, COMPUTE)
        if ONE_TILE:
            at, mask = body_of(rows, tile_cols, n_rows, n_cols, dy_stride, VECTOR, RAGGED, AXIS)
            dy = _load_gradient(dy_matrix + at, mask, COMPUTE)
            at, mask = body_of(rows, tile_cols, n_rows, n_cols, y_stride, VECTOR, RAGGED, AXIS)
            y = _load_gradient(y_matrix + at, mask, COMPUTE)
        if EXCHANGE != "collect":
            if ONE_TILE:
                total += _share(dy, y, AXIS, LOG)
            else:
                for col in tl.range(0, end, TILE_COLS):
                    cols = col + tile_cols
                    at, mask = body_of(rows, cols, n_rows, n_cols, dy_stride, VECTOR, RAGGED, AXIS)
                    dy = _load_gradient(dy_matrix + at, mask, COMPUTE)
                    y = dy
                    if not LOG:
                        at, mask = body_of(rows, cols, n_rows, n_cols, y_stride, VECTOR, RAGGED, AXIS)
                        y = _load_gradient(y_matrix + at, mask, COMPUTE)
                    total += _share(dy, y, AXIS, LOG)
            if RAGGED:
                total += _share(edge_dy, edge_y, AXIS, LOG)
        if EXCHANGE == "wait":
            _, total = swap(group_ptr, turn, part, total, tl.zeros((TILE_ROWS,), COMPUTE), PARTS, LANES, True)
            turn += 1
        elif EXCHANGE == "publish":
            publish(words_ptr + rows * PARTS, part, total, tl.zeros((TILE_ROWS,), COMPUTE))
        elif EXCHANGE == "collect":
            _, total = collect(words_ptr + rows * PARTS, 0, PARTS, LANES, False, True)
        if EXCHANGE != "publish":
            if ONE_TILE:
                at, mask = body_of(rows, tile_cols, n_rows, n_cols, dx_stride, VECTOR, RAGGED, AXIS)
                store(dx_matrix + at, _gradient(dy, y, total, AXIS, LOG, NEGATE), mask)
            else:
                for done in tl.range(0, end, TILE_COLS):
                    cols = last - done + tile_cols
                    at, mask = body_of(rows, cols, n_rows, n_cols, dy_stride, VECTOR, RAGGED, AXIS)
                    dy = _load_gradient(dy_matrix + at, mask, COMPUTE)
                    at, mask = body_of(rows, cols, n_rows, n_cols, y_stride, VECTOR, RAGGED, AXIS)
                    y = _load_gradient(y_matrix + at, mask, COMPUTE)
                    at, mask = body_of(rows, cols, n_rows, n_cols, dx_stride, VECTOR, RAGGED, AXIS)
                    store(dx_matrix + at, _gradient(dy, y, total, AXIS, LOG, NEGATE), mask)
            if RAGGED:
                edges, edges_mask = edges_of(rows, part, n_rows, n_cols, dx_stride, VECTOR)
                store(dx_matrix + edges, _gradient(edge_dy, edge_y, total, AXIS, LOG, NEGATE), edges_mask)
    if EXCHANGE == "wait":
        tl.store(group_ptr, turn, mask=part == 0)
