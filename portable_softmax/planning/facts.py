"""What programs of a launch do, from which its cost is computed: the traffic of a softmax, and the loops of a row kernel."""

import math
from collections.abc import Sequence

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.planning.cost import Launch, Limits, Traffic
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling

IN_TURN = 0.6  # of the time of an element, in which its partition computes for no other warp: least regret, H100s and an H200


def softmax_work(
    problem: Problem, tiling: Tiling, limits: Limits, programs: int, resident: int, spilled: int = 0
) -> tuple[Traffic, Launch]:
    """Returns what the programs of a softmax do, of which a multiprocessor holds `resident`; a thread spills some bytes."""
    turns, threads = problem.tiles(tiling.tile_rows) * tiling.splits, tiling.warps * limits.warp
    covered, elements = tiling.covers(problem.width) // tiling.splits, problem.n_rows * problem.n_cols / turns
    vector = problem.vector
    if problem.across:
        vector = min(vector, max(1, tiling.tile_rows * tiling.width // threads))
    blocks, loads, read, written = -(-covered // tiling.width), problem.loads, problem.x_dtype, problem.y_dtype
    if problem.backward:
        read, written = written, read
    if not tiling.held and problem.log_probs is None:  # in a second pass too
        blocks, loads = 2 * blocks, 2 * loads
    elif tiling.held and problem.pairs:
        blocks = 1
    if problem.log_probs and problem.log_probs.min_p:  # one program may read all of a row once more
        covered += problem.width
    bytes_read, bytes_written = problem.loads * DTYPE_BYTES[read], problem.stores * DTYPE_BYTES[written]
    sums = _sums(problem, tiling, threads, vector) / (threads * math.log2(threads))
    traffic = Traffic(
        row=elements * (bytes_read + bytes_written + _mask(problem)),
        again=elements * bytes_read if loads > problem.loads or tiling.two_launches else 0,
        row_operands=loads + problem.stores,
        reductions=problem.pairs * (sums if problem.backward else 2 * sums),  # a sum, and a maximum
        exponents=0 if problem.backward else 1,
        words=problem.pairs * tiling.tile_rows * tiling.splits if tiling.is_shared and not tiling.two_launches else 0,
        **_pieces(problem, limits, tiling, vector, resident),
    )
    launch = Launch(
        turns,
        programs,
        resident,
        tiling.warps,
        tiling.tile_rows * covered,
        vector,
        blocks,
        in_turn=max(1.0, IN_TURN * tiling.warps / limits.partitions),
        splits=tiling.splits,
        launches=2 if tiling.two_launches else 1,
        spilled_bytes=spilled,
    )
    return traffic, launch


def _mask(problem: Problem) -> float:
    """Returns the bytes of a mask per element of x, if rows have elements of their own."""
    mask = problem.scores.mask
    return {"bits": 1 / 8, "bool": 1, **DTYPE_BYTES}[mask] if mask and not problem.mask.shared else 0


def _pieces(problem: Problem, limits: Limits, tiling: Tiling, vector: int, resident: float) -> dict[str, float]:
    """Returns the cost of runs of neighbouring elements that are shorter than a cache line, as fields of Traffic."""
    element, line, sector = problem.element, limits.line, limits.sector
    access = vector * limits.warp  # elements that a warp requests at once
    rows, inner = tiling.tile_rows, problem.inner
    run, adjacent = inner * tiling.width if rows >= inner else rows, min(access, rows)
    if not problem.across:
        run, piece, most, distance = rows * tiling.tile_cols, tiling.width, rows, problem.n_cols
    elif adjacent > inner:  # of several matrices
        piece, most, distance = inner * (access // adjacent), -(-adjacent // inner), inner * problem.n_cols
    else:
        piece, most, distance = adjacent, access, inner
    piece = min(access, piece)  # elements that a warp requests side by side, `distance` from as many others
    pieces = min(access // piece, most)
    lines = min(pieces * max(1, piece * element / line), max(1, pieces * distance * element / line))
    partial = sector / min(sector, run * element) - 1
    if problem.scattered:
        partial += (inner - math.gcd(inner, rows)) / rows  # rows of others, at both ends
    elif problem.across and inner * element % sector:
        partial += sector / (run * element)  # a run ends within a sector that another one begins in
        if rows < inner:
            partial += resident * limits.warp / limits.resident_threads  # the later, the more are between
    unused = line / min(line, max(run * element, sector)) - 1
    return {"unused": unused, "partial": partial, "lines": lines / (piece * pieces)}


def _sums(problem: Problem, tiling: Tiling, threads: int, vector: int) -> float:
    """Returns the numbers that threads exchange to add up the rows of a tile: half of all, then half of these.

    Neighbouring threads have neighbouring elements, or columns, where Triton does not see that rows are neighbours.
    """
    if not problem.across or (problem.scattered and vector == 1):
        lanes = min(threads, max(1, tiling.width // vector))
        return max(threads, tiling.tile_rows * lanes) * math.log2(lanes)
    adjacent = min(threads, max(1, tiling.tile_rows // vector))
    lanes = max(1, min(threads // adjacent, tiling.width))
    return threads * max(vector, tiling.tile_rows // adjacent) * math.log2(lanes)


def row_work(loops: Sequence[Loop], walks: bool, loads: float, at_once: float) -> tuple[float, float]:
    """Returns clocks of a warp, and chained loads of a program, per row; 0 if the machine code is unknown.

    The outermost of its loops is over rows if the kernel `walks`. Compilers unroll loops over blocks, for which a thread has
    `loads` per row, `at_once` of them for a block, and put the blocks that are left behind them.
    """
    depth = 1 if walks else 0
    own, inner = (
        [sum(values) for values in zip((0.0,) * 3, *(loop[1:] for loop in some), strict=True)]
        for some in ([loop for loop in loops if loop.depth == depth], [loop for loop in loops if loop.depth > depth])
    )
    if not loads or not inner[1]:
        return own[0] + inner[0], own[2] + inner[2]
    left = own[1] / inner[1] if inner[1] > at_once else 0
    clocks, chained = (loads / inner[1] * inner[at] + max(0, own[at] - left * inner[at]) for at in (0, 2))
    return clocks, chained
