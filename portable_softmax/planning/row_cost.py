"""Expected microseconds of a kernel of anybody's that goes over rows: a sum of terms, from facts and a few measured numbers.

A multiprocessor holds several programs, and each takes a row in a turn: it waits for the row, computes, and stores. Others use
the memory meanwhile. So a launch takes its start, its first turn, and the larger of moving all bytes and going through all
other turns, or somewhat more where the two are alike.
"""

import functools
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from portable_softmax.devices.device import Device

NUMBERS = Path(__file__).with_name("row_numbers.json")
NS, GB_PER_S = 1e-3, 1e3  # microseconds; bytes of a microsecond
VECTOR_BYTES, ASYNC_BYTES, PACKED_BYTES = 16, 4, 2  # of the widest access; the least that is copied ahead; packed in pairs


class RowNumbers(NamedTuple):
    """Numbers of a device that no data sheet tells; scripts/fit_rows.py fits them to measured launches.

    Args:
        start_us: a launch that moves nothing.
        bandwidth: that programs of one row get, in parts of the data sheet's.
        walking: time of moving that is added where programs walk over rows, whose number the fastest cannot share.
        overlap: exponent with which moving and turns add: 1 is one after the other, more is at the same time.
        latency_us: of the memory.
        ahead: how much each block that is loaded ahead hides of it.
        thread_ns: of a thread, for each element of an operand.
        exponent_ns: of a thread, for each element that e is raised to.
        reduction_us: of a warp; log2(threads) / 5 times as much of a program.
        program_us: until a program that follows another one begins.
        warp_ns: of a multiprocessor, for each warp and block.
        stage_ns: the same, where blocks are loaded through shared memory.
        access_ns: of a multiprocessor, for each access of a warp.
    """

    start_us: Any
    bandwidth: Any
    walking: Any
    overlap: Any
    latency_us: Any
    ahead: Any
    thread_ns: Any
    exponent_ns: Any
    reduction_us: Any
    program_us: Any
    warp_ns: Any
    stage_ns: Any
    access_ns: Any


class Traffic(NamedTuple):
    """Bytes, accesses and operations of one row, and of one program beside its rows.

    Args:
        row, program: bytes that memory moves; not those that a cache has, of weights or of a row that is read once more.
        element: bytes of the largest part of them.
        row_operands, program_operands: loads and stores of all elements of a row.
        reductions: of a row.
        exponents: elements of a row, for each exp that is taken of them.
    """

    row: float = 0
    program: float = 0
    element: float = 4
    row_operands: float = 0
    program_operands: float = 0
    reductions: float = 0
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
        num_stages: of the loop that is pipelined.
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
        ahead: blocks that are loaded ahead.
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
    """Returns what a launch should take; with numbers of another device where nobody has measured this one's."""
    return row_terms(row_facts(traffic, launch, device), numbers_of(device)[1])


def numbers_of(device: Device) -> tuple[str, RowNumbers]:
    """Returns the measured numbers of a device, or else those of one that was measured, and the name of its profile."""
    known = _measured()
    name = device.profile.name if device.profile.name in known else next(iter(known))
    return name, known[name]


@functools.cache
def _measured() -> dict[str, RowNumbers]:
    found = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return {name: RowNumbers(**{key: value for key, (value, _) in each["numbers"].items()}) for name, each in found.items()}


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
    access, aligned = max(at_once, traffic.element / PACKED_BYTES), at_once > 1  # elements of one
    loaded = blocks if blocks > 1 else turns  # by the loop that is pipelined
    return RowFacts(
        moved_us=(rows * traffic.row + programs * traffic.program + spilled) / per_us,
        walks=1 - 1 / turns,
        begins=(follow > 1) / turns,
        later=follow * turns - 1,
        beside=min(launch.resident, max(1.0, programs / multiprocessors)),
        warps=warps,
        blocks=blocks,
        ahead=max(0, min(launch.num_stages - 2, loaded - 1)) if aligned else 0,
        staged=float(launch.num_stages > 1 and (aligned or traffic.element >= ASYNC_BYTES)),
        each=each * traffic.row_operands,
        exponents=each * traffic.exponents / launch.n_cols,
        reductions=traffic.reductions * math.log2(threads) / math.log2(max(2, lanes)),
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

    moving = given.moved_us / numbers.bandwidth
    walking = moving * numbers.walking * given.walks
    turn = waits + busy * given.beside + given.begins * (numbers.program_us + program)
    turns = given.later * turn / (moving + walking)
    hidden_not = (moving + walking) * ((1 + turns**numbers.overlap) ** (1 / numbers.overlap) - 1)
    return RowTerms(numbers.start_us, waits + busy + program, moving, walking, hidden_not)
