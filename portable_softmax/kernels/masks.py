"""Where a mask lies, and which elements of x it leaves to be read: whole vectors that are hidden are not."""

import triton
import triton.language as tl


@triton.jit
def in_turn(tile, row_tiles, n_matrices, FORM: tl.constexpr):
    """Returns the tile to take when it is the turn of `tile`.

    With FORM.mask_shared the matrices of a batch take turns.
    """
    if FORM.mask_shared:
        row_tiles = tl.cast(row_tiles, FORM.counted_in)
        n_matrices = tl.cast(n_matrices, FORM.counted_in)
        within = tl.cast(tile, FORM.counted_in) % (row_tiles * n_matrices)
        place = tl.cast(tile, FORM.counted_in) - within + within % n_matrices * row_tiles + within // n_matrices
    else:
        place = tile
    return place


@triton.jit
def starts_of_mask(ptr, matrix, line, lead, n_matrices, col, row, matrix_stride, batch_stride, FORM: tl.constexpr):
    """Returns pointers to the mask's element of each row's first column: [rows, 1] for FORM.axis 1, [1, rows] for FORM.axis 0.

    Columns of an unaligned row are counted from the start of its first vector, so these are `lead` columns ahead.
    """
    batch = tl.cast(matrix, FORM.counted_in) // tl.cast(n_matrices, FORM.counted_in)
    outer = batch * batch_stride + (matrix - batch * n_matrices) * matrix_stride
    within = line if FORM.axis == 0 and FORM.mask_step == 1 else line * row
    return ptr + outer + tl.expand_dims(within, FORM.axis) - lead * col


@triton.jit
def mask_strides(col, row, matrix_stride, batch_stride, FORM: tl.constexpr):
    """Returns a mask's strides in elements; but for that along x's lines, they are passed in units of FORM.mask_unit."""
    if FORM.axis == 1:
        row *= FORM.mask_unit
    else:
        col *= FORM.mask_unit
    return col, row, matrix_stride * FORM.mask_unit, batch_stride * FORM.mask_unit


@triton.jit
def mask_pointers(b, cols, stride, FORM: tl.constexpr):
    """Returns pointers to the mask's elements of columns; to one of each row where they are the same, or neighbours."""
    if FORM.mask_by_row:
        ptrs = b
    elif FORM.axis == 1 and FORM.mask_step == 1:
        ptrs = b + cols
    else:
        ptrs = b + tl.cast(cols, tl.int64) * stride
    return ptrs


@triton.jit
def before_diagonal(mask, rows, cols, lead, n_rows, n_cols, FORM: tl.constexpr):
    """Returns the mask without the columns that causal masking takes from each row, and the mask of vectors with any left.

    It leaves rows past the last none.
    """
    seen = mask
    read = mask
    if FORM.causal != "":
        last = rows.to(tl.int32)
        if FORM.causal == "lower_right":
            last += (n_cols - n_rows).to(tl.int32)
        last = tl.where(rows < n_rows, last, -FORM.vector)
        limit = tl.expand_dims(last, FORM.axis) + lead
        seen = mask & (cols <= limit)
        if FORM.axis == 1:
            in_vectors = cols <= (limit | (FORM.vector - 1))  # to the end of the last one that has any
            if FORM.vector > 1:  # on a tensor of one element a hint fails
                in_vectors = tl.max_constancy(in_vectors, [1, FORM.vector])
            read = mask & in_vectors
        else:
            last += FORM.vector - 1 - rows.to(tl.int32) % FORM.vector
            read = mask & (cols <= tl.expand_dims(last, 0))
    return seen, read


@triton.jit
def either(a, b):
    """Returns the bits of both: one bit of any element says that a vector takes part."""
    return a | b


@triton.jit
def in_vectors_with_any(given, FORM: tl.constexpr):
    """Returns where elements share an access of a thread with any that a boolean mask has given True."""
    VECTOR: tl.constexpr = FORM.access if FORM.access < given.shape[1] else given.shape[1]
    if VECTOR > 1:
        # As numbers: LLVM would pack predicates into bits, some of them by way of memory.
        vectors = tl.reshape(given.to(tl.int32), (given.shape[0], given.shape[1] // VECTOR, VECTOR))
        some = tl.broadcast_to(tl.expand_dims(tl.reduce(vectors, 2, either), 2), vectors.shape)
        # The hint is on the comparison: Triton up to 3.7 loses that of a reshape, and then reads x element by element.
        taken = tl.max_constancy(tl.reshape(some, given.shape) != 0, [1, VECTOR])
    else:
        taken = given != 0
    return taken
