"""Expected microseconds of a launch: a sum of terms, from what its programs do and a few measured numbers of a device.

Programs of a multiprocessor hide each other's waiting, but in their first turns. docs/cost.md has a table of the terms.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

from portable_softmax.devices.backends.machine_code import Loop
from portable_softmax.devices.device import Device
from portable_softmax.devices.schema import CostNumbers
from portable_softmax.planning.problem import VECTOR_BYTES

NS = 1e-3  # microseconds of a nanosecond
WORD_BYTES = 4
GB_PER_S = 1 / NS  # bytes of a microsecond
IN_STEP = 12  # turns for which programs still wait at the same time, at most
CHAINED = 3  # times that a load takes which others wait for, in parts of one that others hide: 0.57 us on an H100
SHARE = 1.4  # of the memory's bandwidth that a multiprocessor moves at most, in parts of an equal share
SECOND = 0.6  # start of a launch that follows another one, in parts of the first one's: 2.7 us on an H100
LINE_PART = 1 / 3  # time of a cache line that a warp requests, in parts of one of its accesses
LOOKUP = 3  # times an access that reading a number of another program takes; twice as much while later waves load


class Limits:
    """Numbers of a device that launches depend on, 1 in place of an unknown one; of a multiprocessor, or in bytes."""

    def __init__(self, device: Device) -> None:
        hardware, launch = device.hardware, device.profile.launch
        line, sector = (getattr(fact, "value", 1) for fact in (launch.line_elements, launch.min_line_elements))
        self.warp = hardware.warp_size or 1  # threads
        self.max_threads = hardware.max_threads_per_program or self.warp  # of a program
        self.resident_threads = self.warp * (hardware.max_warps_per_multiprocessor or 1)
        self.multiprocessors = hardware.multiprocessor_count or 1
        self.partitions = hardware.partitions_per_multiprocessor or 1  # each issues instructions of one warp at a time
        self.line, self.sector = WORD_BYTES * line, WORD_BYTES * sector  # of the cache, and the least that moves
        self.l2_bytes = hardware.l2_cache_bytes or 1
        self.per_us = GB_PER_S * (hardware.memory_bandwidth_gb_per_s or self.multiprocessors)  # that memory moves at most


limits_of = functools.lru_cache(Limits)


class Work(NamedTuple):
    """What programs do in a turn, which is a row, or a tile of rows, and beside their turns; and how a launch divides it."""

    row: float = 0  # bytes that memory moves; not those that a cache has, of weights or of a row that is read once more
    program: float = 0  # likewise, beside turns
    again: float = 0  # bytes that are read once more
    element: float = WORD_BYTES  # bytes of the largest part of them
    adjacent: float = 1  # elements side by side of a thread, as the widest access to an operand of a row has
    row_operands: float = 0  # loads and stores of all elements
    program_operands: float = 0  # likewise, beside turns
    reductions: float = 0  # by all threads of a program
    block_reductions: float = 0  # likewise, per block that the kernel loops over
    exponents: float = 0  # per element
    loads: float = 0  # of all elements
    loaded: float = 0  # bytes of these, per element
    lines: float = 0  # cache lines that a warp requests per element; 0 if those of an access are adjacent
    unused: float = 0  # bytes of lines per byte that is moved
    partial: float = 0  # bytes of sectors that are moved once more, per byte that is moved
    words: float = 0  # numbers of other programs that are read
    elements: float = 0  # with masked ones
    vector: float = 1  # elements of a thread's access
    blocks: int = 1  # that are loaded one after another
    steps: int = 1  # of a turn, between which no warp waits for another one: blocks of a loop without a reduction
    in_turn: float = 1  # times that arithmetic takes, as warps of a partition issue in turn; 1 if `clocks` are known
    clocks: float = 0  # of a warp, in which it issues its instructions of a turn; 0 if unknown
    chained: float = 0  # loads of which each begins after another one has come; 0 if unknown
    turns: int = 1  # of all programs
    programs: int = 1  # of the grid
    resident: int = 1  # programs that a multiprocessor holds at once
    warps: int = 1  # of a program
    ahead: int = 0  # turns that are loaded ahead
    splits: int = 1  # programs that exchange numbers
    launches: int = 1  # one, or two of which the second reads once more what the first has reduced
    spilled_bytes: int = 0  # of a thread


class Terms(NamedTuple):
    """Microseconds of a launch by their cause; their sum is the expected time."""

    start: float  # the launch, if it did nothing
    memory: float  # moving all bytes
    lines: float  # more of it, where pieces of cache lines are moved, or registers are spilled
    waiting: float  # more of it, for programs that begin later, and with fixed shares of the rows
    latency: float  # waiting for memory, where nothing hides it
    elements: float  # arithmetic of a thread, where nothing hides it
    exchange: float  # waiting for row statistics of other programs, where nothing hides it
    issue: float  # accesses and shuffles of a multiprocessor's programs, where nothing hides them
    turnover: float  # starting programs that follow others
    turns: float  # later turns, as far as moving does not hide them
    arithmetic: float  # instructions of all turns, as far as neither moving nor waiting hides them
    chains: float  # loads of a program that wait for one another, as far as nothing else hides them
    programs: float  # starting all programs, as far as all else does not hide it

    @property
    def total(self) -> float:
        """Returns the expected microseconds."""
        return sum(self)

    def __str__(self) -> str:
        """Returns the total, and the terms of a tenth of a microsecond or more, the largest first."""
        terms = sorted(zip(self, self._fields, strict=True), reverse=True)
        return f"{self.total:.1f} us: {', '.join(f'{name} {value:.1f}' for value, name in terms if round(value, 1))}"


def cost(work: Work, limits: Limits, numbers: CostNumbers) -> Terms:
    """Returns the expected microseconds of a launch, by cause."""
    threads, per_program = work.warps * limits.warp, -(-work.turns // work.programs)
    slots = limits.multiprocessors * work.resident
    waves, exchange, tail = float(-(-work.programs // slots)), 0.0, 0.0
    if work.words:
        exchange = numbers.exchange_us * (1 + math.log2(work.warps) / 2)
    if work.words and work.programs > slots:
        waves = (waves + work.programs / slots) / 2  # they do not end at the same time
        tail = work.splits / slots  # of the time of moving, in which programs wait for those that begin later
    resident = min(work.resident, max(1.0, work.programs / limits.multiprocessors))
    all_turns, ahead = waves * per_program, min(work.ahead, per_program - 1)
    issue, in_partition = NS * numbers.issue_ns * resident, work.warps / limits.partitions
    later, deep = all_turns * work.steps - 1, resident * (1 + ahead)

    operands, access = work.elements * work.row_operands, work.vector * limits.warp
    accesses = work.adjacent * work.loaded / (work.loads or 1) / VECTOR_BYTES  # of what a thread has side by side
    shuffles = (work.reductions + work.blocks * work.block_reductions) * math.log2(threads) * work.warps
    pieces = max(1 / access, work.element / limits.line)  # cache lines of an element
    if work.vector == 1:  # what a thread has side by side is read an element at a time
        pieces = 1 / access + work.adjacent * work.element / limits.line
    if work.ahead:  # stages copy through shared memory, where the banks of several accesses conflict
        shuffles += work.elements * work.loaded / limits.line * max(0, accesses - 1)
    shuffles += LOOKUP * (2 - 1 / waves) * work.words
    issued = operands / access + shuffles + LINE_PART * operands * (work.lines or pieces)
    latency = numbers.latency_us * work.blocks
    elements = NS * numbers.element_ns * work.elements / threads * (1 + work.exponents) * work.in_turn
    turn = latency + elements + exchange + issue * issued

    again, between = work.turns * work.again, resident * limits.multiprocessors
    if work.launches > 1:
        between = work.turns
    full = (between * work.row / limits.l2_bytes) ** 3
    missed = again * full / (1 + full)  # of the L2 cache
    moved = work.turns * work.row + work.programs * work.program + missed
    cached = work.partial * (work.turns * work.row + again) + 2 * work.spilled_bytes * threads * work.turns
    cached += (work.launches - 1) * (again - missed)
    cached += work.programs * work.program_operands * work.elements * work.element / resident  # others hide the rest
    largest = limits.multiprocessors * per_program / work.turns  # part of all turns, times the multiprocessors
    memory = moved / limits.per_us * max(1 / numbers.bandwidth, largest / SHARE)
    more = memory * numbers.line * work.unused + cached / limits.per_us / numbers.l2_bandwidth
    walking = numbers.walking * (1 - 1 / per_program)
    waiting = (memory + more) * (walking + tail)
    moving = memory + more + waiting

    exposed = (1 + IN_STEP * later / (later + IN_STEP) / deep) / work.steps
    turnover = numbers.turnover_us * (waves - 1) / deep
    streaming = math.hypot(moving, later * turn / work.steps)
    # no multiprocessor issues more than an instruction of a partition per clock, and no program loads ahead of a chain
    clocks = NS * numbers.launch_ns * work.clocks * all_turns
    issuing = clocks * (in_partition * resident + 1 / (1 + ahead)) * (1 + walking)
    chain = clocks * max(1, in_partition / work.steps) + CHAINED * numbers.latency_us * all_turns * work.chained
    computing = _hidden(streaming, issuing)
    done = _hidden(computing, chain)

    rest = turn * exposed + turnover + done
    return Terms(
        start=numbers.start_us * (1 + SECOND * (work.launches - 1)),
        memory=memory,
        lines=more,
        waiting=waiting,
        latency=latency * exposed,
        elements=elements * exposed,
        exchange=exchange * exposed,
        issue=issue * issued * exposed,
        turnover=turnover,
        turns=streaming - moving,
        arithmetic=computing - streaming,
        chains=done - computing,
        programs=max(NS * numbers.launch_ns * work.programs * work.launches - rest, 0),
    )


def _hidden(a: float, b: float) -> float:
    """Returns the time of two causes that hide each other, little more than the larger one: (a**4 + b**4) ** (1 / 4)."""
    return math.sqrt(math.hypot(a * a, b * b))


def row_work(loops: Sequence[Loop], over_rows: bool, loads: float) -> tuple[float, float]:
    """Returns clocks of a warp, and chained loads of a program, per row; 0 if the machine code is unknown.

    The outermost of its loops is over rows if it has a loop `over_rows`. Compilers unroll loops over blocks, for which a thread
    has `loads` per row, and put the blocks that are left behind them.
    """
    depth = 1 if over_rows else 0
    own, inner = (
        [sum(values) for values in zip((0.0,) * 3, *(loop[1:] for loop in some), strict=True)]
        for some in ([loop for loop in loops if loop.depth == depth], [loop for loop in loops if loop.depth > depth])
    )
    if not loads or not inner[1]:
        return own[0] + inner[0], own[2] + inner[2]
    left = own[1] / inner[1]
    clocks, chained = (loads / inner[1] * inner[at] + max(0, own[at] - left * inner[at]) for at in (0, 2))
    return clocks, chained
