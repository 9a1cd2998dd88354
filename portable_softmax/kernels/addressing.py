"""Which elements of memory a tile stands for; see __init__.py for lines, AXIS, VECTOR, RAGGED and PIECES."""

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
def body_of(
    ptr,
    rows,
    cols,
    n_rows,
    n_cols,
    stride,
    FIRST: tl.constexpr,  # whether columns may lie before those of a RAGGED row
    LAST: tl.constexpr,  # whether columns may lie behind those of a row
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    AXIS: tl.constexpr,
):
    """Pointers and mask of elements: [rows, cols] for AXIS 1, [cols, rows] for AXIS 0."""
    if rows.shape[0] == 1:
        mask = tl.full((1, 1), True, tl.int1)  # there is no tile without a row
    else:
        mask = tl.expand_dims(rows, AXIS) < n_rows
    if RAGGED:
        starts = tl.expand_dims(rows * stride, 1)
        lead = (starts % VECTOR).to(tl.int32)
        ptrs = ptr + starts // VECTOR * VECTOR + tl.expand_dims(cols, 0)
        vectors = tl.expand_dims(cols // VECTOR, 0)
        if FIRST:
            mask = mask & (vectors * VECTOR >= lead)
        if LAST:
            mask = mask & (vectors < (lead + n_cols) // VECTOR)
    elif AXIS == 1:
        ptrs = ptr + tl.expand_dims(rows, 1) * stride + tl.expand_dims(cols, 0)
    else:
        ptrs = ptr + tl.expand_dims(cols, 1) * stride + tl.expand_dims(rows, 0)
    if LAST and not RAGGED:
        mask = mask & (tl.expand_dims(cols, 1 - AXIS) < n_cols)
    return ptrs, mask


@triton.jit
def piece_of(
    ptr,
    rows,
    cols,
    n_rows,
    n_cols,
    stride,
    PIECE: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    AXIS: tl.constexpr,
):
    """body_of a piece of a program's tile; `cols` are those of its first one."""
    FIRST: tl.constexpr = PIECE == 0
    LAST: tl.constexpr = (PIECE == PIECES - 1 or PARTS > 1) and PADDED
    piece_cols = PIECE * cols.shape[0] + cols
    return body_of(ptr, rows, piece_cols, n_rows, n_cols, stride, FIRST, LAST, VECTOR, RAGGED, AXIS)


@triton.jit
def edges_of(ptr, row, part, n_cols, stride, VECTOR: tl.constexpr):
    """Pointers and mask of what belongs to a RAGGED row before and after its body: [2 * VECTOR]."""
    start = tl.cast(row, tl.int64) * stride
    lead = (start % VECTOR).to(tl.int32)
    place = tl.arange(0, 2 * VECTOR)
    cols = tl.where(place < VECTOR, place, (lead + n_cols) // VECTOR * VECTOR - VECTOR + place)
    mask = (part == 0) & (cols >= lead) & (cols < lead + n_cols)
    mask = mask & ((place >= VECTOR) | (lead > 0))  # with no lead, a row's first vector belongs to its body
    return ptr + start // VECTOR * VECTOR + cols, mask


@triton.jit
def load(ptrs, mask, y_ptr, NEGATE: tl.constexpr, COMPUTE: tl.constexpr):
    """Elements as torch sees them: rounded to the output's type first, then negated; -inf outside of the input."""
    padding = float("inf") if NEGATE else -float("inf")
    x = tl.load(ptrs, mask=mask, other=padding).to(y_ptr.dtype.element_ty).to(COMPUTE)
    return -x if NEGATE else x  # not before: the interpreter keeps bfloat16 as integers, and would negate those


@triton.jit
def store(ptrs, value, mask):
    tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)
