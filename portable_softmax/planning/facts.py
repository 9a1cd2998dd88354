"""Facts of a softmax's launch that its cost depends on: what its programs do, in which order, and the bytes they move."""

import functools
import math
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import WORD_BYTES, Budget
from portable_softmax.planning.cost import Facts
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem

GB_PER_S = 1e3  # bytes of a microsecond
BANDWIDTH = 16  # GB/s per multiprocessor, where it is unknown: 9 to 26 in most of the shipped profiles
L2_LATENCY = 0.5  # in parts of the memory's
CACHED = 0.8  # of the L2 cache: half of what programs read once more is lost where they move as much in between
LINE_PART, LOOKUP = 1 / 3, 2  # accesses of a warp that take as long as a cache line, and as a number of another program


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


def softmax_facts(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: float = 0
) -> Facts:
    """Returns the facts of a launch.

    Args:
        problem: as it is read, see reading.py.
        tiling: how its rows are cut.
        num_programs: size of the grid.
        resident: programs that a multiprocessor holds at once, at least 1.
        device: where it runs.
        spilled_bytes: of a thread.
    """
    memory = _memory(problem, device)
    warps = tiling.num_warps or 1
    threads = warps * memory.warp
    tiles = problem.tiles(tiling.tile_rows) * tiling.splits
    beside = min(resident, max(1.0, num_programs / memory.multiprocessors))
    twice = not tiling.held and problem.reads_again
    passes = 2 if twice else 1
    covered = tiling.covers(problem.width) // tiling.splits
    elements = tiling.tile_rows * covered
    ends = tiling.tile_rows * 2 * problem.vector / tiling.splits if problem.unaligned else 0  # the first split has both
    vector = _vector(problem, tiling, threads)
    left_out, under, lines = _pieces(problem, tiling, memory, vector)
    read, moved = memory.elements * memory.read, memory.elements * (memory.read + memory.written)
    between = elements * (memory.read + memory.written) * beside * memory.multiprocessors
    again = read * lost(max(between, read * tiling.two_launches), device) if twice else 0
    exchanges = tiling.is_shared and not tiling.two_launches and problem.pairs > 0
    statistics = min(problem.pairs, 1) if problem.backward else problem.pairs + (problem.pairs > 0)  # a maximum, and sums
    accesses = ((memory.operands - 1) * passes + 1) * (elements / vector + ends)
    shuffles = statistics * _sums(problem, tiling, threads, vector)
    lines = lines * elements * passes + memory.operands * ends / problem.vector
    lookups = problem.pairs * tiling.tile_rows * tiling.splits if exchanges else 0
    of_thread = (elements + ends) / threads
    return Facts(
        memory_us=(moved + again + memory.elements * memory.mask) / memory.per_us,
        l2_us=(under * (moved + read * twice) + (read - again) * tiling.two_launches + 2 * spilled_bytes * threads * tiles)
        / memory.per_us,
        left_out=left_out,
        programs=num_programs,
        beside=beside,
        waves=-(-num_programs // (memory.multiprocessors * resident)),
        turns=-(-tiles // num_programs),
        ahead=0,
        loads=1 if tiling.held else (1 + L2_LATENCY * twice) * -(-covered // tiling.width),
        elements=of_thread if problem.backward else of_thread + elements / threads,
        exchanges=float(exchanges),
        issued=(accesses + shuffles) / memory.warp + LINE_PART * lines + LOOKUP * lookups,
        own_issued=0,
        launches=2 if tiling.two_launches else 1,
    )


def lost(between: float, device: Device) -> float:
    """Returns the part that the L2 cache no longer holds at a second read, after `between` other bytes were moved."""
    x = between / (CACHED * (device.hardware.l2_cache_bytes or 1))
    return x * x / (1 + x * x)


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
    )


def _mask(problem: Problem) -> float:
    """Returns the bytes of a mask per element of x; those that rows or matrices share are counted once."""
    mask, lines = problem.scores.mask, problem.lines
    if mask is None or lines is None or not lines.mask:
        return 0
    _, *strides = lines.mask
    sizes = (lines.levels[2][0], lines.levels[1][0], lines.levels[0][0])
    shared = math.prod(size for size, stride in zip(sizes, strides, strict=True) if not stride)
    return (1 if mask == "bool" else DTYPE_BYTES[mask]) / shared


def _pieces(problem: Problem, tiling: Tiling, memory: _Memory, vector: int) -> tuple[float, float, float]:
    """Returns the cost of runs of neighbouring elements that are shorter than a cache line.

    Unused bytes of lines per byte that is moved; moves of all operands' worth of sectors beyond the first; and
    lines that warps request, per element.
    """
    element, line, sector = memory.element, memory.line, memory.sector
    access = vector * memory.warp  # elements that a warp requests at once
    rows, inner, narrow = tiling.tile_rows, problem.inner, 1.0
    if not problem.across:
        run, requested = rows * tiling.tile_cols, _lines(access, tiling.width, rows, problem.n_cols, element, line)
        narrow = vector * element / VECTOR_BYTES  # single elements of a line are read one after another
    else:
        run = inner * tiling.width if rows >= inner else rows
        beside = min(access, rows)
        if beside > inner:  # of several matrices
            requested = _lines(access, inner * (access // beside), -(-beside // inner), inner * problem.n_cols, element, line)
        else:
            requested = _lines(access, beside, access, inner, element, line)
    left_out = line / min(line, max(run * element, sector)) - 1
    under = (sector / min(sector, run * element) - 1) * narrow
    if problem.scattered:
        under += (inner - math.gcd(inner, rows)) / rows  # rows of others, at both ends
    elif problem.across and inner * element % sector:
        under += sector / (run * element)  # a run ends within a sector that another one begins in
    return left_out * min(1, vector * element / VECTOR_BYTES), under, memory.operands * requested


def _lines(access: int, run: int, most_runs: int, apart: int, element: int, line: int) -> float:
    """Returns the cache lines per element that a warp requests at once, of runs that start `apart` elements apart."""
    run = min(access, run)
    runs = min(access // run, most_runs)
    begun = 1 - math.gcd(apart * element, line) / line  # a run that starts within a line ends in one more
    touched = min(runs * max(1, run * element / line + begun), max(1, runs * apart * element / line))
    return touched / (run * runs)


def _vector(problem: Problem, tiling: Tiling, threads: int) -> int:
    """Returns the number of neighbouring elements of a thread."""
    if not problem.across:
        return problem.vector
    return min(problem.vector, max(1, tiling.tile_rows * tiling.width // threads))


def _sums(problem: Problem, tiling: Tiling, threads: int, vector: int) -> float:
    """Returns the numbers that threads exchange to add up the rows of a tile: half of all, then half of these.

    Neighbouring threads have neighbouring elements, or columns, where Triton does not see that rows are neighbours.
    """
    if not problem.across or (problem.scattered and vector == 1):
        lanes = min(threads, max(1, tiling.width // vector))
        return max(threads, tiling.tile_rows * lanes) * math.log2(lanes)
    beside = min(threads, max(1, tiling.tile_rows // vector))
    lanes = max(1, min(threads // beside, tiling.width))
    return threads * max(vector, tiling.tile_rows // beside) * math.log2(lanes)
