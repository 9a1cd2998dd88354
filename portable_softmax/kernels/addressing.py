"""Rows of a tile, pointers to their elements, and masks. form.py defines lines, vectors and unaligned rows.

b has the strides of the result. a may have other strides, and other elements next to each other. Nothing else differs, so one
mask serves all operands. Rows are [rows]. Columns are [1, cols] or [rows, cols] for FORM.axis 1, and [cols, 1] for FORM.axis 0.
"""

import triton
import triton.language as tl


@triton.jit
def shape_of(n_lines, length, n_matrices, n_batches, FORM: tl.constexpr):
    """Returns (rows among which a tile finds its own, columns, rows of a matrix)."""
    length = length * FORM.unit
    per_matrix = n_lines if FORM.axis == 1 else length
    n_cols = length if FORM.axis == 1 else n_lines
    n_rows = per_matrix * n_matrices * n_batches if FORM.flat and FORM.depth > 1 else per_matrix
    return n_rows, n_cols, per_matrix


@triton.jit
def in_elements(out_stride, a_stride, FORM: tl.constexpr):
    """Returns the strides of the result and of a in elements.

    They are passed in units of FORM.unit elements, so that the compiler knows what divides them.
    """
    return out_stride * FORM.unit, a_stride * FORM.unit


@triton.jit
def rows_of(tile, row_tiles, per_matrix, FORM: tl.constexpr):
    """Returns (matrix, line, number) of a tile's rows.

    `number` counts the rows of one matrix. With FORM.flat it counts the rows of all matrices, because a tile may reach into
    several.
    """
    if FORM.flat:
        number = tl.cast(tile, tl.int64) * FORM.tile_rows + tl.arange(0, FORM.tile_rows)
        if FORM.depth == 1:
            matrix, line = tl.cast(0, tl.int64), number
        else:
            matrix = number // per_matrix
            line = number - matrix * per_matrix  # ptxas 12.9 divides again for a remainder
    else:
        matrix = tl.cast(tile, FORM.counted_in) // tl.cast(row_tiles, FORM.counted_in)
        within = tl.cast(tile, FORM.counted_in) % tl.cast(row_tiles, FORM.counted_in)
        number = tl.cast(within, tl.int32) * FORM.tile_rows + tl.arange(0, FORM.tile_rows)
        line = number
    return matrix, line, number


@triton.jit
def outer_of(matrix, n_matrices, matrix_stride, batch_stride, FORM: tl.constexpr):
    """Returns the offsets of matrices: [rows] if the rows of a tile may lie in several, else a scalar."""
    if FORM.depth == 3:
        batch = tl.cast(matrix, FORM.counted_in) // tl.cast(n_matrices, FORM.counted_in)
        outer = batch * batch_stride + (matrix - batch * n_matrices) * matrix_stride
    else:
        outer = matrix * matrix_stride
    return outer


@triton.jit
def starts_of(ptr, matrix, line, n_matrices, stride, matrix_stride, batch_stride, FORM: tl.constexpr):
    """Returns pointers to the first column of each row: [rows, 1] for FORM.axis 1, [1, rows] for FORM.axis 0.

    With FORM.unaligned they point to the start of the vector that holds the first column. `stride` leads
    to the next row with FORM.axis 1, to the next column with FORM.axis 0.
    """
    outer = outer_of(matrix, n_matrices, matrix_stride, batch_stride, FORM)
    within = line * stride if FORM.axis == 1 else line
    if FORM.unaligned:
        within = (outer + within if FORM.depth > 1 else within) // FORM.vector * FORM.vector
        outer = 0 if FORM.depth > 1 else outer
    elif FORM.flat and FORM.depth > 1:
        outer = tl.expand_dims(outer, FORM.axis)
    return ptr + outer + tl.expand_dims(within, FORM.axis)


@triton.jit
def lead_of(matrix, line, n_matrices, stride, matrix_stride, batch_stride, FORM: tl.constexpr):
    """Returns how many elements lie between the start of each unaligned row's first vector and the row: [rows, 1].

    The lead is the same in all operands. It is 0 without FORM.unaligned.
    """
    if FORM.unaligned:
        within = line * stride
        if FORM.depth > 1:
            within += outer_of(matrix, n_matrices, matrix_stride, batch_stride, FORM)
        lead = tl.expand_dims((within % FORM.vector).to(tl.int32), 1)
    else:
        lead = 0
    return lead


@triton.jit
def operands_of(
    a_ptr, b_ptr, matrix, line, n_matrices, a_line, a_matrix, a_batch, out_line, out_matrix, out_batch, FORM: tl.constexpr
):
    """Returns (a, b, lead): pointers to the first column of each row, as `starts_of`, and `lead_of`.

    A softmax has no b, and nothing is loaded there.
    """
    a = starts_of(a_ptr, matrix, line, n_matrices, a_line, a_matrix, a_batch, FORM)
    lead = lead_of(matrix, line, n_matrices, a_line, a_matrix, a_batch, FORM)
    b = a
    if FORM.backward:
        b = starts_of(b_ptr, matrix, line, n_matrices, out_line, out_matrix, out_batch, FORM)
    return a, b, lead


@triton.jit
def first_of_split(split, n_cols, FORM: tl.constexpr):
    """Returns the first column of a split, hidden from range analysis: ptxas 12.9 miscompiles pairs of 16-bit additions.

    If the compiler took it for a 16-bit number, one block would be stored over another (Triton's issue 11581). For axis 0 it is
    64 bits wide: columns are lines there, and only the length of a line fits 32 bits.
    """
    first = tl.cast(split, tl.int64) * FORM.tile_cols if FORM.axis == 0 else split * FORM.tile_cols
    return first + tl.where(n_cols < 0, 65536, 0)


@triton.jit
def past_of_split(first_col, n_cols, FORM: tl.constexpr):
    """Returns a column past the last block of a split that begins at first_col, or of the row, if one program has it whole."""
    end = n_cols + FORM.vector if FORM.held else n_cols  # rows have no more blocks than this
    return tl.minimum(first_col + FORM.tile_cols, end) if FORM.splits > 1 or FORM.held else n_cols


@triton.jit
def pointers(starts, cols, stride, AXIS: tl.constexpr):
    """Returns pointers to columns of rows that start at `starts`, in an operand with that axis."""
    return starts + cols if AXIS == 1 else starts + cols * stride


@triton.jit
def mask_of(rows, cols, lead, n_rows, n_cols, FIRST: tl.constexpr, LAST: tl.constexpr, FORM: tl.constexpr):
    """Returns the mask of columns of rows; `rows` is None where another mask leaves no row past the last.

    FIRST: some columns may lie ahead of an unaligned row's body. LAST: some columns may lie behind a row.
    """
    if rows is None:
        mask = tl.full((1, 1), True, tl.int1)
    elif rows.shape[0] == 1:
        mask = tl.full((1, 1), True, tl.int1)  # every tile has a row
    else:
        mask = tl.expand_dims(rows, FORM.axis) < n_rows
    if FORM.unaligned:
        vectors = cols // FORM.vector
        if FIRST:
            mask = mask & (vectors * FORM.vector >= lead)
        if LAST:
            mask = mask & (vectors < (lead + n_cols) // FORM.vector)
    elif LAST:
        mask = mask & (cols < n_cols)
    return mask


@triton.jit
def block_of(rows, first_col, lead, n_rows, n_cols, BLOCK: tl.constexpr, FORM: tl.constexpr):
    """Returns (columns, mask) of one block of a tile that begins at first_col."""
    FIRST: tl.constexpr = BLOCK == 0
    LAST: tl.constexpr = (FORM.blocks - 1 == BLOCK or FORM.splits > 1) and FORM.padded
    cols = tl.expand_dims(first_col + tl.arange(0, FORM.width) + BLOCK * FORM.width, 1 - FORM.axis)
    return cols, mask_of(rows, cols, lead, n_rows, n_cols, FIRST, LAST, FORM)


@triton.jit
def edges_of(rows, lead, split, n_rows, n_cols, FORM: tl.constexpr):
    """Returns (columns, mask) of the elements of unaligned rows on both sides of their bodies: [rows, 2 * FORM.vector] each."""
    place = tl.expand_dims(tl.arange(0, 2 * FORM.vector), 0)
    cols = tl.where(place < FORM.vector, place, (lead + n_cols) // FORM.vector * FORM.vector - FORM.vector + place)
    mask = (split == 0) & (cols >= lead) & (cols < lead + n_cols)
    mask = mask & ((place >= FORM.vector) | (lead > 0))  # with no lead, a row's first vector belongs to its body
    if rows.shape[0] > 1:
        mask = mask & (tl.expand_dims(rows, 1) < n_rows)
    return cols, mask
