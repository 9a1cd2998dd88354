"""Expected microseconds of a launch: a sum of terms, from its facts and a few numbers that were measured on a device.

A multiprocessor holds several programs. In a turn, a program loads, computes, and stores a tile, or a row. Other
programs use the memory meanwhile, but in the first turns all are in step. So a launch takes its start, its first turn, and the
larger of moving all bytes and of going through all other turns, or somewhat more where the two are alike; and never less than
it takes to begin all programs, to issue all instructions, or to wait for the chained loads of a program. docs/cost.md has a
table of the terms.
"""

from typing import Any, NamedTuple

from portable_softmax.devices.policy import CostNumbers

NS = 1e-3  # microseconds of a nanosecond
IN_STEP = 12  # turns in which programs still wait at the same time, at most
CHAINED = 3  # times that a load takes which others wait for, in parts of one that others hide: 0.57 us on an H100
FLOOR = 4  # power of a sum of times that hide each other
SECOND = 0.6  # start of a launch that follows another one, in parts of the first one's: 2.7 us on an H100


class Facts(NamedTuple):
    """Facts of a launch that its cost depends on; numbers, or arrays of them for many launches at once.

    Args:
        memory_us: moving all bytes at the data sheet's bandwidth, with those that are read again and have left the L2 cache.
        l2_us: the same for bytes that the L2 cache moves besides: sectors of short pieces, spilled registers.
        programs: of the grid.
        beside: programs that a multiprocessor holds at once.
        waves: of programs, until all are done.
        turns: of a program: tiles, or rows, that it takes.
        loads: of a turn, that wait for one another.
        elements: per thread and turn, of one operand; once more per exponential.
        issued: accesses and shuffles of a program's warps in a turn.
        left_out: unused bytes of cache lines per byte that is moved.
        ahead: turns that are loaded ahead.
        exchanges: 1 where programs wait for row statistics of others.
        warps: of a program, that wait for one another to add up rows; twice as many if they wait for other programs too.
        late: part of the time of moving in which programs wait for those that share their rows and begin later.
        own_issued: the same of a program beside its turns.
        launches: one, or two of which the second reads what the first has reduced.
        alone: part of all bytes that the largest program moves, times the multiprocessors; at least 1.
        clocks: in which a program issues its instructions of a turn, if it is alone; 0 if unknown.
        all_clocks: the same for all programs of a multiprocessor.
        chained: loads of a turn of which each begins after another one has come; 0 if unknown.
    """

    memory_us: Any
    l2_us: Any
    programs: Any
    beside: Any
    waves: Any
    turns: Any
    loads: Any
    elements: Any
    issued: Any
    left_out: Any = 0
    ahead: Any = 0
    exchanges: Any = 0
    warps: Any = 0
    late: Any = 0
    own_issued: Any = 0
    launches: Any = 1
    alone: Any = 1
    clocks: Any = 0
    all_clocks: Any = 0
    chained: Any = 0


class Terms(NamedTuple):
    """Microseconds of a launch by their cause; their sum is the expected time. Arrays where facts are.

    Args:
        start: the launch, if it did nothing.
        memory: moving all bytes.
        lines: more of it, where pieces of cache lines are moved, or registers are spilled.
        waiting: more of it, for warps that add up rows, for programs that begin later, and with fixed shares of the rows.
        latency: waiting for memory, where nothing hides it.
        elements: arithmetic of a thread, where nothing hides it.
        exchange: waiting for row statistics of other programs, where nothing hides it.
        issue: accesses and shuffles of a multiprocessor's programs, where nothing hides them.
        turnover: beginning programs that follow others.
        turns: later turns, as far as moving does not hide them.
        arithmetic: instructions of all turns, as far as neither moving nor waiting hides them.
        chains: loads of a program that wait for one another, as far as nothing else hides them.
        programs: beginning all programs, as far as all else does not hide it.
    """

    start: Any
    memory: Any
    lines: Any
    waiting: Any
    latency: Any
    elements: Any
    exchange: Any
    issue: Any
    turnover: Any
    turns: Any
    arithmetic: Any
    chains: Any
    programs: Any

    @property
    def total(self) -> Any:
        """Returns the expected microseconds."""
        return sum(self)

    def __str__(self) -> str:
        """Returns the total, and the terms of a tenth of a microsecond or more, the largest first."""
        terms = sorted(zip(self, self._fields, strict=True), reverse=True)
        return f"{self.total:.1f} us: {', '.join(f'{name} {value:.1f}' for value, name in terms if round(value, 1))}"


def cost(facts: Facts, numbers: CostNumbers) -> Terms:
    """Returns the terms of a launch. Arithmetic alone, so arrays of facts yield arrays of terms."""
    latency = numbers.latency_us * facts.loads
    elements = NS * numbers.element_ns * facts.elements
    exchange = numbers.exchange_us * facts.exchanges
    issue = NS * numbers.issue_ns * facts.issued * facts.beside
    own = NS * numbers.issue_ns * facts.own_issued * facts.beside
    turn = latency + elements + exchange + issue

    # a multiprocessor moves no more than its share of the L2 cache's bandwidth
    widely, alone = 1 / numbers.bandwidth, facts.alone / numbers.l2_bandwidth
    memory = facts.memory_us * larger(widely, alone)
    lines = memory * numbers.line * facts.left_out + facts.l2_us / numbers.l2_bandwidth
    waiting = (memory + lines) * (numbers.walking * (1 - 1 / facts.turns) + numbers.waiting * facts.warps + facts.late)
    moving = memory + lines + waiting

    later = facts.waves * facts.turns - 1
    deep = facts.beside * (1 + facts.ahead)
    in_step = 1 + IN_STEP * later / (later + IN_STEP) / deep
    turnover = numbers.turnover_us * (facts.waves - 1) / deep
    streaming = (moving**2 + (later * turn + (facts.waves - 1) * own) ** 2) ** (1 / 2)
    # no multiprocessor issues more than an instruction of a partition per clock, and no program loads ahead of a chain
    clock, every = NS * numbers.launch_ns, later + 1
    issuing = every * clock * facts.all_clocks
    chain = every * (clock * facts.clocks + CHAINED * numbers.latency_us * facts.chained)
    computing = hidden(streaming, issuing)
    all_turns = hidden(streaming, larger(issuing, chain))

    rest = turn * in_step + own + turnover + all_turns
    begun = NS * numbers.launch_ns * facts.programs * facts.launches - rest
    return Terms(
        start=numbers.start_us * (1 + SECOND * (facts.launches - 1)),
        memory=memory,
        lines=lines,
        waiting=waiting,
        latency=latency * in_step,
        elements=elements * in_step,
        exchange=exchange * in_step,
        issue=issue * in_step + own,
        turnover=turnover,
        turns=streaming - moving,
        arithmetic=computing - streaming,
        chains=all_turns - computing,
        programs=larger(begun, 0),
    )


def hidden(a: Any, b: Any) -> Any:
    """Returns the time of two causes that hide each other: little more than the larger one, and never less than `a`."""
    return larger(a, (a**FLOOR + b**FLOOR) ** (1 / FLOOR))


def larger(a: Any, b: Any) -> Any:
    """Returns the maximum of numbers, or of arrays."""
    return (a + b + abs(a - b)) / 2
