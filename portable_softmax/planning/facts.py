"""Facts of a launch that its cost depends on: what its programs do, in which order, and the bytes they move."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.planning.candidates import GB_PER_S, WORD_BYTES, Limits, limits_of
from portable_softmax.planning.cost import Facts
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.tiling import Tiling

# Accesses of a warp that take as long as a cache line, and as the words of another program, which take twice as long while
# programs of later waves load.
LINE_PART, LOOKUP = 1 / 3, 3
UNALIGNED = 2  # times that bytes count that are read again, if rows start anywhere: warps store parts of the same sectors
IN_TURN = 0.6  # of the time of an element, in which its partition computes for no other warp: least regret, H100s and an H200


def softmax_facts(
    problem: Problem, tiling: Tiling, device: Device, num_programs: int, resident: int, spilled_bytes: float = 0
) -> Facts:
    """Returns the facts of a launch; `resident` programs fit a multiprocessor, at least 1, and a thread spills some bytes."""
    limits = limits_of(device)
    slots = limits.multiprocessors * resident
    x, y = DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]
    reads, writes = (2 * y, x) if problem.backward else (x, y)  # bytes per element
    if not problem.stores:
        writes = 0
    threads, tiles = tiling.warps * limits.warp, problem.tiles(tiling.tile_rows) * tiling.splits
    at_once = min(resident, max(1.0, num_programs / limits.multiprocessors))
    tiles_each, waves = -(-tiles // num_programs), -(-num_programs // slots)
    passes = 1 if tiling.held or problem.log_probs else 2
    covered = tiling.covers(problem.width) // tiling.splits
    elements = tiling.tile_rows * covered
    vector, operands = vector_of(problem, limits, tiling), problem.loads + (1 if problem.stores else 0)
    unused, partial, lines = _pieces(problem, limits, tiling, vector, at_once)
    all_elements = problem.n_rows * problem.n_cols
    read, moved = all_elements * reads, all_elements * (reads + writes)
    l2_bytes = partial * (moved + read * (passes - 1)) + 2 * spilled_bytes * threads * tiles
    other_bytes = elements * (reads + writes) * at_once * limits.multiprocessors
    if tiling.two_launches:
        other_bytes = max(other_bytes, read)
    again = read * lost(other_bytes, device) if passes == 2 else 0.0
    if tiling.two_launches:
        l2_bytes += read - again
    exchanges = tiling.is_shared and not tiling.two_launches and problem.pairs > 0
    statistics = problem.pairs * (1 if problem.backward else 2)  # a sum, and a maximum
    waiting_warps = tiling.warps if statistics else 0
    accesses = ((operands - 1) * passes + 1) * elements / vector
    issued = (accesses + statistics * _sums(problem, tiling, threads, vector)) / limits.warp
    issued += LINE_PART * operands * lines * elements * passes
    if exchanges:
        issued += LOOKUP * (2 - 1 / waves) * problem.pairs * tiling.tile_rows * tiling.splits
    return Facts(
        memory_us=(moved + again + all_elements * _mask(problem)) / limits.per_us,
        l2_us=l2_bytes / limits.per_us,
        unused=unused,
        programs=num_programs,
        resident=at_once,
        waves=waves,
        tiles=tiles_each,
        loads=1 if tiling.held and problem.pairs else passes * -(-covered // tiling.width),
        elements=elements / threads * (1 if problem.backward else 2) * max(1.0, IN_TURN * tiling.warps / limits.partitions),
        exchanges=1 + math.log2(tiling.warps) / 2 if exchanges else 0,
        warps=waiting_warps * (2 if exchanges else 1),
        tail=tiling.splits / slots if exchanges and num_programs > slots else 0,
        issued=issued,
        launches=2 if tiling.two_launches else 1,
        largest=max(1, limits.multiprocessors * min(1, tiles_each * tiling.tile_rows / (problem.n_rows * tiling.splits))),
    )


def vector_of(problem: Problem, limits: Limits, tiling: Tiling) -> int:
    """Returns the number of neighbouring elements of a thread."""
    threads, elements, vector = tiling.warps * limits.warp, tiling.tile_rows * tiling.width, problem.vector
    return min(vector, max(1, elements // threads)) if problem.across else vector


def lost(other_bytes: float, device: Device) -> float:
    """Returns the part that the L2 cache no longer holds at a second read, after so many other bytes were moved."""
    x = other_bytes / (device.hardware.l2_cache_bytes or 1)
    return x**3 / (1 + x**3)


def _mask(problem: Problem) -> float:
    """Returns the bytes of a mask per element of x; those that rows or matrices share are counted once."""
    mask, copies = problem.scores.mask, problem.mask_copies
    return {"bits": 1 / 8, "bool": 1, **DTYPE_BYTES}[mask] / copies if mask and copies else 0


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


class Traffic(NamedTuple):
    """Bytes, accesses and operations of one row, and of one program beside its rows."""

    row: float = 0  # bytes that memory moves; not those that a cache has, of weights or of a row that is read once more
    program: float = 0
    again: float = 0  # bytes of a row that are read once more
    element: float = WORD_BYTES  # bytes of the largest part of them
    row_operands: float = 0  # loads and stores of all elements of a row
    program_operands: float = 0
    reductions: float = 0  # per row
    block_reductions: float = 0  # per block of a row that the kernel loops over
    exponents: float = 0  # elements of a row, counted once per exp
    loads: float = 0  # of all elements of a row
    loaded: float = 0  # their bytes


class RowLaunch(NamedTuple):
    """A launch of a row kernel."""

    n_rows: int
    n_cols: int
    multiple: int  # elements of which the start of a row is a multiple, as the compiler knows
    num_programs: int  # of the grid
    resident: int  # programs that a multiprocessor holds at once
    num_warps: int | None  # of a program; None where programs have no warps
    block: int  # elements of a row that a program has at once
    num_stages: int = 1  # of the loop that is pipelined: over the blocks of a row where the kernel has one, else over rows
    in_blocks: bool = False  # it has one
    spilled_bytes: int = 0  # of a thread
    clocks: float = 0  # of a row, as of `row_work`
    chained: float = 0


def row_facts(traffic: Traffic, launch: RowLaunch, device: Device) -> Facts:
    """Returns the facts of a launch."""
    hardware, rows, programs = device.hardware, launch.n_rows, launch.num_programs
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    lanes, warps = hardware.warp_size or 1, launch.num_warps or 1
    threads, blocks = warps * lanes, -(-launch.n_cols // launch.block)
    resident = min(launch.resident, max(1.0, programs / multiprocessors))
    tiles, elements = -(-rows // programs), blocks * launch.block
    at_once = min(VECTOR_BYTES / traffic.element, launch.multiple)
    accesses = elements * traffic.row_operands / at_once
    shuffles = (traffic.reductions + blocks * traffic.block_reductions) * math.log2(threads) * warps
    again = rows * traffic.again * lost(traffic.row * resident * multiprocessors, device)
    again *= UNALIGNED if launch.multiple == 1 else 1
    in_partition = warps / (hardware.partitions_per_multiprocessor or 1)
    ahead = 0
    if launch.num_stages > 2 and launch.multiple > 1 and not launch.in_blocks:
        ahead = min(launch.num_stages - 2, tiles - 1)
    lines = accesses * max(1 / lanes, at_once * traffic.element / (WORD_BYTES * lanes))
    return Facts(
        memory_us=(rows * traffic.row + programs * traffic.program + again) / per_us,
        l2_us=2 * launch.spilled_bytes * threads * rows / per_us,
        programs=programs,
        resident=resident,
        waves=-(-programs // (multiprocessors * launch.resident)),
        tiles=tiles,
        ahead=ahead,
        loads=blocks,
        elements=elements / threads * (1 + traffic.exponents / launch.n_cols),
        issued=accesses / lanes + shuffles + LINE_PART * lines,
        own_issued=launch.block * traffic.program_operands / at_once / lanes,
        warps=warps * traffic.block_reductions if blocks > 1 else 0,
        largest=max(1, multiprocessors * tiles / max(1, rows)),
        clocks=launch.clocks * max(1, in_partition),
        all_clocks=launch.clocks * (in_partition * resident + 1 / (1 + ahead)),
        chained=max(1.0, launch.chained) if launch.clocks else 0,
    )


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
