"""Where rows are, and how blocks of them are loaded and stored.

`place` counts the columns of a row from the 16-byte boundary at or ahead of its first element: the row begins `lead` elements
behind that boundary and ends ahead of `past`. What belongs to rows has the shape [ROWS, 1] ([1, ROWS] with AXIS 0), and places
have [1, BLOCK] ([BLOCK, 1]): both broadcast against a tile. EDGE states what a block may have: 1 the end of a row, 2 its start.
"""

import triton
import triton.language as tl

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471824645996)  # in float32
LN2_REST = tl.constexpr(-1.9046542121259336e-09)
NEG_INF = tl.constexpr(float("-inf"))
HIGHEST = tl.constexpr(3e38)
LOWEST = tl.constexpr(-110.0)  # exp of anything lower is 0 in float32, subnormal numbers included
BOTH = tl.constexpr(3)
ENDS = tl.constexpr(4)


@triton.jit
def fma(a, b, c):
    """Returns a * b + c, rounded once; the interpreter's rounds twice."""
    return (a.to(tl.float64) * b + c).to(tl.float32) if INTERPRETED else tl.fma(a, b, c)


INTERPRETED = tl.constexpr(not isinstance(fma, triton.JITFunction))  # Triton decides when a kernel is defined


# ---------------------------------------------------------------- rows
@triton.jit
def find_rows(tile, n_rows, n_heads, n_queries, C: tl.constexpr):
    """Returns (numbers of a tile's rows, their heads counted over all batches, queries within the head, which rows exist).

    A row's number is (batch * n_heads + head) * n_queries + query. All are [ROWS], but with HEAD_TILES there is one head.
    """
    tile = tl.cast(tile, tl.int64) if C.WIDE else tile
    lane = tl.arange(0, C.ROWS)
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
    return rows, head, query, tl.full((1,), True, tl.int1) if C.ROWS == 1 else exists  # every tile has a row


@triton.jit
def last_tile(group, n_rows, n_queries, C: tl.constexpr):
    """Returns the tile ahead of which those of a program end, of which `group` is the first."""
    tiles = n_rows // n_queries * tl.cdiv(n_queries, C.ROWS) if C.HEAD_TILES else tl.cdiv(n_rows, C.ROWS)
    return tiles if C.WALK else group + 1


@triton.jit
def offsets_of_rows(head, query, n_heads, s_batch, s_head, s_query, C: tl.constexpr):
    """Returns offsets of rows, [ROWS]."""
    outer = 0
    if C.LEVELS == 3:
        batch = head // n_heads
        outer = tl.cast(batch, tl.int64) * s_batch + tl.cast(head - batch * n_heads, tl.int64) * s_head
    elif C.LEVELS == 2:
        outer = tl.cast(head, tl.int64) * s_head
    return outer + query.to(tl.int64) * s_query


@triton.jit
def find_tile(tile, n_rows, n_cols, n_heads, n_queries, s_batch, s_head, s_query, C: tl.constexpr):
    """Returns what find_rows does, and for tiles offsets of place 0 in x and the result, lead, past (or one), which exist."""
    rows, head, query, exists = find_rows(tile, n_rows, n_heads, n_queries, C)
    s_query = s_query * C.ROW_UNIT if C.AXIS == 1 else 1
    offset = offsets_of_rows(head, query, n_heads, s_batch * C.UNIT, s_head * C.UNIT, s_query, C)
    # Results of rows side by side are [head, column, query].
    out = rows * n_cols if C.AXIS == 1 else tl.cast(head, tl.int64) * (tl.cast(n_queries, tl.int64) * n_cols) + query
    past = tl.full((1,), n_cols, tl.int32)
    lead = tl.zeros_like(past)
    if C.UNALIGNED:
        lead = (offset % C.VECTOR).to(tl.int32)
        past += lead
        offset = offset // C.VECTOR * C.VECTOR
        out = out // C.VECTOR * C.VECTOR
    elif C.AXIS == 0 and (C.VECTOR > 1 and not C.HEAD_TILES):  # VECTOR divides the number of queries
        offset = tl.max_contiguous(tl.multiple_of(offset, C.VECTOR), C.VECTOR)
        out = tl.max_contiguous(tl.multiple_of(out, C.VECTOR), C.VECTOR)
    out = offset if C.OUT_LIKE_X else out
    return rows, head, query, exists, along(offset, C), along(out, C), along(lead, C), along(past, C), along(exists, C)


@triton.jit
def along(of_rows, C: tl.constexpr):
    """Returns [ROWS] in the shape that broadcasts against a tile."""
    return tl.expand_dims(of_rows, C.AXIS)


@triton.jit
def load_per_row(value, rows, exists, KIND: tl.constexpr, C: tl.constexpr):
    """Returns a number per row, from a pointer to them; [1, 1] if all rows have the same; 1 without."""
    number = 1.0
    if KIND == "row":
        number = along(tl.load(value + rows, mask=exists, other=1.0), C)
    elif KIND == "number":
        number = tl.full((1, 1), value, tl.float32)
    return number


@triton.jit
def first_column(split, n_cols, C: tl.constexpr):
    """Returns the first place of a split. It depends on n_cols, so that no compiler takes it for a 16-bit number."""
    column = 0
    if C.SPLITS > 1:
        blocks = tl.cdiv(n_cols + (C.VECTOR - 1 if C.UNALIGNED else 0), C.BLOCK)
        column = (split * (blocks // C.SPLITS) + tl.maximum(split - (C.SPLITS - blocks % C.SPLITS), 0)) * C.BLOCK
    return column


@triton.jit
def opaque(column, C: tl.constexpr):
    """Returns a column, as a number that the compiler takes for another: else places of loads stay in registers for stores."""
    if C.HIDE != "":
        column = tl.multiple_of(tl.inline_asm_elementwise("", C.HIDE, [column], tl.int32, is_pure=False, pack=1), C.BLOCK)
    return column


@triton.jit
def end_of_split(past, split, n_cols, C: tl.constexpr):
    """Returns the place ahead of which the columns of a split end, per row."""
    return tl.minimum(past, first_column(split + 1, n_cols, C)) if C.SPLITS > 1 else past


# ---------------------------------------------------------------- blocks
@triton.jit
def places(first, BLOCK: tl.constexpr, C: tl.constexpr):
    """Returns the places of a block of columns from `first` on."""
    return tl.expand_dims(first + tl.arange(0, BLOCK), 1 - C.AXIS)


@triton.jit
def places_of_ends(past, C: tl.constexpr):
    """Returns the places of the first and the last vector of unaligned rows, which have no fewer elements than a vector."""
    i = tl.expand_dims(tl.arange(0, 2 * C.VECTOR), 0)
    return tl.where(i < C.VECTOR, i, past // C.VECTOR * C.VECTOR + i - C.VECTOR)


@triton.jit
def of_row(place, lead, past, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns True for elements of the row."""
    row = (place < past) & exists if EDGE % 2 == 1 or EDGE == ENDS else exists
    if C.UNALIGNED and EDGE >= 2:
        row = row & (place >= lead)
    return row


@triton.jit
def in_vectors(place, lead, past, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Returns True for elements of vectors that have an element of the row."""
    if C.VECTOR_MASKS and EDGE < ENDS:
        lead, past = 0, (past + (C.VECTOR - 1)) // C.VECTOR * C.VECTOR
    return of_row(place, lead, past, exists, EDGE, C)


@triton.jit
def load(ptr, place, stride, lead, past, exists, other, EDGE: tl.constexpr, C: tl.constexpr):
    """Loads elements at places as float32; `other` in vectors without an element of the row."""
    mask = in_vectors(place, lead, past, exists, EDGE, C)
    return tl.load(ptr + offsets_of(place, stride, C), mask=mask, other=other).to(tl.float32)


@triton.jit
def store(ptr, value, place, stride, lead, past, exists, EDGE: tl.constexpr, C: tl.constexpr):
    """Stores elements of the row: whole vectors, and with ENDS what these leave."""
    mask = of_row(place, lead, past, exists, EDGE, C)
    if C.UNALIGNED:
        first, last = (lead + (C.VECTOR - 1)) // C.VECTOR * C.VECTOR, past // C.VECTOR * C.VECTOR
        mask = mask & ((place < first) | (place >= last)) if EDGE == ENDS else of_row(place, first, last, exists, EDGE, C)
    tl.store(ptr + offsets_of(place, stride, C), value, mask=mask)


@triton.jit
def offsets_of(place, stride, C: tl.constexpr):
    """Returns offsets of columns."""
    return place if C.AXIS == 1 else tl.cast(place, tl.int64) * stride


@triton.jit
def put(tile, block, C: tl.constexpr):
    """Returns a tile, or None, with one more block: a tuple; but Triton 3.2 has none, so one block is a tile by itself."""
    return block if C.BLOCKS == 1 else (block,) if tile is None else tile + (block,)  # noqa: RUF005 - Triton does not know (*tile, block)


@triton.jit
def get(tile, k: tl.constexpr, C: tl.constexpr):
    """Returns the k-th block of a tile."""
    return tile if C.BLOCKS == 1 else tile[k]


@triton.jit
def hidden(block, PACK: tl.constexpr, C: tl.constexpr):
    """Returns a block, which with AS_LOADED the compiler takes for another, computed in this order: else it keeps float32."""
    if C.AS_LOADED != "":
        block = tl.inline_asm_elementwise("", C.AS_LOADED, [block], block.dtype, is_pure=False, pack=PACK)
    return block


# ---------------------------------------------------------------- arithmetic
@triton.jit
def exp(x, C: tl.constexpr):
    """Returns exp(x) for x <= 0 or nan. EXACT also corrects the rounding of x * log2(e), up to |x| * 2**-24 of the result."""
    if C.FUSED:
        x = bounded(x) if C.EXACT else x  # the rest of -inf would be nan
        rounded = x * LOG2E
        y = tl.exp2(rounded)
        y = fma(y, fma(rounded, -LN2_REST, fma(rounded, -LN2, x)), y) if C.EXACT else y
    else:
        y = tl.exp(x)
    return y


@triton.jit
def bounded(fall):
    """Returns differences to a maximum, those whose exponential is 0 as a finite number: their product is 0 then, not nan."""
    return tl.maximum(fall, LOWEST, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def finite(peak):
    """Returns the maximum, but 0 for rows that are all -inf: -inf - -inf is nan."""
    return tl.where(peak == NEG_INF, 0.0, peak)


@triton.jit
def times(e, factor, rest, C: tl.constexpr):
    """Returns e * (factor + rest), rounded once; without EXACT e * factor; without FUSED e * factor / rest."""
    if C.FUSED:
        y = fma(e, factor, e * rest) if C.EXACT else e * factor
    else:
        y = e * factor / rest if C.SINK or C.SPLITS > 1 else e / rest
    return y
