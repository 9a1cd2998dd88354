"""The fused softmax, for all vendors; its gradient is in gradient_kernel.py.

A tensor is taken as matrices of lines; the elements of a line are next to each other in memory. AXIS 1: a line is a row,
a softmax is taken along it. AXIS 0: a line holds the same column of neighbouring rows, and the softmax is taken across
lines; so an inner dimension of a tensor needs no transposed copy. A program walks tiles of TILE_ROWS rows and TILE_COLS
columns, `tl.num_programs(0)` apart, so any number of programs is correct. A row that fits a tile is read once; a longer
one is read twice, with a running (maximum, sum) in between; or PARTS programs read a tile of it each, and exchange theirs
(exchange.py): a program whose neighbours have not published in time reads their parts too, and its own once more.
What a program reads once, it holds in PIECES of a power of two columns each.

Rules that keep it one kernel on three vendors:
* Lengths of lines and all strides come in units of VECTOR elements, from which compilers make 16-byte accesses; the JIT
  alone would tell them only about multiples of 16. RAGGED rows start anywhere, and come in elements: their columns are
  counted from the last multiple of VECTOR before them, whole vectors are a row's body, and what is left its two edges; a
  tile holds one.
* Masked loads take their padding from `other=`: a `tl.where` on columns becomes a scalar loop on Ascend's vector unit.
* Offsets of lines are 64 bits wide, offsets within a line 32.
* No parameter is called num_stages: Triton 3.2's interpreter swallows it.
"""

import triton
import triton.language as tl

from portable_softmax.addressing import body_of, edges_of, load, piece_of, rows_of, store
from portable_softmax.exchange import MISSING, found, highest_of, is_missing, peak_of, swap
from portable_softmax.exponents import add, base_of, exp, inverse_of, normalise, scale_of, sum_of, times
from portable_softmax.pieces import exp_of, get, joined, max_of


@triton.jit
def _read(
    x_matrix,
    y_ptr,
    rows,
    cols,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    NEGATE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """A tile's elements, in pieces; `cols` are those of the first one."""
    x = None
    for k in tl.static_range(PIECES):
        ptrs, mask = piece_of(x_matrix, rows, cols, n_rows, n_cols, stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        x = joined(x, load(ptrs, mask, y_ptr, NEGATE, COMPUTE), k, PIECES)
    return x


@triton.jit
def _read_edges(
    x_matrix,
    y_ptr,
    row,
    part,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    NEGATE: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The elements of a RAGGED row before and after its body, for the first of its parts."""
    if RAGGED:
        ptrs, mask = edges_of(x_matrix, row, part, n_cols, stride, VECTOR)
        edges = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
    else:
        edges = tl.zeros((1,), COMPUTE)
    return edges


@triton.jit
def _reduce(
    x, edges, part, RAGGED: tl.constexpr, PARTIAL: tl.constexpr, PIECES: tl.constexpr, AXIS: tl.constexpr, EXACT: tl.constexpr
):
    """(exp(x - base), base, maximum, sum of the first and of the edges') of rows, or of PARTIAL ones, which may be all -inf."""
    peak = max_of(x, PIECES, AXIS)
    if RAGGED:
        if part == 0:  # a constant 0 where a program has the whole row
            peak = tl.maximum(peak, tl.max(edges, axis=0))
    base = base_of(peak) if PARTIAL else peak
    e, total = exp_of(x, base, PIECES, AXIS, EXACT)
    if RAGGED:
        if part == 0:
            total += tl.sum(exp(edges - tl.max(base, axis=0), EXACT), axis=0)
    return e, base, peak, total


@triton.jit
def _write(
    y_matrix,
    x,
    e,
    edges,
    base,
    peak,
    total,
    rows,
    cols,
    row,
    part,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The results of a tile and of its edges, by what is subtracted in e, and the rows' maximum and sum."""
    if PARTS == 1:
        scale, rest = inverse_of(total, EXACT)
    else:
        scale, rest = scale_of(base, peak, total, EXACT)
    for k in tl.static_range(PIECES):
        if LOG:
            y = normalise(get(x, k, PIECES), tl.expand_dims(peak, AXIS), tl.expand_dims(total, AXIS), LOG, EXACT)
        else:
            y = times(get(e, k, PIECES), tl.expand_dims(scale, AXIS), tl.expand_dims(rest, AXIS), EXACT)
        ptrs, mask = piece_of(y_matrix, rows, cols, n_rows, n_cols, stride, k, PIECES, PARTS, VECTOR, RAGGED, PADDED, AXIS)
        store(ptrs, y, mask)
    if RAGGED:
        if part == 0:
            edge_ptrs, edge_mask = edges_of(y_matrix, row, part, n_cols, stride, VECTOR)
            store(edge_ptrs, normalise(edges, tl.max(peak, axis=0), tl.max(total, axis=0), LOG, EXACT), edge_mask)


@triton.jit
def _reduce_again(
    x_matrix,
    y_ptr,
    edges,
    rows,
    first_col,
    n_rows,
    n_cols,
    stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """(maximum, sum) of a part of a row, to the bit as _read and _reduce find them, but a piece at a time: in few registers."""
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    most = tl.full((1, WIDTH), -float("inf"), COMPUTE)
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, stride, True, PADDED, VECTOR, RAGGED, 1)
        most = tl.maximum(most, load(ptrs, mask, y_ptr, NEGATE, COMPUTE))
    peak = tl.max(most, axis=1)
    if RAGGED:
        peak = tl.maximum(peak, tl.max(edges, axis=0))
    base = base_of(peak)
    sums = tl.zeros((1, WIDTH), COMPUTE)
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, stride, True, PADDED, VECTOR, RAGGED, 1)
        sums += exp(load(ptrs, mask, y_ptr, NEGATE, COMPUTE) - tl.expand_dims(base, 1), EXACT)
    total = tl.sum(sums, axis=1)
    if RAGGED:
        total += tl.sum(exp(edges - tl.max(base, axis=0), EXACT), axis=0)
    return tl.max(peak, axis=0), tl.max(total, axis=0)


@triton.jit
def _write_again(
    y_matrix,
    x_matrix,
    y_ptr,
    edges,
    base,
    peak,
    total,
    rows,
    first_col,
    row,
    part,
    n_rows,
    n_cols,
    x_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """The results of a part of a row, to the bit as _write gives them, but a piece at a time, from the input."""
    scale, rest = scale_of(base, peak, total, EXACT)
    WIDTH: tl.constexpr = TILE_COLS // PIECES
    past = tl.minimum(first_col + TILE_COLS, n_cols + VECTOR)  # no more pieces than the row has
    for col in tl.range(first_col, past, WIDTH):
        cols = col + tl.arange(0, WIDTH)
        ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, 1)
        x = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
        if LOG:
            y = normalise(x, tl.expand_dims(peak, 1), tl.expand_dims(total, 1), LOG, EXACT)
        else:
            y = times(exp(x - tl.expand_dims(base, 1), EXACT), tl.expand_dims(scale, 1), tl.expand_dims(rest, 1), EXACT)
        ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, 1)
        store(ptrs, y, mask)
    if RAGGED:
        ptrs, mask = edges_of(y_matrix, row, part, n_cols, y_stride, VECTOR)
        store(ptrs, normalise(edges, tl.max(peak, axis=0), tl.max(total, axis=0), LOG, EXACT), mask)


@triton.jit
def _do_alone(
    y_ptr,
    x_ptr,
    row_words,
    launch,
    peaks,
    totals,
    row,
    part,
    n_rows,
    n_cols,
    x_stride,
    y_stride,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,
    PADDED: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
    POLL: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """Finds the numbers of the parts of a row that are missing, then writes the results of a program's own part."""
    rows = tl.cast(row, tl.int64) + tl.arange(0, 1)
    for other in tl.range(0, PARTS):
        if is_missing(totals, other, LANES):
            edges = _read_edges(x_ptr, y_ptr, row, other, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            peak, total = _reduce_again(
                x_ptr, y_ptr, edges, rows, other * TILE_COLS, n_rows, n_cols, x_stride,
                VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, NEGATE, EXACT, COMPUTE,
            )
            peaks, totals = found(row_words, other, peak, total, peaks, totals, launch, PARTS, LANES, POLL, False)
    row_peak = peak_of(highest_of(peaks, totals, False))
    row_total = sum_of(peaks, totals, row_peak, EXACT)
    own_peak = tl.max(tl.where(tl.arange(0, LANES) == part, peaks, -float("inf")), axis=0)
    edges = _read_edges(x_ptr, y_ptr, row, part, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
    _write_again(
        y_ptr, x_ptr, y_ptr, edges, tl.full((1,), base_of(own_peak), tl.float32), tl.full((1,), row_peak, tl.float32),
        tl.full((1,), row_total, tl.float32), rows, part * TILE_COLS, row, part, n_rows, n_cols, x_stride, y_stride,
        VECTOR, RAGGED, PADDED, TILE_COLS, PIECES, LOG, NEGATE, EXACT, COMPUTE,
    )


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
    words_ptr,  # of the exchange, and the launch's number; None without
    launch,
    VECTOR: tl.constexpr,
    RAGGED: tl.constexpr,  # then the rows of y are to those of x as if both had the same stride
    PADDED: tl.constexpr,  # whether tiles end elsewhere than rows do
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
    PIECES: tl.constexpr,
    ONE_TILE: tl.constexpr,  # whether a row, or a program's part of it, fits a tile
    PARTS: tl.constexpr,  # programs that share a row
    WORDS: tl.constexpr,  # in which those of one row exchange their numbers
    LANES: tl.constexpr,  # that look at the words of all parts at once
    POLL: tl.constexpr,  # how a word is read anew: "volatile" or "atomic"
    POLLS: tl.constexpr,  # how often at most, before a program finds what is missing by itself
    WALK: tl.constexpr,  # whether a program takes more than one tile
    AXIS: tl.constexpr,
    LOG: tl.constexpr,
    NEGATE: tl.constexpr,
    STAGES: tl.constexpr,
    EXACT: tl.constexpr,
    COMPUTE: tl.constexpr,
):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row; its logarithm with LOG; of -x with NEGATE."""
    UNIT: tl.constexpr = 1 if RAGGED else VECTOR
    length = n_line_vectors * UNIT
    n_rows = n_lines if AXIS == 1 else length
    n_cols = length if AXIS == 1 else n_lines
    x_stride, y_stride = x_line_vectors * UNIT, y_line_vectors * UNIT
    group, groups = tl.program_id(0) // PARTS, tl.num_programs(0) // PARTS
    part = tl.program_id(0) % PARTS
    tile_cols = tl.arange(0, TILE_COLS // PIECES)
    last = (n_cols - 1) // TILE_COLS * TILE_COLS
    row_tiles = (n_rows + TILE_ROWS - 1) // TILE_ROWS
    tiles = n_matrices * row_tiles if WALK else group + 1
    for tile in tl.range(group, tiles, groups if WALK else 1, num_stages=STAGES):
        matrix, rows = rows_of(tile, row_tiles, TILE_ROWS, AXIS)
        x_matrix, y_matrix = x_ptr + matrix * x_matrix_vectors * UNIT, y_ptr + matrix * y_matrix_vectors * UNIT
        if PARTS > 1:
            edges = _read_edges(x_matrix, y_ptr, tile, part, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            cols = part * TILE_COLS + tile_cols
            x = _read(
                x_matrix, y_ptr, rows, cols, n_rows, n_cols, x_stride, VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, NEGATE, COMPUTE
            )
            e, base, peak, total = _reduce(x, edges, part, RAGGED, True, PIECES, AXIS, EXACT)
            row_words = words_ptr + tl.cast(tile, tl.int64) * WORDS
            peaks, totals, highest = swap(
                row_words, part, tl.max(peak, axis=0), tl.max(total, axis=0), launch, PARTS, LANES, POLL, POLLS, False
            )
            if highest == MISSING:
                row = tile + (highest - MISSING)  # not known to be `tile`: what is found of it again is not held in registers until then
                _do_alone(
                    y_ptr, x_ptr, row_words, launch, peaks, totals, row, part, n_rows, n_cols, x_stride, y_stride, VECTOR, RAGGED,
                    PADDED, TILE_COLS, PIECES, PARTS, LANES, POLL, LOG, NEGATE, EXACT, COMPUTE,
                )
            else:
                row_peak = peak_of(highest)
                row_total = sum_of(peaks, totals, row_peak, EXACT)
                _write(
                    y_matrix, x, e, edges, base, tl.full((1,), row_peak, tl.float32), tl.full((1,), row_total, tl.float32), rows, cols, tile, part, n_rows, n_cols, y_stride,
                    VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, EXACT,
                )
        elif ONE_TILE:
            edges = _read_edges(x_matrix, y_ptr, tile, 0, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            x = _read(
                x_matrix, y_ptr, rows, tile_cols, n_rows, n_cols, x_stride, VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, NEGATE, COMPUTE
            )
            e, base, peak, total = _reduce(x, edges, 0, RAGGED, False, PIECES, AXIS, EXACT)
            _write(
                y_matrix, x, e, edges, base, peak, total, rows, tile_cols, tile, 0, n_rows, n_cols, y_stride,
                VECTOR, RAGGED, PADDED, PIECES, PARTS, AXIS, LOG, EXACT,
            )
        else:
            peak, total = tl.full((TILE_ROWS,), -float("inf"), COMPUTE), tl.zeros((TILE_ROWS,), COMPUTE)
            edges = _read_edges(x_matrix, y_ptr, tile, 0, n_cols, x_stride, VECTOR, RAGGED, NEGATE, COMPUTE)
            if RAGGED:
                peak, total = add(peak, total, tl.expand_dims(edges, 0), 1.0, 1, EXACT)
            for col in tl.range(0, n_cols, TILE_COLS):
                ptrs, mask = body_of(x_matrix, rows, col + tile_cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                peak, total = add(peak, total, load(ptrs, mask, y_ptr, NEGATE, COMPUTE), 1.0, AXIS, EXACT)
            for done in tl.range(0, n_cols, TILE_COLS):
                cols = last - done + tile_cols  # backwards: what was read last is still in a cache
                ptrs, mask = body_of(x_matrix, rows, cols, n_rows, n_cols, x_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                x = load(ptrs, mask, y_ptr, NEGATE, COMPUTE)
                y = normalise(x, tl.expand_dims(peak, AXIS), tl.expand_dims(total, AXIS), LOG, EXACT)
                ptrs, mask = body_of(y_matrix, rows, cols, n_rows, n_cols, y_stride, True, PADDED, VECTOR, RAGGED, AXIS)
                store(ptrs, y, mask)
            if RAGGED:
                ptrs, mask = edges_of(y_matrix, tile, 0, n_cols, y_stride, VECTOR)
                store(ptrs, normalise(edges, tl.max(peak, axis=0), tl.max(total, axis=0), LOG, EXACT), mask)
