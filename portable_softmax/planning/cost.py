"""Expected microseconds of a launch: a sum of terms, from facts and a few numbers that were measured on a device.

A multiprocessor takes its programs in waves: so many at once. A program waits, for the sums of its threads and for other
programs, and moves its bytes. Others use the memory meanwhile, unless all are in step, as they are in the first waves. So a
launch takes: its start, the waiting that nothing hides, and the largest of moving all bytes, going through all waves, and
starting all programs, or somewhat more where two of them are alike.
"""

import functools
import json
from dataclasses import dataclass, fields
from pathlib import Path

from portable_softmax.devices.device import Device
from portable_softmax.planning.facts import Facts, facts
from portable_softmax.planning.plan import Terms, Tiling
from portable_softmax.planning.problem import Problem

NUMBERS = Path(__file__).with_name("cost_numbers.json")
NS, PS = 1e-3, 1e-6  # microseconds of a nanosecond, and of a picosecond


@dataclass(frozen=True, kw_only=True)
class CostNumbers:
    """Numbers of a device that no data sheet tells; scripts/fit_cost.py fits them to measured launches.

    Args:
        start_us: a launch that moves nothing.
        bandwidth: that long launches get, in parts of the data sheet's.
        overlap: exponent with which moving, waves and starting add: 1 is one after the other, more is at the same time.
        in_step: waves in which programs still wait at the same time, at most.
        exchange_us: until programs that share rows know each other's statistics.
        lookup_ns: of a multiprocessor, for each of the statistics that a program reads.
        program_ns: of a multiprocessor, for each program that it starts.
        thread_ns: of a thread, for each element of an operand.
        request_ps: of a multiprocessor, for each cache line that a warp asks for.
        exponent_ps: of a multiprocessor, for each element that a softmax raises e to.
        sum_ps: of a multiprocessor, for each number that a thread gives another one, to add up rows.
        step_us: until the next block of a row that is read twice is there.
        line: time of a cache line's piece that is moved alone, in parts of what the line leaves out.
        again: bandwidth of bytes that are read again, or spilled, in parts of the data sheet's.
    """

    start_us: float
    bandwidth: float
    overlap: float
    in_step: float
    exchange_us: float
    lookup_ns: float
    program_ns: float
    thread_ns: float
    request_ps: float
    exponent_ps: float
    sum_ps: float
    step_us: float
    line: float
    again: float


def cost(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: int = 0
) -> Terms | None:
    """Returns what a launch should take; None for a device whose numbers nobody has measured.

    Args:
        problem: as `reading.as_read` returns it.
        tiling: how its rows are cut.
        num_programs: size of the grid.
        resident: programs that a multiprocessor holds at once.
        device: where it runs.
        spilled_bytes: of a thread.

    Raises:
        PlanError: no program is resident.
    """
    numbers = measured().get(device.profile.name)
    if numbers is None:
        return None
    return terms(facts(problem, tiling, num_programs, resident, device, spilled_bytes), numbers)


@functools.cache
def measured() -> dict[str, CostNumbers]:
    """Reads the numbers of all devices that were measured, by the names of their profiles."""
    found = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return {name: CostNumbers(**{key: value for key, (value, _) in each["numbers"].items()}) for name, each in found.items()}


def terms(given: Facts, numbers: CostNumbers) -> Terms:
    """Returns the terms of a launch; arithmetic alone, so that arrays of facts give arrays of terms."""
    exchange, steps = numbers.exchange_us * given.shared, numbers.step_us * given.steps
    thread = NS * numbers.thread_ns * given.each
    lookups = NS * numbers.lookup_ns * given.lookups
    busy = PS * (numbers.request_ps * given.requests + numbers.exponent_ps * given.exponents + numbers.sum_ps * given.sums)  # of the multiprocessor
    later = given.waves - 1
    in_step = 1 + numbers.in_step * later / (later + numbers.in_step) / given.beside

    once = given.bytes_us / numbers.bandwidth
    pieces, again = once * numbers.line * given.pieces, given.again_us / numbers.again
    moving = once + pieces + again
    waits = later * (exchange + thread + steps + (lookups + busy) * given.beside)
    waves = waits / moving
    starting = NS * numbers.program_ns * given.programs / moving
    waves, starting = waves**numbers.overlap, starting**numbers.overlap
    hidden_not = moving * ((1 + waves + starting) ** (1 / numbers.overlap) - 1)
    return Terms(
        start=numbers.start_us,
        moving=once,
        pieces=pieces,
        again=again,
        exchange=(exchange + lookups) * in_step,
        threads=(thread + busy) * in_step,
        steps=steps * in_step,
        waves=hidden_not * waves / (waves + starting),
        starting=hidden_not * starting / (waves + starting),
    )
