"""Folded lines: a few lines of rows side by side, read as one.

Where the length of a line is odd, each line starts elsewhere in a vector, and no access can be a vector. FORM.folded lines
together have a length that vectors divide. A row then has so many places in a line, `length // FORM.folded` apart, and each of
them is a part of the row: other tiles have the other places. So all programs of a matrix exchange statistics, by rows: see
exchange.py. Tiles with the same rows are taken one after another, so that few programs wait for others that have not begun.
"""

import triton
import triton.language as tl


@triton.jit
def split_of(split, rows, n_rows, FORM: tl.constexpr):
    """Returns the split of each row that a program takes, of which its tile has the columns of one `split`."""
    if FORM.folded > 1:
        own = split * FORM.folded + rows // (n_rows // FORM.folded)
    else:
        own = split
    return own


@triton.jit
def folded_turn(tile, tiles, FORM: tl.constexpr):
    """Returns the tile to take when it is the turn of `tile`: those of a matrix with nearly the same rows follow each other.

    A matrix has `tiles`. Each place has `tiles // FORM.folded` of them; some have one more, which comes first. A tile may have
    the last rows of one place and the first of the next, and needs the statistics of both: so the first and the last rows come
    first, then those next to them, until they meet.
    """
    turn, each, more = tile % tiles, tiles // FORM.folded, tiles % FORM.folded
    ends = tl.cdiv((turn + 1) * FORM.folded, tl.maximum(more, 1)) * tiles // FORM.folded - 1
    place, within = (turn - more) % FORM.folded, (turn - more) // FORM.folded
    within = tl.where(within % 2 == 0, within // 2, each - 1 - within // 2)
    return tile - turn + tl.where(turn < more, ends, place * tiles // FORM.folded + within)


@triton.jit
def tile_near(rows, n_rows, place, near, FORM: tl.constexpr):
    """Returns (a tile that may have some of these rows at another place, the lane of each row there, the rows that it has).

    `rows` are places in a line. From one on they may be those of the next line, so that up to four tiles have them: `near`
    says which.
    """
    step = n_rows // FORM.folded
    within = rows % step
    begin = place * step + tl.where(near < 2, tl.min(rows, axis=0) % step, 0)
    tile = begin // FORM.tile_rows + near % 2
    lanes = place * step + within - tile * FORM.tile_rows
    return tile, lanes, (lanes >= 0) & (lanes < FORM.tile_rows) & (rows < n_rows)


if hasattr(tl, "gather"):

    @triton.jit
    def at_lanes(statistics, lanes, FORM: tl.constexpr):
        """Returns the statistics of these lanes, any number for a lane that there is not."""
        return tl.gather(statistics, tl.minimum(tl.maximum(lanes, 0), FORM.tile_rows - 1), 0)

else:  # Triton 3.2 has no tl.gather

    @triton.jit
    def at_lanes(statistics, lanes, FORM: tl.constexpr):
        """Returns the statistics of these lanes, 0 for a lane that there is not."""
        is_lane = tl.expand_dims(lanes, 1) == tl.expand_dims(tl.arange(0, FORM.tile_rows), 0)
        return tl.sum(tl.where(is_lane, tl.expand_dims(statistics, 0), 0.0), axis=1)
