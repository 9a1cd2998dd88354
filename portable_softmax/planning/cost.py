"""Expected microseconds of a launch: a sum of terms, from its facts and a few numbers that were measured on a device.

Programs of a multiprocessor hide each other's waiting, but in their first tiles. docs/cost.md has a table of the terms.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from portable_softmax.devices.schema import CostNumbers

NS = 1e-3  # microseconds of a nanosecond
IN_STEP = 12  # tiles for which programs still wait at the same time, at most
CHAINED = 3  # times that a load takes which others wait for, in parts of one that others hide: 0.57 us on an H100
SHARE = 1.4  # of the memory's bandwidth that a multiprocessor moves at most, in parts of an equal share
FLOOR = 4  # power of a sum of times that hide each other
SECOND = 0.6  # start of a launch that follows another one, in parts of the first one's: 2.7 us on an H100


class Facts(NamedTuple):
    """Facts of a launch that its cost depends on; numbers, or arrays of them for many launches at once."""

    memory_us: Any  # moving all bytes at the data sheet's bandwidth, with those read again that have left the L2 cache
    l2_us: Any  # the same for bytes that the L2 cache moves besides: sectors of short pieces, spilled registers
    programs: Any  # of the grid
    resident: Any  # programs that a multiprocessor holds at once
    waves: Any  # of programs, until all are done
    tiles: Any  # that a program takes, or rows
    loads: Any  # of a tile, that wait for one another
    elements: Any  # per thread and tile, of one operand; once more per exponential
    issued: Any  # accesses and shuffles of a program's warps for a tile
    unused: Any = 0  # bytes of cache lines per byte that is moved
    exchanges: Any = 0  # 1 where programs wait for row statistics of others, and half for each doubling of their warps
    tail: Any = 0  # part of the time of moving in which programs wait for those that share their rows and begin later
    launches: Any = 1  # one, or two of which the second reads what the first has reduced
    largest: Any = 1  # part of all bytes that the largest program moves, times the multiprocessors; at least 1
    clocks: Any = 0  # in which a program issues its instructions of a tile, if it is alone; 0 if unknown
    all_clocks: Any = 0  # of all programs of a multiprocessor, and of a warp, or less with stages: few warps hide little
    chained: Any = 0  # loads of a tile of which each begins after another one has come; 0 if unknown


class Terms(NamedTuple):
    """Microseconds of a launch by their cause; their sum is the expected time. Arrays where facts are."""

    start: Any  # the launch, if it did nothing
    memory: Any  # moving all bytes
    lines: Any  # more of it, where pieces of cache lines are moved, or registers are spilled
    waiting: Any  # more of it, for programs that begin later, and with fixed shares of the rows
    latency: Any  # waiting for memory, where nothing hides it
    elements: Any  # arithmetic of a thread, where nothing hides it
    exchange: Any  # waiting for row statistics of other programs, where nothing hides it
    issue: Any  # accesses and shuffles of a multiprocessor's programs, where nothing hides them
    turnover: Any  # starting programs that follow others
    turns: Any  # later tiles, as far as moving does not hide them
    arithmetic: Any  # instructions of all tiles, as far as neither moving nor waiting hides them
    chains: Any  # loads of a program that wait for one another, as far as nothing else hides them
    programs: Any  # starting all programs, as far as all else does not hide it

    @property
    def total(self) -> Any:
        """Returns the expected microseconds."""
        return sum(self)

    def __str__(self) -> str:
        """Returns the total, and the terms of a tenth of a microsecond or more, the largest first."""
        terms = sorted(zip(self, self._fields, strict=True), reverse=True)
        return f"{self.total:.1f} us: {', '.join(f'{name} {value:.1f}' for value, name in terms if round(value, 1))}"


def cost(facts: Facts, numbers: CostNumbers, maximum: Callable[[Any, Any], Any] = max) -> Terms:
    """Returns the terms of a launch; of many, where facts are arrays and `maximum` is numpy's."""
    latency = numbers.latency_us * facts.loads
    elements = NS * numbers.element_ns * facts.elements
    exchange = numbers.exchange_us * facts.exchanges
    issue = NS * numbers.issue_ns * facts.issued * facts.resident
    tile = latency + elements + exchange + issue

    memory = facts.memory_us * maximum(1 / numbers.bandwidth, facts.largest / SHARE)
    lines = memory * numbers.line * facts.unused + facts.l2_us / numbers.l2_bandwidth
    walking = numbers.walking * (1 - 1 / facts.tiles)
    waiting = (memory + lines) * (walking + facts.tail)
    moving = memory + lines + waiting

    later = facts.waves * facts.tiles - 1
    in_step = 1 + IN_STEP * later / (later + IN_STEP) / facts.resident
    turnover = numbers.turnover_us * (facts.waves - 1) / facts.resident
    streaming = (moving**2 + (later * tile) ** 2) ** (1 / 2)
    # no multiprocessor issues more than an instruction of a partition per clock, and no program loads ahead of a chain
    clock, every = NS * numbers.launch_ns, later + 1
    issuing = every * clock * facts.all_clocks * (1 + walking)
    chain = every * (clock * facts.clocks + CHAINED * numbers.latency_us * facts.chained)
    computing = maximum(streaming, _hidden(streaming, issuing))
    all_tiles = maximum(computing, _hidden(streaming, maximum(issuing, chain)))

    rest = tile * in_step + turnover + all_tiles
    return Terms(
        start=numbers.start_us * (1 + SECOND * (facts.launches - 1)),
        memory=memory,
        lines=lines,
        waiting=waiting,
        latency=latency * in_step,
        elements=elements * in_step,
        exchange=exchange * in_step,
        issue=issue * in_step,
        turnover=turnover,
        turns=streaming - moving,
        arithmetic=computing - streaming,
        chains=all_tiles - computing,
        programs=maximum(NS * numbers.launch_ns * facts.programs * facts.launches - rest, 0),
    )


def _hidden(a: Any, b: Any) -> Any:
    """Returns the time of two causes that hide each other: little more than the larger one."""
    return (a**FLOOR + b**FLOOR) ** (1 / FLOOR)
