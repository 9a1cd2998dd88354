"""How rows of a softmax are cut into tiles, and what the programs of a tiling do."""

import math
from typing import Any, NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.planning.cost import Limits, Work
from portable_softmax.planning.problem import Problem

IN_TURN = 0.6  # of the time of an element, in which its partition computes for no other warp: least regret, H100s and an H200
MASK_BYTES = {"bits": 1 / 8, "bool": 1, **DTYPE_BYTES}  # per element of x


class Tiling(NamedTuple):
    """Partition of rows into tiles, and the compiler's options.

    A tile has `splits`, one per program that shares its rows; a split has `blocks` of `width` columns. A split is in registers,
    or read one block at a time: twice, but once for log-probabilities and their gradient, which need no second pass.
    """

    tile_rows: int
    width: int  # columns of a block, a power of two
    num_warps: int | None = None  # None if the vendor has none
    splits: int = 1  # programs that share the rows of a tile
    max_registers: int | None = None  # per thread that the compiler may use; None leaves it to the compiler
    blocks: int = 1  # of a split; 1 if one program reads whole rows in a loop over blocks
    in_registers: bool = True  # a split at once; False if it is read one block at a time
    walk: bool = True  # a program computes one tile after another; else the grid has one for every tile and split
    two_launches: bool = False  # the first computes statistics of the splits, the second reads these and the splits again

    @property
    def strategy(self) -> str:
        """Returns "split" if programs share rows; else "in registers", or "two-pass" if read block by block, even if once."""
        if self.is_split:
            return "split"
        return "in registers" if self.in_registers else "two-pass"

    @property
    def split_cols(self) -> int:
        """Returns the columns of a split; of a whole row that is read block by block, those of a block."""
        return self.blocks * self.width

    @property
    def cols_at_once(self) -> int:
        """Returns the columns that a program has in registers at once."""
        return self.split_cols if self.in_registers else self.width

    @property
    def warps(self) -> int:
        """Returns num_warps; 1 if the vendor has none."""
        return self.num_warps or 1

    @property
    def is_split(self) -> bool:
        """True if several programs share a row; they exchange numbers, but for a gradient of log-probabilities."""
        return self.splits > 1

    def __str__(self) -> str:
        text = f"{self.strategy} {self.tile_rows} x {self.split_cols}"
        if self.is_split:
            text += f" in {self.splits} splits"
        if self.blocks > 1:
            text += f" of {self.blocks} blocks"
        if self.two_launches:
            text += ", in two launches"
        elif self.is_split and not self.in_registers:
            text += ", block by block"
        if self.num_warps is not None:
            text += f", num_warps {self.num_warps}"
        if self.max_registers is not None:
            text += f", at most {self.max_registers} registers"
        return text


def softmax_work(problem: Problem, tiling: Tiling, limits: Limits, programs: int, resident: int, spilled: int = 0) -> Work:
    """Returns what the programs of a softmax do, of which a multiprocessor holds `resident`; a thread spills some bytes."""
    turns, threads = problem.tiles(tiling.tile_rows) * tiling.splits, tiling.warps * limits.warp
    blocks, elements = -(-problem.width // (tiling.splits * tiling.width)), problem.n_rows * problem.n_cols / turns
    covered, vector, loads = blocks * tiling.width, problem.vector, problem.loads  # with masked columns
    read, written = problem.x_dtype, problem.y_dtype
    exponents, statistics = 1, 2 * problem.pairs  # a maximum, and a sum
    if problem.backward:
        read, written, exponents, statistics = written, read, 0, problem.pairs
    if not tiling.in_registers and problem.log_probs is None:  # in a second pass too
        blocks, loads = 2 * blocks, 2 * loads
    elif tiling.in_registers:
        blocks = 1
    in_turn = max(1.0, IN_TURN * tiling.warps / limits.partitions)
    if problem.log_probs and problem.log_probs.min_p and problem.is_sample:  # one program may read a row again, at the end
        covered, in_turn = covered + problem.width, 1.0
    readers = 1 if problem.is_sample else tiling.splits  # the last program alone draws, and reads a pair more
    bytes_read, bytes_written, bytes_masked = problem.loads * DTYPE_BYTES[read], problem.stores * DTYPE_BYTES[written], 0.0
    if not problem.mask.shared:
        bytes_masked = MASK_BYTES.get(problem.scores.mask or "", 0)
    lanes = tiling.width / vector  # threads of a row, which add up half of their numbers with neighbours, then half of these
    if problem.across:
        lanes = min(tiling.width, threads * vector / tiling.tile_rows)
    lanes = min(threads, max(1, lanes))
    sums = max(1, tiling.tile_rows * lanes / threads) * math.log2(lanes) / max(1, math.log2(threads))
    return Work(
        row=elements * (bytes_read + bytes_written + bytes_masked),
        again=elements * bytes_read if loads > problem.loads or tiling.two_launches else 0,
        row_operands=loads + problem.stores,
        reductions=statistics * sums,
        exponents=exponents,
        words=problem.pairs * tiling.tile_rows * readers if tiling.is_split and not tiling.two_launches else 0,
        elements=tiling.tile_rows * covered,
        vector=vector,
        blocks=blocks,
        in_turn=in_turn,
        turns=turns,
        programs=programs,
        resident=resident,
        warps=tiling.warps,
        splits=tiling.splits,
        launches=2 if tiling.two_launches else 1,
        spilled_bytes=spilled,
        **_pieces(problem, limits, tiling, vector, resident),
    )


def _pieces(problem: Problem, limits: Limits, tiling: Tiling, vector: int, resident: float) -> dict[str, Any]:
    """Returns the cost of runs of neighbouring elements that are shorter than a cache line, as fields of Work."""
    element, line, sector, access = problem.element, limits.line, limits.sector, vector * limits.warp
    rows, inner = tiling.tile_rows, problem.inner
    piece, distance = tiling.width, problem.n_cols  # elements that a warp requests side by side, and how far others are
    if problem.across:
        piece, distance = rows, inner
    if problem.across and rows > inner:  # of several matrices
        piece, distance = inner * max(1, access // rows), inner * problem.n_cols
    piece = min(access, piece)
    pieces = access // piece
    lines = min(pieces * max(1, piece * element / line), max(1, pieces * distance * element / line)) / (pieces * piece)
    if not problem.across:
        return {"lines": lines}
    run, partial = inner * tiling.width if rows >= inner else rows, 0.0
    if problem.scattered:
        partial = (inner - math.gcd(inner, rows)) / rows  # rows of others, at both ends
    elif inner * element % sector:
        partial = sector / (run * element)  # a run ends within a sector that another one begins in
        if rows < inner:
            partial += resident * limits.warp / limits.resident_threads  # the later, the more are between
    return {"lines": lines, "partial": partial, "unused": max(1, line / (run * element)) - 1}
