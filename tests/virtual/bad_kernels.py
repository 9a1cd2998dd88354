"""Mistakes that kernels for Ascend may hold. Each kernel subtracts the maximum of each row from it, the last something more."""

import triton
import triton.language as tl


@triton.jit
def modulo_rows(y, x, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Rows past the end wrap around instead of being masked."""
    cols = tl.arange(0, COLS)
    for row in tl.range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        rows = (row + tl.arange(0, ROWS)) % n_rows
        mask = cols[None, :] < n_cols
        tile = tl.load(x + rows[:, None] * stride + cols[None, :], mask=mask, other=-float("inf"))
        tl.store(y + rows[:, None] * stride + cols[None, :], tile - tl.max(tile, 1)[:, None], mask=mask)


@triton.jit
def where_on_columns(y, x, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Columns past the end get -inf by tl.where instead of `other=`."""
    cols = tl.arange(0, COLS)
    for row in tl.range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        rows = row + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        tile = tl.load(x + rows[:, None] * stride + cols[None, :], mask=mask, other=0.0)
        tile = tl.where(cols[None, :] < n_cols, tile, -float("inf"))
        tl.store(y + rows[:, None] * stride + cols[None, :], tile - tl.max(tile, 1)[:, None], mask=mask)


@triton.jit
def block_pointers(y, x, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Their loads have no `other=`, which leaves only tl.where."""
    for row in tl.range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        source = tl.make_block_ptr(x, (n_rows, n_cols), (stride, 1), (row, 0), (ROWS, COLS), (1, 0))
        target = tl.make_block_ptr(y, (n_rows, n_cols), (stride, 1), (row, 0), (ROWS, COLS), (1, 0))
        tile = tl.load(source, boundary_check=(0, 1))
        tile = tl.where(tl.arange(0, COLS)[None, :] < n_cols, tile, -float("inf"))
        tl.store(target, tile - tl.max(tile, 1)[:, None], boundary_check=(0, 1))


@triton.jit
def reversed_columns(y, x, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Columns that are not next to each other in memory."""
    cols = tl.arange(0, COLS)
    for row in tl.range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        rows = row + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        offsets = rows[:, None] * stride + (n_cols - 1 - cols)[None, :]
        tile = tl.load(x + offsets, mask=mask, other=-float("inf"))
        tl.store(y + offsets, tile - tl.max(tile, 1)[:, None], mask=mask)


@triton.jit
def long_column_numbers(y, x, stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """64-bit numbers of columns as data: as offsets alone they would cost nothing."""
    cols = tl.arange(0, COLS)
    long = cols.to(tl.int64)
    for row in tl.range(tl.program_id(0) * ROWS, n_rows, tl.num_programs(0) * ROWS):
        rows = row + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        tile = tl.load(x + rows[:, None] * stride + cols[None, :], mask=mask, other=-float("inf"))
        tile += (long * long)[None, :].to(tl.float32)
        tl.store(y + rows[:, None] * stride + cols[None, :], tile - tl.max(tile, 1)[:, None], mask=mask)
