"""Facts of a softmax's launch that its cost depends on: what its programs do, in which order, and the bytes they move."""

import functools
import math
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import Facts
from portable_softmax.planning.grid import WORD_BYTES, Budget
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
        alone=max(
            1, memory.multiprocessors * min(1, tiling.tile_rows * -(-tiles // num_programs) / (problem.n_rows * tiling.splits))
        ),
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


FEW = 8  # elements of a thread, at most, that are loaded one at a time
PACKED_BYTES = 2  # of the elements that are packed in pairs, whatever the compiler knows of rows


class Traffic(NamedTuple):
    """Bytes, accesses and operations of one row, and of one program beside its rows.

    Args:
        row, program: bytes that memory moves; not those that a cache has, of weights or of a row that is read once more.
        again: bytes of a row that are read once more.
        element: bytes of the largest part of them.
        row_operands, program_operands: loads and stores of all elements of a row.
        reductions, block_reductions: per row, and per block of a row that the kernel loops over.
        exponents: elements of a row, counted once per exp.
    """

    row: float = 0
    program: float = 0
    again: float = 0
    element: float = 4
    row_operands: float = 0
    program_operands: float = 0
    reductions: float = 0
    block_reductions: float = 0
    exponents: float = 0


class RowLaunch(NamedTuple):
    """A launch.

    Args:
        n_rows, n_cols: number of rows, and of elements per row.
        multiple: elements of which the start of a row is a multiple, as the compiler knows.
        num_programs: of the grid.
        resident: programs that a multiprocessor holds at once.
        num_warps: of a program; None where programs have no warps.
        block: elements of a row that a program has at once.
        num_stages: of the loop that is pipelined: over the blocks of a row where the kernel has one, else over rows.
        in_blocks: it has one.
        spilled_bytes: of a thread.
    """

    n_rows: int
    n_cols: int
    multiple: int
    num_programs: int
    resident: int
    num_warps: int | None
    block: int
    num_stages: int = 1
    in_blocks: bool = False
    spilled_bytes: int = 0


def row_facts(traffic: Traffic, launch: RowLaunch, device: Device) -> Facts:
    """Returns the facts of a launch."""
    hardware, rows, programs = device.hardware, launch.n_rows, launch.num_programs
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    lanes = hardware.warp_size or 1
    threads, blocks = (launch.num_warps or 1) * lanes, -(-launch.n_cols // launch.block)
    beside = min(launch.resident, max(1.0, programs / multiprocessors))
    turns, elements = -(-rows // programs), blocks * launch.block
    at_once = max(min(VECTOR_BYTES / traffic.element, launch.multiple), traffic.element / PACKED_BYTES)
    accesses = elements * traffic.row_operands / at_once
    shuffles = (traffic.reductions + blocks * traffic.block_reductions) * math.log2(threads)
    again = rows * traffic.again * lost(traffic.row * beside * multiprocessors, device)
    ahead = launch.num_stages > 2 and launch.multiple > 1 and not launch.in_blocks
    return Facts(
        memory_us=(rows * traffic.row + programs * traffic.program + again) / per_us,
        l2_us=2 * launch.spilled_bytes * threads * rows / per_us,
        left_out=0,
        programs=programs,
        beside=beside,
        waves=-(-programs // (multiprocessors * launch.resident)),
        turns=turns,
        ahead=min(launch.num_stages - 2, turns - 1) if ahead else 0,
        loads=blocks * (1 + L2_LATENCY * traffic.again / (traffic.element * launch.n_cols)),
        elements=elements / threads * (1 + traffic.exponents / launch.n_cols),
        exchanges=0,
        issued=accesses / lanes
        + shuffles * threads / lanes
        + LINE_PART * accesses * max(1 / lanes, at_once * traffic.element / (VECTOR_BYTES * lanes / 4)),
        own_issued=launch.block * traffic.program_operands / at_once / lanes,
        alone=max(1, multiprocessors * turns / max(1, rows)),
    )


def is_slow(traffic: Traffic, launch: RowLaunch, device: Device) -> bool:
    """True for stages of one turn, and for many elements of a thread that are loaded one by one, without a reduction.

    Some other launch is always as fast, or nearly so, by measured launches.
    """
    one_turn = launch.num_stages > 1 and (launch.in_blocks or launch.num_programs >= launch.n_rows)
    per_thread = launch.block / ((launch.num_warps or 1) * (device.hardware.warp_size or 1))
    reduces = traffic.reductions or traffic.block_reductions
    return one_turn or (launch.multiple == 1 and not reduces and per_thread > FEW)
