"""Facts of a launch that its cost depends on: what its programs do, in which order, and what they move."""

import functools
import math
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import WORD_BYTES, Budget
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem

GB_PER_S = 1e3  # bytes of a microsecond
BANDWIDTH = 16  # GB/s of a multiprocessor, where nobody knows the memory's: most of the shipped profiles have 9 to 26


class Facts(NamedTuple):
    """Facts of a launch that its cost depends on; numbers, or arrays of them for many launches at once.

    Args:
        programs: that a multiprocessor starts.
        beside: programs that it has at once.
        waves: whole rounds, until all tiles are done.
        bytes_us: moving all bytes once, at the data sheet's bandwidth.
        again_us: the same for bytes that are read again.
        spilled_us: the same for bytes that are spilled, and read again.
        shared: 1 where programs exchange statistics, or read those of tokens for a gradient, else 0.
        waiting: part of the programs that share a row which wait for the others and read their statistics.
        lookups: statistics that such a program reads.
        each: elements of an operand that a thread has, with those that are masked.
        alone: elements with an address, or a mask, of their own: on both sides of unaligned rows, and each access of rows side
            by side.
        requests: cache lines that the program's warps ask for, each access apart.
        exponents: elements that a program raises e to, with those that are masked.
        sums: numbers that a program's threads give each other.
        steps: blocks that a program waits for, beyond the first.
        pieces: bytes that cache lines leave out, for each that is moved.
        launches: one, or two of which the second reads what the first has reduced.
    """

    programs: float
    beside: float
    waves: float
    bytes_us: float
    again_us: float
    spilled_us: float
    shared: float
    waiting: float
    lookups: float
    each: float
    alone: float
    requests: float
    exponents: float
    sums: float
    steps: float
    pieces: float
    launches: float = 1.0


class _Memory(NamedTuple):
    """Memory that a problem moves on a device: bytes of an element that are read and written, and sizes."""

    element: int
    operands: int
    read: int
    written: int
    mask: float
    elements: int
    per_us: float
    multiprocessors: int
    warp: int
    line: int
    sector: int
    cached: int


def facts(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: float = 0
) -> Facts:
    """Returns the facts of a launch; see `cost`."""
    memory = _memory(problem, device)
    threads = (tiling.num_warps or 1) * memory.warp
    tiles = problem.tiles(tiling.tile_rows) * tiling.splits  # what programs do one after the other
    places = memory.multiprocessors * resident
    covered = tiling.covers(problem.width) // tiling.splits
    elements = tiling.tile_rows * covered
    edges = tiling.tile_rows * 2 * problem.vector / tiling.splits if problem.unaligned else 0  # the first split has both
    vector = _vector(problem, tiling, threads)
    pieces, under, requests = _pieces(problem, tiling, memory, vector)
    read, moved = memory.elements * memory.read, memory.elements * (memory.read + memory.written)
    twice = not tiling.held and problem.reads_again
    exchanges = tiling.is_shared and not tiling.two_launches
    is_gradient = problem.log_probs is not None and problem.log_probs.gradient
    between = elements * (memory.read + memory.written) * places  # that all programs move meanwhile
    missed = read * max(0.0, 1 - memory.cached / between) if twice else 0  # the L2 cache has lost it
    passes = 1 + read / moved if twice else 1
    again = under * moved * passes + (read - missed if twice else 0)
    alone = elements / vector if problem.across else 0  # each has an address of its own
    return Facts(
        programs=num_programs / memory.multiprocessors,
        beside=min(resident, max(1.0, tiles / memory.multiprocessors)),
        waves=-(-tiles // places),
        bytes_us=(moved + missed + memory.elements * memory.mask) / memory.per_us,
        again_us=again / memory.per_us,
        spilled_us=2 * spilled_bytes * threads * tiles / memory.per_us,
        shared=float((exchanges and problem.pairs > 0) or is_gradient),
        waiting=1 if problem.log_probs is None or is_gradient else 1 / tiling.splits,
        lookups=problem.pairs * tiling.tile_rows * tiling.splits if exchanges else 0,
        each=(elements + edges) / threads,
        alone=(edges + alone) * passes,
        requests=requests * elements * passes + memory.operands * edges / problem.vector,
        exponents=0 if problem.backward else elements + edges,
        sums=(_sums(problem, tiling, threads, vector) + edges * math.log2(2 * problem.vector))
        * (min(problem.pairs, 1) if problem.backward else problem.pairs + (problem.pairs > 0)),  # a maximum, and sums
        steps=0 if tiling.held else (2 if twice else 1) * -(-covered // tiling.width) - 1,
        pieces=pieces,
        launches=2.0 if tiling.two_launches else 1.0,
    )


@functools.lru_cache(maxsize=256)
def _memory(problem: Problem, device: Device) -> _Memory:
    hardware, budget = device.hardware, Budget(problem, device)
    x, y = DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]
    read, written = (2 * y, x) if problem.backward else (x, y)
    bandwidth = hardware.memory_bandwidth_gb_per_s or BANDWIDTH * budget.multiprocessors
    return _Memory(
        element=y if problem.stores else x,
        operands=(2 if problem.backward else 1) + problem.stores,
        read=read,
        written=written if problem.stores else 0,
        mask=_mask(problem),
        elements=problem.n_rows * problem.n_cols,
        per_us=GB_PER_S * bandwidth,
        multiprocessors=budget.multiprocessors,
        warp=budget.warp,
        line=WORD_BYTES * budget.line,
        sector=WORD_BYTES * budget.sector,
        cached=hardware.l2_cache_bytes or 0,
    )


def _mask(problem: Problem) -> float:
    """Returns the bytes of a mask for each element of x, as far as rows and matrices have some of their own."""
    mask, lines = problem.scores.mask, problem.lines
    if mask is None or lines is None or not lines.mask:
        return 0
    _, *strides = lines.mask
    sizes = (lines.levels[2][0], lines.levels[1][0], lines.levels[0][0])
    shared = math.prod(size for size, stride in zip(sizes, strides, strict=True) if not stride)
    return (1 if mask == "bool" else DTYPE_BYTES[mask]) / shared


def _pieces(problem: Problem, tiling: Tiling, memory: _Memory, vector: int) -> tuple[float, float, float]:
    """Returns what runs of neighbouring elements cost that are shorter than a cache line.

    Bytes that lines leave out for each that is moved; moves of all operands' worth of sectors beyond the first; and
    lines that warps ask for, for each element.
    """
    element, operands, line, sector = memory.element, memory.operands, memory.line, memory.sector
    access = vector * memory.warp  # elements that a warp asks for at once
    if not problem.across:
        runs = [tiling.tile_rows * tiling.tile_cols] * operands
        asked = [_lines(access, tiling.width, tiling.tile_rows, problem.n_cols, element, line)] * operands
        narrow = vector * element / VECTOR_BYTES  # single elements of a line are read one after another
    else:
        narrow, inner, rows = 1, problem.inner, min(access, tiling.tile_rows)
        runs = [inner * tiling.width if tiling.tile_rows >= inner else tiling.tile_rows] * operands
        if rows > inner:  # of several matrices
            asked = [
                _lines(access, inner * (access // rows), -(-rows // inner), inner * problem.n_cols, element, line)
            ] * operands
        else:
            asked = [_lines(access, rows, access, inner, element, line)] * operands
    left_out = sum(line / min(line, max(each * element, sector)) - 1 for each in runs) / operands
    under = sum(sector / min(sector, each * element) - 1 for each in runs) / operands * narrow
    if problem.scattered:
        under += (problem.inner - math.gcd(problem.inner, tiling.tile_rows)) / tiling.tile_rows  # rows of others, at both ends
    elif problem.across and problem.inner * element % sector:
        under += sector / (runs[0] * element)  # a run ends within a sector that another one begins in
    return left_out * min(1, vector * element / VECTOR_BYTES), under, sum(asked)


def _lines(access: int, run: int, most_runs: int, apart: int, element: int, line: int) -> float:
    """Returns the cache lines for each element that a warp asks for at once: of runs that start so many elements apart."""
    run = min(access, run)
    runs = min(access // run, most_runs)
    begun = 1 - math.gcd(apart * element, line) / line  # a run that starts within a line ends in one more
    touched = min(runs * max(1, run * element / line + begun), max(1, runs * apart * element / line))
    return touched / (run * runs)


def _vector(problem: Problem, tiling: Tiling, threads: int) -> int:
    """Returns how many neighbours a thread has."""
    if not problem.across:
        return problem.vector
    return min(problem.vector, max(1, tiling.tile_rows * tiling.width // threads))


def _sums(problem: Problem, tiling: Tiling, threads: int, vector: int) -> float:
    """Returns the numbers that threads give each other to add up the rows of a tile: half of all, then half of these.

    Neighbouring threads have neighbouring elements, or columns, where Triton does not see that rows are neighbours.
    """
    if not problem.across or (problem.scattered and vector == 1):
        lanes = min(threads, max(1, tiling.width // vector))
        return max(threads, tiling.tile_rows * lanes) * math.log2(lanes)
    beside = min(threads, max(1, tiling.tile_rows // vector))
    lanes = max(1, min(threads // beside, tiling.width))
    return threads * max(vector, tiling.tile_rows // beside) * math.log2(lanes)
