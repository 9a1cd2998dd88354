"""Expected microseconds of a kernel of anybody's that goes over rows: a sum of terms, from facts and a few measured numbers.

A multiprocessor holds several programs, and each takes a row in a turn: it waits for the row, computes, and stores. Others use
the memory meanwhile. So a launch takes its start, its first turn, and the larger of moving all bytes and going through all
other turns, or somewhat more where the two are alike.
"""

import math
from typing import Any, NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import RowNumbers
from portable_softmax.errors import PlanError

NS, GB_PER_S = 1e-3, 1e3  # microseconds; bytes of a microsecond
VECTOR_BYTES, ASYNC_BYTES, PACKED_BYTES = 16, 4, 2  # of the widest access; the least that is copied ahead; packed in pairs


class Traffic(NamedTuple):
    """Bytes, accesses and operations of one row, and of one program beside its rows.

    Args:
        row, program: bytes that memory moves; not those that a cache has, of weights or of a row that is read once more.
        element: bytes of the largest part of them.
        row_operands, program_operands: loads and stores of all elements of a row.
        reductions, block_reductions: of a row, and of each block of a row that the kernel loops over.
        exponents: elements of a row, for each exp that is taken of them.
    """

    row: float = 0
    program: float = 0
    element: float = 4
    row_operands: float = 0
    program_operands: float = 0
    reductions: float = 0
    block_reductions: float = 0
    exponents: float = 0


class RowLaunch(NamedTuple):
    """A launch.

    Args:
        n_rows, n_cols: of what it goes over.
        multiple: elements that the compiler knows each row to begin at a multiple of.
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


class RowTerms(NamedTuple):
    """Microseconds of a launch by what they are for; their sum is the expected time. Arrays where facts are.

    Args:
        start: of the launch.
        first: the first turn, which nothing hides.
        moving: all bytes, at the bandwidth that long launches get.
        walking: more of it, as programs have a fixed share of the rows.
        turns: waiting in later turns that moving does not hide.
    """

    start: Any
    first: Any
    moving: Any
    walking: Any
    turns: Any

    @property
    def total(self) -> Any:
        """Returns the expected microseconds."""
        return sum(self)

    def __str__(self) -> str:
        """Gives the total, and each term that is a tenth of a microsecond or more, the largest first."""
        told = sorted(zip(self, self._fields, strict=True), reverse=True)
        return f"{self.total:.1f} us: {', '.join(f'{name} {value:.1f}' for value, name in told if round(value, 1))}"


class RowFacts(NamedTuple):
    """Facts of a launch that its cost depends on; numbers, or arrays of them for many launches at once.

    Args:
        moved_us: of memory, at the data sheet's bandwidth.
        walks: part of a program's rows that follow another one.
        begins: programs that follow another one, for each turn.
        later: turns, but for the first.
        beside: programs that a multiprocessor has at once.
        warps: of a program.
        blocks: of a row.
        ahead: rows that are loaded ahead; blocks of a row are not, as other programs hide their latency as well.
        staged: 1 where they are loaded through shared memory, else 0.
        each: elements of all operands that a thread has.
        exponents: of a thread.
        reductions: of a row, as many times as a warp's as they take.
        accesses, program_accesses: of all warps, for a row and for a program beside its rows.
    """

    moved_us: Any
    walks: Any
    begins: Any
    later: Any
    beside: Any
    warps: Any
    blocks: Any
    ahead: Any
    staged: Any
    each: Any
    exponents: Any
    reductions: Any
    accesses: Any
    program_accesses: Any


def row_cost(traffic: Traffic, launch: RowLaunch, device: Device) -> RowTerms:
    """Returns what a launch should take, by the numbers of the device's profile.

    Raises:
        PlanError: the profile has none.
    """
    if not (numbers := device.profile.launch.rows):
        raise PlanError(f"{device.profile.name} has no launch.rows, the numbers of a row kernel's cost; take those of another")
    return row_terms(row_facts(traffic, launch, device), numbers)


def row_facts(traffic: Traffic, launch: RowLaunch, device: Device) -> RowFacts:
    """Returns the facts of a launch."""
    hardware, rows, programs = device.hardware, launch.n_rows, launch.num_programs
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    warps, lanes = launch.num_warps or 1, hardware.warp_size or 1
    threads, blocks = warps * lanes, -(-launch.n_cols // launch.block)
    follow, turns = math.ceil(programs / (multiprocessors * launch.resident)), math.ceil(rows / programs)
    spilled = 2 * launch.spilled_bytes * threads * rows
    each = blocks * launch.block / threads
    at_once = min(VECTOR_BYTES / traffic.element, launch.multiple)
    reductions = traffic.reductions + blocks * traffic.block_reductions
    access, aligned = max(at_once, traffic.element / PACKED_BYTES), at_once > 1  # elements of one
    return RowFacts(
        moved_us=(rows * traffic.row + programs * traffic.program + spilled) / per_us,
        walks=1 - 1 / turns,
        begins=(follow > 1) / turns,
        later=follow * turns - 1,
        beside=min(launch.resident, max(1.0, programs / multiprocessors)),
        warps=warps,
        blocks=blocks,
        ahead=max(0, min(launch.num_stages - 2, turns - 1)) if aligned and not launch.in_blocks else 0,
        staged=float(launch.num_stages > 1 and (aligned or traffic.element >= ASYNC_BYTES)),
        each=each * traffic.row_operands,
        exponents=each * traffic.exponents / launch.n_cols,
        reductions=reductions * math.log2(threads) / math.log2(max(2, lanes)),
        accesses=warps * each * traffic.row_operands / access,
        program_accesses=warps * each / blocks * traffic.program_operands / access,
    )


def row_terms(given: RowFacts, numbers: RowNumbers) -> RowTerms:
    """Returns the terms of a launch; arithmetic alone, so that arrays of facts give arrays of terms."""
    waits = numbers.latency_us * given.blocks / (1 + numbers.ahead * given.ahead)
    waits = waits + NS * (numbers.thread_ns * given.each + numbers.exponent_ns * given.exponents)
    waits = waits + numbers.reduction_us * given.reductions
    busy = given.warps * given.blocks * (numbers.warp_ns + numbers.stage_ns * given.staged)
    busy = NS * (busy + numbers.access_ns * given.accesses)
    program = NS * numbers.access_ns * given.program_accesses * given.beside

    moving = given.moved_us / numbers.bandwidth + 1e-9  # some kernels move nothing that is known of
    walking = moving * numbers.walking * given.walks
    turn = waits + busy * given.beside + given.begins * (NS * numbers.begin_ns * given.warps + program)
    turns = given.later * turn / (moving + walking)
    hidden_not = (moving + walking) * ((1 + turns**numbers.overlap) ** (1 / numbers.overlap) - 1)
    return RowTerms(numbers.start_us, waits + busy + program, moving, walking, hidden_not)
