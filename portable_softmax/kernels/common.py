"""Where rows are, how blocks of them are loaded and stored, and arithmetic that keeps its rounding.

Columns are counted from the start of a row or, of unaligned rows, from the 16-byte boundary at or before it, `misalignment`
elements ahead; a row ends before `row_end`. What belongs to rows has the shape [ROWS, 1] ([1, ROWS] with AXIS 0), columns have
[1, BLOCK] ([BLOCK, 1]): both broadcast against a tile. EDGE says which ends of a row may lie in a block, and are masked: NONE,
END, START (of unaligned rows alone) or BOTH. ENDS, the vectors at both ends of an unaligned row, and ELEMENTS are no blocks.
"""

import triton
import triton.language as tl

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471824645996)  # in float32
LN2_REST = tl.constexpr(-1.9046542121259336e-09)
NEG_INF = tl.constexpr(float("-inf"))
HIGHEST = tl.constexpr(3e38)
LEAST = tl.constexpr(-3.4028234663852886e38)  # the least finite number of float32
LOWEST = tl.constexpr(-110.0)  # exp of anything lower is 0 in float32, subnormal numbers included
NONE, END, START, BOTH = map(tl.constexpr, (0, 1, 2, 3))  # ends of a row in a block; of aligned rows START masks nothing
ENDS, ELEMENTS = map(tl.constexpr, (4, 5))  # columns that are no block


@triton.jit
def fma(a, b, c, C: tl.constexpr):
    """Returns a * b + c, rounded once with FUSED; the interpreter's fma rounds twice."""
    if INTERPRETED:
        y = (a.to(tl.float64) * b + c).to(tl.float32)
    elif C.FUSED:
        y = tl.fma(a, b, c)
    else:
        y = a * b + c
    return y


INTERPRETED = tl.constexpr(not isinstance(fma, triton.JITFunction))  # Triton decides when a kernel is defined


# ---------------------------------------------------------------- rows
@triton.jit
def tiles_of_program(n_rows, n_queries, C: tl.constexpr):
    """Returns (split, first tile, end of tiles, step from tile to tile) of a program."""
    split, tile = tl.program_id(0) % C.SPLITS, tl.program_id(0) // C.SPLITS
    end, step = tile + 1, 1
    if C.WALK:
        end, step = tl.cdiv(n_rows, C.ROWS), tl.num_programs(0) // C.SPLITS
        if C.HEAD_TILES:
            end = n_rows // n_queries * tl.cdiv(n_queries, C.ROWS)
    return split, tile, end, step


@triton.jit
def find_tile(tile, n_rows, n_heads, n_queries, s_batch, s_head, s_query, C: tl.constexpr):
    """Returns row ids, heads, queries, which exist, offsets of x, and misalignment.

    A row's id is (batch * n_heads + head) * n_queries + query. Heads are counted over all batches; HEAD_TILES have one.
    """
    lane = tl.expand_dims(tl.arange(0, C.ROWS), C.AXIS)
    if C.HEAD_TILES:
        tiles = tl.cdiv(n_queries, C.ROWS)
        if C.MASK_SHARED:  # the same queries of all heads are consecutive
            turn = tile % (tiles * n_heads)
            tile += turn % n_heads * tiles + turn // n_heads - turn
        head = tile // tiles
        query = (tile - head * tiles) * C.ROWS + lane
        rows = tl.cast(head, tl.int64) * n_queries + query
        exists = query < n_queries
    else:
        rows = tile * C.ROWS + lane
        # VECTOR divides the number of rows side by side: accesses of so many have one mask.
        exists = (rows // C.VECTOR * C.VECTOR if C.AXIS == 0 else rows) < n_rows
        head = rows // n_queries if C.LEVELS > 1 else tile * 0
        query = rows - head * n_queries
        rows = rows.to(tl.int64)
    exists = tl.full((1, 1), True, tl.int1) if C.ROWS == 1 else exists  # every tile has a row
    s_query = s_query * C.ROW_UNIT if C.AXIS == 1 else 1
    offset = offsets_of_rows(head, query, n_heads, s_batch * C.UNIT, s_head * C.UNIT, s_query, C)
    misalignment = (offset % C.VECTOR).to(tl.int32) if C.WHOLE_VECTORS else tl.zeros((1, 1), tl.int32)
    return rows, head, query, exists, vectors_of(offset, C), misalignment


@triton.jit
def offsets_of_result(x_at, rows, head, query, n_queries, n_cols, C: tl.constexpr):
    """Returns offsets of rows in the result: those of x, or if it is contiguous [row, column], or [head, column, query]."""
    if C.OUT_LIKE_X:
        offset = x_at
    elif C.AXIS == 1:
        offset = vectors_of(rows * n_cols, C)
    else:
        offset = vectors_of(tl.cast(head, tl.int64) * (tl.cast(n_queries, tl.int64) * n_cols) + query, C)
    return offset


@triton.jit
def vectors_of(offset, C: tl.constexpr):
    """Returns offsets of the vectors in which rows begin."""
    if C.WHOLE_VECTORS:
        offset = offset // C.VECTOR * C.VECTOR
    elif C.AXIS == 0 and (C.VECTOR > 1 and not C.HEAD_TILES):  # VECTOR divides the number of queries
        offset = tl.max_contiguous(tl.multiple_of(offset, [1, C.VECTOR]), [1, C.VECTOR])
    return offset


@triton.jit
def offsets_of_rows(head, query, n_heads, s_batch, s_head, s_query, C: tl.constexpr):
    """Returns offsets of rows from heads, which are counted over all batches, and queries."""
    outer = 0
    if C.LEVELS == 3:
        batch = head // n_heads
        outer = tl.cast(batch, tl.int64) * s_batch + tl.cast(head - batch * n_heads, tl.int64) * s_head
    elif C.LEVELS == 2:
        outer = tl.cast(head, tl.int64) * s_head
    return outer + query.to(tl.int64) * s_query


@triton.jit
def load_per_row(value, rows, exists, KIND: tl.constexpr, C: tl.constexpr):
    """Returns a number per row, from a pointer to them; [1, 1] if all rows have the same; 1 without."""
    number = 1.0
    if KIND == "rows":
        number = tl.load(value + rows, mask=exists, other=1)
    elif KIND != "":
        number = tl.full((1, 1), value, tl.int64 if KIND == "integer" else tl.float32)
    return number


@triton.jit
def first_column(split, n_cols, C: tl.constexpr):
    """Returns the first column of a split: one of several depends on n_cols, so that ptxas adds no 16 bits (triton#11581)."""
    column = 0
    if C.SPLITS > 1:
        blocks = tl.cdiv(n_cols + (C.VECTOR - 1 if C.WHOLE_VECTORS else 0), C.BLOCK)
        column = (split * (blocks // C.SPLITS) + tl.maximum(split - (C.SPLITS - blocks % C.SPLITS), 0)) * C.BLOCK
    return column


@triton.jit
def end_of_split(row_end, split, n_cols, C: tl.constexpr):
    """Returns the end of the columns of a split, per row."""
    return tl.minimum(row_end, first_column(split + 1, n_cols, C)) if C.SPLITS > 1 else row_end


# ---------------------------------------------------------------- blocks
@triton.jit
def row_mask(columns, misalignment, row_end, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns True for columns that are elements of the row, as far as EDGE leaves that open, and the row exists."""
    is_both: tl.constexpr = not (EDGE != BOTH and EDGE != ENDS)
    mask = (columns < row_end) & exists if EDGE == END or is_both else exists
    if C.WHOLE_VECTORS and (EDGE == START or is_both):
        mask = mask & (columns >= misalignment)
    return mask


@triton.jit
def find_block(start, misalignment, row_end, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns (columns of a block, which are elements of the row, which are of vectors with an element of it).

    Columns begin at `start`; or are `start` with ELEMENTS, and with ENDS those of the first and the last vector of a row that
    ends there.
    """
    columns = start
    if EDGE == ENDS:
        i = tl.expand_dims(tl.arange(0, 2 * C.VECTOR), 0)
        columns = tl.where(i < C.VECTOR, i, start // C.VECTOR * C.VECTOR + i - C.VECTOR)
    elif EDGE != ELEMENTS:
        columns = tl.expand_dims(start + tl.arange(0, C.BLOCK), 1 - C.AXIS)
    elements = row_mask(columns, misalignment, row_end, exists, EDGE, C)
    vectors = elements
    if C.VECTOR_MASKS:
        vectors = row_mask(columns, 0, (row_end + (C.VECTOR - 1)) // C.VECTOR * C.VECTOR, exists, EDGE, C)
    return columns, elements, vectors


@triton.jit
def load(ptrs, mask):
    """Loads elements as float32; 0 where the mask is False."""
    return tl.load(ptrs, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store(ptrs, value, columns, misalignment, row_end, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Stores elements of the row; of unaligned rows whole vectors, or with ENDS what these leave."""
    mask = row_mask(columns, misalignment, row_end, exists, EDGE, C)
    if C.WHOLE_VECTORS:
        first, last = (misalignment + (C.VECTOR - 1)) // C.VECTOR * C.VECTOR, row_end // C.VECTOR * C.VECTOR
        if EDGE == ENDS:
            mask = mask & ((columns < first) | (columns >= last))
        else:
            mask = row_mask(columns, first, last, exists, EDGE, C)
    tl.store(ptrs, value, mask=mask)


@triton.jit
def offsets_of(columns, stride, C: tl.constexpr):
    """Returns offsets of columns."""
    return columns if C.AXIS == 1 else tl.cast(columns, tl.int64) * stride


@triton.jit
def append_block(tile, block, DTYPE: tl.constexpr, C: tl.constexpr):
    """Returns a tile, or None, with one more block: a tuple; but Triton 3.2 has none, so one block is a tile by itself."""
    if C.AS_LOADED != "":
        block = block.to(DTYPE)
    if C.BLOCKS == 1:
        tile = block
    elif tile is None:
        tile = (block,)
    else:
        tile = tile + (block,)  # noqa: RUF005 - Triton does not know (*tile, block)
    return tile


@triton.jit
def get_block(tile, k: tl.constexpr, C: tl.constexpr):
    """Returns the k-th block of a tile in float32."""
    block = tile
    if C.BLOCKS > 1:
        block = tile[k]
    return opaque(block, 2, C).to(tl.float32)


@triton.jit
def opaque_column(column, C: tl.constexpr):
    """Returns a column behind an optimization barrier: else addresses of loads stay in registers for stores."""
    if C.OPAQUE != "":
        column = tl.multiple_of(tl.inline_asm_elementwise("", C.OPAQUE, [column], tl.int32, is_pure=False, pack=1), C.BLOCK)
    return column


@triton.jit
def opaque(block, PACK: tl.constexpr, C: tl.constexpr):
    """Returns a block behind an optimization barrier with AS_LOADED: else it is converted once, and float32 is kept."""
    if C.AS_LOADED != "":
        block = tl.inline_asm_elementwise("", C.AS_LOADED, [block], block.dtype, is_pure=False, pack=PACK)
    return block


# ---------------------------------------------------------------- arithmetic
@triton.jit
def exp(x, C: tl.constexpr, IN_SUM: tl.constexpr = False):
    """Returns exp(x) for x <= 0 or nan. EXACT also corrects the rounding of x * log2(e), up to |x| * 2**-24 of the result.

    IN_SUM leaves an error of 2.7e-9 * |x|: what counts in a sum of n has |x| of about log(n).
    """
    if C.FUSED:
        x = bounded(x) if C.EXACT else x  # the rest of -inf would be nan
        rounded = x * LOG2E
        y = tl.exp2(rounded)
        if C.EXACT:
            rest = fma(rounded, -LN2, x, C)
            y = fma(y, rest if IN_SUM else fma(rounded, -LN2_REST, rest, C), y, C)
    else:
        y = tl.exp(x)
    return y


@triton.jit
def bounded(shifted):
    """Returns differences to a maximum, finite where their exponential is 0: the product is 0 then, not nan."""
    return tl.maximum(shifted, LOWEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamped(x, LIMIT: tl.constexpr):
    """Returns x between -LIMIT and LIMIT, or nan."""
    x = tl.maximum(x, -LIMIT, propagate_nan=tl.PropagateNan.ALL)
    return tl.minimum(x, LIMIT, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def finite(peak):
    """Returns the maximum, but a finite number for rows that are all -inf: -inf - -inf is nan."""
    return tl.maximum(peak, LEAST)


@triton.jit
def product(x, factor, C: tl.constexpr):
    """Returns x * factor, rounded before any sum: -0.0 is added, in a form that no compiler folds."""
    return fma(x, factor, tl.where(factor == factor, -0.0, factor), C) if C.FUSED else x * factor
