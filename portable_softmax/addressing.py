"""Which elements of memory a tile stands for; see kernels.py for lines, AXIS, VECTOR and RAGGED."""

import triton
import triton.language as tl


@triton.jit
def rows_of(tile, row_tiles, TILE_ROWS: tl.constexpr, AXIS: tl.constexpr):
    """(matrix, rows) of a tile; the rows of AXIS 1 are all in one matrix."""
    if AXIS == 1:
        matrix = tl.cast(0, tl.int64)
        rows = tl.cast(tile, tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    else:
        matrix = tl.cast(tile, tl.int64) // row_tiles
        rows = tl.cast(tl.cast(tile, tl.int64) % row_tiles, tl.int32) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    return matrix, rows


@triton.jit
def body_of(rows, cols, n_rows, n_cols, stride, VECTOR: tl.constexpr, RAGGED: tl.constexpr, AXIS: tl.constexpr):
    """Offsets and mask of a tile's elements: [rows, cols] for AXIS 1, [cols, rows] for AXIS 0."""
    mask = tl.expand_dims(rows, AXIS) < n_rows
    if RAGGED:
        starts = tl.expand_dims(rows * stride, 1)
        lead = (starts % VECTOR).to(tl.int32)
        offsets = starts // VECTOR * VECTOR + tl.expand_dims(cols, 0)
        vectors = tl.expand_dims(cols // VECTOR, 0)
        mask = mask & (vectors * VECTOR >= lead) & (vectors < (lead + n_cols) // VECTOR)
    elif AXIS == 1:
        offsets = tl.expand_dims(rows, 1) * stride + tl.expand_dims(cols, 0)
        mask = mask & (tl.expand_dims(cols, 0) < n_cols)
    else:
        offsets = tl.expand_dims(cols, 1) * stride + tl.expand_dims(rows, 0)
        mask = mask & (tl.expand_dims(cols, 1) < n_cols)
    return offsets, mask


@triton.jit
def edges_of(rows, part, n_rows, n_cols, stride, VECTOR: tl.constexpr):
    """Offsets and mask of the elements of RAGGED rows before and after their bodies: [rows, 2 * VECTOR]."""
    starts = tl.expand_dims(rows * stride, 1)
    lead = (starts % VECTOR).to(tl.int32)
    place = tl.expand_dims(tl.arange(0, 2 * VECTOR), 0)
    after = (lead + n_cols) // VECTOR * VECTOR - VECTOR
    cols = tl.where(place < VECTOR, place, place + after)
    mask = (tl.expand_dims(rows, 1) < n_rows) & (part == 0) & (cols >= lead) & (cols < lead + n_cols)
    mask = mask & ((place >= VECTOR) | (lead > 0))  # with no lead, a row's first vector belongs to its body
    return starts // VECTOR * VECTOR + cols, mask


@triton.jit
def load(ptrs, mask, y_ptr, NEGATE: tl.constexpr, COMPUTE: tl.constexpr):
    """Elements as torch sees them: rounded to the output's type first, then negated; -inf outside of the input."""
    padding = float("inf") if NEGATE else -float("inf")
    x = tl.load(ptrs, mask=mask, other=padding).to(y_ptr.dtype.element_ty).to(COMPUTE)
    return -x if NEGATE else x  # not before: the interpreter keeps bfloat16 as integers, and would negate those


@triton.jit
def store(ptrs, value, mask):
    tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)
