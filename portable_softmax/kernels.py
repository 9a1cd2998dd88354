"""Every tl.* line of the package: a fused softmax and its fused gradient, for all vendors.

A tensor is taken as matrices of lines; the elements of a line are next to each other in memory. AXIS 1: a line is a row,
a softmax is taken along it. AXIS 0: a line holds the same column of neighbouring rows, and the softmax is taken across
lines; so an inner dimension of a tensor needs no transposed copy. A program walks tiles of TILE_ROWS rows and TILE_COLS
columns, `tl.num_programs(0)` apart, so any number of programs is correct. A row that fits a tile is read once; a longer
one is read twice, with a running (maximum, sum) in between.

Rules that keep it one kernel on three vendors:
* Lengths of lines and all strides come in units of VECTOR elements. The compilers then see that lines start and end on
  multiples of VECTOR and use 16-byte accesses; the JIT alone would tell them only about multiples of 16.
* Masked loads take their padding from `other=`: a `tl.where` on columns becomes a scalar loop on Ascend's vector unit.
* Offsets of lines are 64 bits wide, offsets within a line 32.
* No parameter is called num_stages: Triton 3.2's interpreter swallows it.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E); GPUs have an instruction for exp2


@triton.jit
def _offsets(rows, cols, line_stride, AXIS: tl.constexpr):
    """Of a tile's elements: [rows, cols] for AXIS 1, [cols, rows] for AXIS 0."""
    if AXIS == 1:
        offsets = tl.expand_dims(rows, 1) * line_stride + tl.expand_dims(cols, 0)
    else:
        offsets = tl.expand_dims(cols, 1) * line_stride + tl.expand_dims(rows, 0)
    return offsets


@triton.jit
def _mask(rows, cols, n_rows, n_cols, AXIS: tl.constexpr):
    return (tl.expand_dims(rows, AXIS) < n_rows) & (tl.expand_dims(cols, 1 - AXIS) < n_cols)


@triton.jit
def _rows(tile, row_tiles, TILE_ROWS: tl.constexpr, AXIS: tl.constexpr):
    """(matrix, rows) of a tile; the rows of AXIS 1 are all in one matrix."""
    if AXIS == 1:
        matrix = tl.cast(0, tl.int64)
        rows = tl.cast(tile, tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    else:
        matrix = tl.cast(tile, tl.int64) // row_tiles
        rows = tl.cast(tl.cast(tile, tl.int64) % row_tiles, tl.int32) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    return matrix, rows


@triton.jit
def _load(
    x_ptr, rows, cols, n_rows, n_cols, line_stride, y_ptr, AXIS: tl.constexpr, NEGATE: tl.constexpr, COMPUTE: tl.constexpr
):
    """A tile as torch sees it: rounded to the output's type first, then negated; -inf outside of the input."""
    mask = _mask(rows, cols, n_rows, n_cols, AXIS)
    padding = float("inf") if NEGATE else -float("inf")
    x = tl.load(x_ptr + _offsets(rows, cols, line_stride, AXIS), mask=mask, other=padding)
    x = x.to(y_ptr.dtype.element_ty).to(COMPUTE)
    return -x if NEGATE else x  # not before: the interpreter keeps bfloat16 as integers, and would negate those


@triton.jit
def _load_gradient(ptr, rows, cols, n_rows, n_cols, line_stride, AXIS: tl.constexpr, COMPUTE: tl.constexpr):
    mask = _mask(rows, cols, n_rows, n_cols, AXIS)
    return tl.load(ptr + _offsets(rows, cols, line_stride, AXIS), mask=mask, other=0.0).to(COMPUTE)


@triton.jit
def _store(ptr, value, rows, cols, n_rows, n_cols, line_stride, AXIS: tl.constexpr):
    mask = _mask(rows, cols, n_rows, n_cols, AXIS)
    tl.store(ptr + _offsets(rows, cols, line_stride, AXIS), value.to(ptr.dtype.element_ty), mask=mask)


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
    VECTOR: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row fits a tile
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row; its logarithm with LOG; of -x with NEGATE."""
    length = n_line_vectors * VECTOR
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    x_stride, y_stride = x_line_vectors * VECTOR, y_line_vectors * VECTOR
    tile_cols = tl.arange(0, TILE_COLS)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    for tile in tl.range(tl.program_id(0), n_matrices * row_tiles, tl.num_programs(0), num_stages=STAGES):
        matrix, rows = _rows(tile, row_tiles, TILE_ROWS, AXIS)
        x_matrix, y_matrix = x_ptr + matrix * x_matrix_vectors * VECTOR, y_ptr + matrix * y_matrix_vectors * VECTOR
        if ONE_TILE:
            x = _load(x_matrix, rows, tile_cols, n_rows, n_cols, x_stride, y_ptr, AXIS, NEGATE, COMPUTE)
            peak = tl.max(x, axis=AXIS)
            e = tl.exp2((x - tl.expand_dims(peak, AXIS)) * LOG2E)
            total = tl.sum(e, axis=AXIS)
            if LOG:
                y = _normalise(x, peak, total, AXIS, LOG)
            else:
                y = e * tl.expand_dims(1.0 / total, AXIS)
            _store(y_matrix, y, rows, tile_cols, n_rows, n_cols, y_stride, AXIS)
        else:
            peak = tl.full((TILE_ROWS,), -float("inf"), COMPUTE)
            total = tl.zeros((TILE_ROWS,), COMPUTE)
            for col in tl.range(0, n_cols, TILE_COLS):
                x = _load(x_matrix, rows, col + tile_cols, n_rows, n_cols, x_stride, y_ptr, AXIS, NEGATE, COMPUTE)
                new_peak = tl.maximum(peak, tl.max(x, axis=AXIS))
                # While a row has shown nothing but -inf, -inf - -inf would poison its sum with nan.
                base = tl.where(new_peak == -float("inf"), 0.0, new_peak)
                e = tl.exp2((x - tl.expand_dims(base, AXIS)) * LOG2E)
                total = total * tl.exp2((peak - base) * LOG2E) + tl.sum(e, axis=AXIS)
                peak = new_peak
            for done in tl.range(0, n_cols, TILE_COLS):
                col = last - done  # backwards: what was read last is still in a cache
                x = _load(x_matrix, rows, col + tile_cols, n_rows, n_cols, x_stride, y_ptr, AXIS, NEGATE, COMPUTE)
                y = _normalise(x, peak, total, AXIS, LOG)
                _store(y_matrix, y, rows, col + tile_cols, n_rows, n_cols, y_stride, AXIS)


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
    VECTOR: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row fits a tile
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """dx = y * (dy - sum(dy * y)) for each row; dy - exp(y) * sum(dy) with LOG; the negative with NEGATE."""
    length = n_line_vectors * VECTOR
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    dx_stride, dy_stride, y_stride = dx_line_vectors * VECTOR, dy_line_vectors * VECTOR, y_line_vectors * VECTOR
    tile_cols = tl.arange(0, TILE_COLS)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    for tile in tl.range(tl.program_id(0), n_matrices * row_tiles, tl.num_programs(0), num_stages=STAGES):
        matrix, rows = _rows(tile, row_tiles, TILE_ROWS, AXIS)
        dx_matrix = dx_ptr + matrix * dx_matrix_vectors * VECTOR
        dy_matrix, y_matrix = dy_ptr + matrix * dy_matrix_vectors * VECTOR, y_ptr + matrix * y_matrix_vectors * VECTOR
        if ONE_TILE:
            dy = _load_gradient(dy_matrix, rows, tile_cols, n_rows, n_cols, dy_stride, AXIS, COMPUTE)
            y = _load_gradient(y_matrix, rows, tile_cols, n_rows, n_cols, y_stride, AXIS, COMPUTE)
            dx = _gradient(dy, y, _share(dy, y, AXIS, LOG), AXIS, LOG, NEGATE)
            _store(dx_matrix, dx, rows, tile_cols, n_rows, n_cols, dx_stride, AXIS)
        else:
            total = tl.zeros((TILE_ROWS,), COMPUTE)
            for col in tl.range(0, n_cols, TILE_COLS):
                dy = _load_gradient(dy_matrix, rows, col + tile_cols, n_rows, n_cols, dy_stride, AXIS, COMPUTE)
                if LOG:
                    y = dy
                else:
                    y = _load_gradient(y_matrix, rows, col + tile_cols, n_rows, n_cols, y_stride, AXIS, COMPUTE)
                total += _share(dy, y, AXIS, LOG)
            for done in tl.range(0, n_cols, TILE_COLS):
                col = last - done
                dy = _load_gradient(dy_matrix, rows, col + tile_cols, n_rows, n_cols, dy_stride, AXIS, COMPUTE)
                y = _load_gradient(y_matrix, rows, col + tile_cols, n_rows, n_cols, y_stride, AXIS, COMPUTE)
                dx = _gradient(dy, y, total, AXIS, LOG, NEGATE)
                _store(dx_matrix, dx, rows, col + tile_cols, n_rows, n_cols, dx_stride, AXIS)
