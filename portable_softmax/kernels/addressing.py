"""Elements of memory that a tile stands for; see __init__.py for lines, AXIS, VECTOR, RAGGED and PIECES.

Operands differ in where their rows start, in their strides, and the first one from the others in what is next to each other
(LIES); in nothing else: one mask serves them all. Rows are [rows], columns of them [1, cols] or [rows, cols] for AXIS 1,
[cols, 1] for AXIS 0.
"""

import triton
import triton.language as tl


@triton.jit
def rows_of(tile, row_tiles, per_matrix, TILE_ROWS: tl.constexpr, DEPTH: tl.constexpr, FLAT: tl.constexpr):
    """(matrix, line, number) of a tile's rows; `number` is that in their matrix unless FLAT, as then they lie in several."""
    if FLAT:
        number = tl.cast(tile, tl.int64) * TILE_ROWS + tl.arange(0, TILE_ROWS)
        if DEPTH == 1:
            matrix, line = tl.cast(0, tl.int64), number
        else:
            matrix, line = number // per_matrix, number % per_matrix
    else:
        matrix = tl.cast(tile, tl.int64) // row_tiles
        number = tl.cast(tl.cast(tile, tl.int64) % row_tiles, tl.int32) * TILE_ROWS + tl.arange(0, TILE_ROWS)
        line = number
    return matrix, line, number


@triton.jit
def starts_of(
    ptr, matrix, line, n_matrices, stride, matrix_stride, block_stride,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, AXIS: tl.constexpr, LIES: tl.constexpr, DEPTH: tl.constexpr,
    FLAT: tl.constexpr,
):  # fmt: skip
    """Pointers to the first column of rows, or to its vector if RAGGED: [rows, 1] for AXIS 1, [1, rows] for AXIS 0.

    LIES: 1 if a row's elements are next to each other, and `stride` leads to the next row; 0 if those of a column are, and
    it leads to the next column.
    """
    if DEPTH == 3:
        outer = matrix // n_matrices * block_stride + matrix % n_matrices * matrix_stride
    else:
        outer = matrix * matrix_stride
    if FLAT and DEPTH > 1:
        outer = tl.expand_dims(outer, AXIS)
    within = line * stride if LIES == 1 else line
    if RAGGED:
        within = within // VECTOR * VECTOR
    return ptr + outer + tl.expand_dims(within, AXIS)


@triton.jit
def lead_of(line, stride, VECTOR: tl.constexpr, RAGGED: tl.constexpr):
    """Elements between the starts of RAGGED rows' first vectors and the rows, alike in all operands: [rows, 1]."""
    return tl.expand_dims((line * stride % VECTOR).to(tl.int32), 1) if RAGGED else 0


@triton.jit
def first_of_part(part, n_cols, TILE_COLS: tl.constexpr):
    """First column of a part, which no compiler can take for a number of 16 bits, as it knows no n_cols.

    ptxas 12.9 adds pairs of such numbers wrongly (Triton's issue 11581), and pieces were stored over others.
    """
    return part * TILE_COLS + tl.where(n_cols < 0, 65536, 0)


@triton.jit
def pointers(starts, cols, stride, LIES: tl.constexpr):
    """Pointers to columns of rows that start at `starts`."""
    return starts + cols if LIES == 1 else starts + cols * stride


@triton.jit
def mask_of(
    rows, cols, lead, n_rows, n_cols,
    FIRST: tl.constexpr, LAST: tl.constexpr, VECTOR: tl.constexpr, RAGGED: tl.constexpr, AXIS: tl.constexpr,
):  # fmt: skip
    """Mask of columns of rows; FIRST, LAST: whether some may lie before those of a RAGGED row, or behind those of a row."""
    if rows.shape[0] == 1:
        mask = tl.full((1, 1), True, tl.int1)  # there is no tile without a row
    else:
        mask = tl.expand_dims(rows, AXIS) < n_rows
    if RAGGED:
        vectors = cols // VECTOR
        if FIRST:
            mask = mask & (vectors * VECTOR >= lead)
        if LAST:
            mask = mask & (vectors < (lead + n_cols) // VECTOR)
    elif LAST:
        mask = mask & (cols < n_cols)
    return mask


@triton.jit
def piece_of(
    rows, cols, lead, n_rows, n_cols,
    PIECE: tl.constexpr, PIECES: tl.constexpr, PARTS: tl.constexpr,
    VECTOR: tl.constexpr, RAGGED: tl.constexpr, PADDED: tl.constexpr, AXIS: tl.constexpr,
):  # fmt: skip
    """(columns, mask) of a piece of a program's tile; `cols` are those of its first one, [cols]."""
    FIRST: tl.constexpr = PIECE == 0
    LAST: tl.constexpr = (PIECE == PIECES - 1 or PARTS > 1) and PADDED
    cols = tl.expand_dims(cols + PIECE * cols.shape[0], 1 - AXIS)
    return cols, mask_of(rows, cols, lead, n_rows, n_cols, FIRST, LAST, VECTOR, RAGGED, AXIS)


@triton.jit
def edges_of(rows, lead, part, n_rows, n_cols, VECTOR: tl.constexpr):
    """(columns, mask) of what belongs to RAGGED rows before and after their bodies: [rows, 2 * VECTOR] each."""
    place = tl.expand_dims(tl.arange(0, 2 * VECTOR), 0)
    cols = tl.where(place < VECTOR, place, (lead + n_cols) // VECTOR * VECTOR - VECTOR + place)
    mask = (part == 0) & (cols >= lead) & (cols < lead + n_cols)
    mask = mask & ((place >= VECTOR) | (lead > 0))  # with no lead, a row's first vector belongs to its body
    if rows.shape[0] > 1:
        mask = mask & (tl.expand_dims(rows, 1) < n_rows)
    return cols, mask
