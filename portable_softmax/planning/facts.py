"""Facts of a launch that its cost depends on: what its programs do, in which order, and the bytes they move."""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import NS, Facts
from portable_softmax.planning.problem import Problem
from portable_softmax.planning.tiling import Tiling

WORD_BYTES = 4
GB_PER_S = 1 / NS  # bytes of a microsecond
# Accesses of a warp that take as long as a cache line, and as the words of another program, which take twice as long while
# programs of later waves load.
LINE_PART, LOOKUP = 1 / 3, 3
UNALIGNED = 2  # times that bytes count that are read again, if rows start anywhere: warps store parts of the same sectors
IN_TURN = 0.6  # of the time of an element, in which its partition computes for no other warp: least regret, H100s and an H200


class Limits(NamedTuple):
    """Numbers of a device that launches depend on, 1 in place of an unknown one; of a multiprocessor, or in bytes."""

    warp: int  # threads
    max_threads: int  # of a program
    resident_threads: int
    registers: int
    registers_per_thread: int
    multiprocessors: int
    partitions: int  # of a multiprocessor, each of which issues instructions of one warp at a time
    line: int  # of the cache
    sector: int  # the least that moves
    l2_bytes: int
    per_us: float  # that memory moves at the data sheet's bandwidth


@functools.lru_cache
def limits_of(device: Device) -> Limits:
    """Returns the limits of a device."""
    hardware, launch = device.hardware, device.profile.launch
    registers = hardware.registers_per_multiprocessor or 1
    warp, multiprocessors = hardware.warp_size or 1, hardware.multiprocessor_count or 1
    line, sector = (words.value if words else 1 for words in (launch.line_elements, launch.min_line_elements))
    return Limits(
        warp,
        hardware.max_threads_per_program or warp,
        warp * (hardware.max_warps_per_multiprocessor or 1),
        registers,
        hardware.max_registers_per_thread or registers,
        multiprocessors,
        hardware.partitions_per_multiprocessor or 1,
        WORD_BYTES * line,
        WORD_BYTES * sector,
        hardware.l2_cache_bytes or 1,
        GB_PER_S * (hardware.memory_bandwidth_gb_per_s or multiprocessors),
    )


class Traffic(NamedTuple):
    """Bytes, accesses and operations of a turn, which is a row, or a tile of rows; and of a program beside its turns."""

    row: float = 0  # bytes that memory moves; not those that a cache has, of weights or of a row that is read once more
    program: float = 0
    again: float = 0  # bytes that are read once more
    element: float = WORD_BYTES  # bytes of the largest part of them
    row_operands: float = 0  # loads and stores of all elements
    reductions: float = 0  # by all threads of a program
    block_reductions: float = 0  # likewise, per block that the kernel loops over
    exponents: float = 0  # per element
    loads: float = 0  # of all elements
    loaded: float = 0  # their bytes
    lines: float = 0  # cache lines that a warp requests per element; 0 if those of an access are adjacent
    unused: float = 0  # bytes of lines per byte that is moved
    partial: float = 0  # bytes of sectors that are moved once more, per byte that is moved
    words: float = 0  # numbers of other programs that are read


class Launch(NamedTuple):
    """Programs of a launch, and how they divide their work."""

    turns: int  # of all programs
    programs: int  # of the grid
    resident: int  # that a multiprocessor holds at once
    warps: int  # of a program
    elements: float  # of a turn, with masked ones
    vector: float  # elements of a thread's access
    blocks: int = 1  # of a turn that are loaded one after another
    splits: int = 1  # programs that exchange numbers
    launches: int = 1  # one, or two of which the second reads once more what the first has reduced
    spilled_bytes: int = 0  # of a thread
    clocks: float = 0  # of a turn, as of `row_work`
    chained: float = 0


def launch_facts(traffic: Traffic, launch: Launch, limits: Limits) -> Facts:
    """Returns the facts of a launch."""
    turns, programs, threads = launch.turns, launch.programs, launch.warps * limits.warp
    slots, of_program = limits.multiprocessors * launch.resident, -(-turns // programs)
    waves, in_partition = -(-programs // slots), launch.warps / limits.partitions
    resident = min(launch.resident, max(1.0, programs / limits.multiprocessors))
    between = traffic.row * (turns if launch.launches > 1 else resident * limits.multiprocessors)
    again = turns * traffic.again
    missed = again * lost(between, limits) * (UNALIGNED if launch.vector == 1 else 1)
    l2_bytes = traffic.partial * (turns * traffic.row + again) + 2 * launch.spilled_bytes * threads * turns
    if launch.launches > 1:
        l2_bytes += again - missed
    accesses = launch.elements * traffic.row_operands / launch.vector
    shuffles = (traffic.reductions + launch.blocks * traffic.block_reductions) * math.log2(threads) * launch.warps
    lines = traffic.lines or max(1 / (launch.vector * limits.warp), traffic.element / limits.line)
    lines *= launch.elements * traffic.row_operands
    return Facts(
        memory_us=(turns * traffic.row + programs * traffic.program + missed) / limits.per_us,
        l2_us=l2_bytes / limits.per_us,
        unused=traffic.unused,
        programs=programs,
        resident=resident,
        waves=waves,
        tiles=of_program,
        loads=launch.blocks,
        elements=launch.elements / threads * (1 + traffic.exponents),
        issued=accesses / limits.warp + shuffles + LINE_PART * lines + LOOKUP * (2 - 1 / waves) * traffic.words,
        exchanges=1 + math.log2(launch.warps) / 2 if traffic.words else 0,
        tail=launch.splits / slots if traffic.words and programs > slots else 0,
        launches=launch.launches,
        largest=max(1, limits.multiprocessors * of_program / max(1, turns)),
        clocks=launch.clocks * max(1, in_partition),
        all_clocks=launch.clocks * (in_partition * resident + 1),
        chained=max(1.0, launch.chained) if launch.clocks else 0,
    )


def softmax_facts(problem: Problem, tiling: Tiling, device: Device, programs: int, resident: int, spilled: int = 0) -> Facts:
    """Returns the facts of a softmax's launch; `resident` programs fit a multiprocessor, at least 1."""
    limits, statistics = limits_of(device), problem.pairs * (1 if problem.backward else 2)  # a sum, and a maximum
    turns, threads = problem.tiles(tiling.tile_rows) * tiling.splits, tiling.warps * limits.warp
    covered, vector = tiling.covers(problem.width) // tiling.splits, vector_of(problem, limits, tiling)
    once, stores = tiling.held or problem.log_probs is not None, int(problem.stores)
    blocks = 1 if tiling.held and problem.pairs else (1 if once else 2) * -(-covered // tiling.width)
    elements = problem.n_rows * problem.n_cols / turns
    read = elements * problem.loads * DTYPE_BYTES[problem.y_dtype if problem.backward else problem.x_dtype]
    written = elements * stores * DTYPE_BYTES[problem.x_dtype if problem.backward else problem.y_dtype]
    unused, partial, lines = _pieces(problem, limits, tiling, vector, resident)
    exchanges = tiling.is_shared and not tiling.two_launches
    traffic = Traffic(
        row=read + written + elements * _mask(problem),
        again=read if not once or tiling.two_launches else 0,
        element=problem.element,
        row_operands=problem.loads * (1 if once else 2) + stores,
        reductions=statistics * _sums(problem, tiling, threads, vector) / (threads * math.log2(threads)),
        exponents=0 if problem.backward else 1,
        lines=lines,
        unused=unused,
        partial=partial,
        words=problem.pairs * tiling.tile_rows * tiling.splits if exchanges else 0,
    )
    launch = Launch(
        turns,
        programs,
        resident,
        tiling.warps,
        tiling.tile_rows * covered,
        vector,
        blocks,
        splits=tiling.splits,
        launches=2 if tiling.two_launches else 1,
        spilled_bytes=spilled,
    )
    facts = launch_facts(traffic, launch, limits)
    return facts._replace(elements=facts.elements * max(1.0, IN_TURN * tiling.warps / limits.partitions))


def vector_of(problem: Problem, limits: Limits, tiling: Tiling) -> int:
    """Returns the number of neighbouring elements of a thread."""
    threads, elements, vector = tiling.warps * limits.warp, tiling.tile_rows * tiling.width, problem.vector
    return min(vector, max(1, elements // threads)) if problem.across else vector


def lost(other_bytes: float, limits: Limits) -> float:
    """Returns the part that the L2 cache no longer holds at a second read, after so many other bytes were moved."""
    x = other_bytes / limits.l2_bytes
    return x**3 / (1 + x**3)


def _mask(problem: Problem) -> float:
    """Returns the bytes of a mask per element of x, if rows have elements of their own."""
    mask = problem.scores.mask
    return {"bits": 1 / 8, "bool": 1, **DTYPE_BYTES}[mask] if mask and not problem.mask.shared else 0


def _pieces(problem: Problem, limits: Limits, tiling: Tiling, vector: int, resident: float) -> tuple[float, float, float]:
    """Returns what runs of neighbouring elements cost that are shorter than a cache line.

    Unused bytes of lines per byte that is moved, moves of sectors beyond the first, and lines that warps request an element.
    """
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
    return line / min(line, max(run * element, sector)) - 1, partial, lines / (piece * pieces)


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
