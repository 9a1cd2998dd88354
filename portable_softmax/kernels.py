"""Every tl.* line of the package: one fused softmax for all vendors.

A program walks tiles of TILE_ROWS x TILE_COLS elements, `tl.num_programs(0)` apart, so any number of programs is
correct. A row that fits a tile is read once; a longer one is read twice, with a running (maximum, sum) in between.

Rules that keep it one kernel on three vendors:
* Lengths and strides come in units of VECTOR elements. The compilers then see that rows start and end on multiples of
  VECTOR and use 16-byte accesses; the JIT alone would tell them only about multiples of 16.
* Masked loads take -inf from `other=`: a `tl.where` on columns becomes a scalar loop on Ascend's vector unit.
* Row offsets are 64 bits wide, column offsets 32.
* No parameter is called num_stages: Triton 3.2's interpreter swallows it.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E); GPUs have an instruction for exp2


@triton.jit
def _load(x_ptr, rows, cols, n_rows, n_cols, row_stride, y_ptr, COMPUTE: tl.constexpr):
    """A tile [TILE_ROWS, TILE_COLS] as torch sees it: rounded to the output's type first, -inf outside of the input."""
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * row_stride + cols[None, :], mask=mask, other=-float("inf"))
    return x.to(y_ptr.dtype.element_ty).to(COMPUTE)


@triton.jit
def _store(y_ptr, y, rows, cols, n_rows, n_cols, row_stride):
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    tl.store(y_ptr + rows[:, None] * row_stride + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_kernel(
    y_ptr,
    x_ptr,
    n_rows,
    n_col_vectors,
    x_row_vectors,
    y_row_vectors,
    VECTOR: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row fits a tile
    STAGES: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """y[r, c] = exp(x[r, c] - max(x[r])) / sum(exp(x[r] - max(x[r])))"""
    n_cols = n_col_vectors * VECTOR
    x_row_stride = x_row_vectors * VECTOR
    y_row_stride = y_row_vectors * VECTOR
    tile_rows = tl.arange(0, TILE_ROWS)
    tile_cols = tl.arange(0, TILE_COLS)
    first, step = tl.program_id(0) * TILE_ROWS, tl.num_programs(0) * TILE_ROWS
    for row in tl.range(first, n_rows, step, num_stages=STAGES):
        rows = tl.cast(row, tl.int64) + tile_rows
        if ONE_TILE:
            x = _load(x_ptr, rows, tile_cols, n_rows, n_cols, x_row_stride, y_ptr, COMPUTE)
            e = tl.exp2((x - tl.max(x, axis=1)[:, None]) * LOG2E)
            y = e * (1.0 / tl.sum(e, axis=1))[:, None]
            _store(y_ptr, y, rows, tile_cols, n_rows, n_cols, y_row_stride)
        else:
            peak = tl.full((TILE_ROWS,), -float("inf"), COMPUTE)
            total = tl.zeros((TILE_ROWS,), COMPUTE)
            for col in tl.range(0, n_cols, TILE_COLS):
                x = _load(x_ptr, rows, col + tile_cols, n_rows, n_cols, x_row_stride, y_ptr, COMPUTE)
                new_peak = tl.maximum(peak, tl.max(x, axis=1))
                # While a row has shown nothing but -inf, -inf - -inf would poison its sum with nan.
                base = tl.where(new_peak == -float("inf"), 0.0, new_peak)
                total = total * tl.exp2((peak - base) * LOG2E) + tl.sum(tl.exp2((x - base[:, None]) * LOG2E), axis=1)
                peak = new_peak
            scale = 1.0 / total
            for col in tl.range(0, n_cols, TILE_COLS):
                x = _load(x_ptr, rows, col + tile_cols, n_rows, n_cols, x_row_stride, y_ptr, COMPUTE)
                y = tl.exp2((x - peak[:, None]) * LOG2E) * scale[:, None]
                _store(y_ptr, y, rows, col + tile_cols, n_rows, n_cols, y_row_stride)
