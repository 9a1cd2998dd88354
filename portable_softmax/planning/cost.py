"""Expected microseconds of a launch: a sum of terms, each from facts and a few numbers that were measured on a device.

A multiprocessor takes its programs in waves: so many at once. A program waits, for the sums of its threads and for other
programs, and moves its bytes. Others use the memory meanwhile, unless all are in step, as they are in the first waves. So a
launch takes: its start, the waiting that nothing hides, and the largest of moving all bytes, going through all waves, and
starting all programs, or somewhat more where two of them are alike.
"""

import functools
import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.rows import WORD_BYTES

NUMBERS = Path(__file__).with_name("cost_numbers.json")
NS, PS, GB_PER_S = 1e-3, 1e-6, 1e3  # microseconds of a nanosecond and of a picosecond; bytes of a microsecond


@dataclass(frozen=True, kw_only=True)
class CostNumbers:
    """Numbers of a device that no data sheet tells; scripts/fit_cost.py fits them to measured launches.

    Args:
        start_us: a launch that moves nothing.
        bandwidth: that long launches get, in parts of the data sheet's.
        link: bandwidth of one multiprocessor while others rest, in parts of its share of the data sheet's.
        overlap: exponent with which moving, waves and starting add: 1 is one after the other, more is at the same time.
        in_step: waves in which programs still wait at the same time, at most.
        exchange_us: until programs that share rows know each other's statistics.
        lookup_ns: of a multiprocessor, for each of the statistics that a program reads.
        program_ns: of a multiprocessor, for each program that it starts.
        warp_ns: the same for each warp.
        thread_ns: of a thread, for each element of an operand.
        sum_ps: of a multiprocessor, for each number that a thread gives another one, to add up rows.
        step_us: until the next block of a row that is read twice is there.
        line: time of a cache line's piece that is moved alone, in parts of what the line leaves out.
        again: bandwidth of bytes that are read again, or spilled, in parts of the data sheet's.
    """

    start_us: float
    bandwidth: float
    link: float
    overlap: float
    in_step: float
    exchange_us: float
    lookup_ns: float
    program_ns: float
    warp_ns: float
    thread_ns: float
    sum_ps: float
    step_us: float
    line: float
    again: float


class Facts(NamedTuple):
    """Facts of a launch, of which its cost depends; numbers, or arrays of them for many launches at once.

    Args:
        programs: that a multiprocessor starts.
        beside: programs that it has at once.
        waves: whole rounds, until all tiles are done.
        bytes_us: moving all bytes once, at the data sheet's bandwidth.
        again_us: the same for bytes that are read again or spilled.
        wave_us: the same for the bytes of all waves, as if each were full.
        shared: 1 where programs exchange statistics, else 0.
        lookups: statistics that a program reads.
        warps: of a program.
        each: elements of an operand that a thread has, with those that are masked.
        sums: numbers that a program's threads give each other.
        steps: blocks that a program waits for, beyond the first.
        pieces: bytes that cache lines leave out, for each that is moved.
    """

    programs: float
    beside: float
    waves: float
    bytes_us: float
    again_us: float
    wave_us: float
    shared: float
    lookups: float
    warps: float
    each: float
    sums: float
    steps: float
    pieces: float


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Microseconds of a launch by what they are for; their sum is the expected time. Arrays where facts are.

    Args:
        start: of the launch.
        moving: all bytes once, at the bandwidth that long launches get.
        pieces: more of it, as pieces of cache lines are moved alone.
        again: bytes that are read again or spilled.
        exchange: waiting for other programs' statistics, where nothing hides it.
        threads: waiting for a program's own threads, the same.
        steps: waiting for the next block, the same.
        waves: waiting in later waves that moving does not hide.
        starting: programs, as far as moving does not hide it.
    """

    start: float
    moving: float
    pieces: float
    again: float
    exchange: float
    threads: float
    steps: float
    waves: float
    starting: float

    @property
    def total(self) -> float:
        """Returns the expected microseconds."""
        return sum(getattr(self, each.name) for each in fields(self))

    def __str__(self) -> str:
        """Gives the total, and each term that is a tenth of a microsecond or more, the largest first."""
        told = sorted(((getattr(self, each.name), each.name) for each in fields(self)), reverse=True)
        terms = ", ".join(f"{name} {value:.1f}" for value, name in told if round(value, 1))
        return f"{self.total:.1f} us: {terms}"


def cost(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: int = 0
) -> Terms | None:
    """Returns what a launch should take; None for a device whose numbers, or bandwidth, nobody has measured.

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
    if numbers is None or not device.hardware.memory_bandwidth_gb_per_s:
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
    busy = NS * numbers.warp_ns * given.warps + PS * numbers.sum_ps * given.sums  # of the multiprocessor
    later = given.waves - 1
    in_step = 1 + numbers.in_step * later / (later + numbers.in_step) / given.beside

    once = given.bytes_us / numbers.bandwidth
    pieces, again = once * numbers.line * given.pieces, given.again_us / numbers.again
    moving = once + pieces + again
    waits = later * (exchange + thread + steps + (lookups + busy) * given.beside)
    waves = (waits + given.wave_us / numbers.link) / moving
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


def facts(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: float = 0
) -> Facts:
    """Returns the facts of a launch; see `cost`."""
    if resident < 1:
        raise PlanError(f"the cost of {tiling} was asked for, of which no program is resident")
    hardware, element = device.hardware, DTYPE_BYTES[problem.y_dtype]
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    warps, reads = tiling.num_warps or 1, 2 if problem.backward else 1
    threads = warps * (hardware.warp_size or 1)
    splits = problem.tiles(tiling.tile_rows) * tiling.splits  # of all rows: what programs do one after the other
    operand = problem.n_rows * problem.n_cols * element
    moved = (reads + 1) * operand
    beside = min(resident, max(1.0, splits / multiprocessors))
    waves = math.ceil(splits / (multiprocessors * resident))
    covered = tiling.covers(problem.width) // tiling.splits
    pieces, under = _pieces(problem, tiling, device, threads)
    again = under * operand + (0 if tiling.held else reads * operand) + 2 * spilled_bytes * threads * splits
    return Facts(
        programs=num_programs / multiprocessors,
        beside=beside,
        waves=waves,
        bytes_us=moved / per_us,
        again_us=again / per_us,
        wave_us=waves * beside * multiprocessors / splits * moved / per_us,
        shared=float(tiling.is_shared),
        lookups=tiling.tile_rows * tiling.splits if tiling.is_shared else 0,
        warps=warps,
        each=tiling.tile_rows * covered / threads,
        sums=_sums(problem, tiling, threads) * (1 if problem.backward else 2),  # a softmax has a maximum and a sum
        steps=0 if tiling.held else 2 * -(-covered // tiling.width) - 1,
        pieces=pieces,
    )


def _pieces(problem: Problem, tiling: Tiling, device: Device, threads: int) -> tuple[float, float]:
    """Returns (bytes that lines leave out for each that is moved, operands' worth of sectors that are moved once more)."""
    element, operands = DTYPE_BYTES[problem.y_dtype], 3 if problem.backward else 2
    line, sector = (
        WORD_BYTES * (each.value if each else 1)
        for each in (device.profile.launch.line_elements, device.profile.launch.min_line_elements)
    )
    along, beside = tiling.width * element, min(tiling.tile_rows, problem.inner) * element
    whole = tiling.width >= problem.n_cols  # such rows follow each other without a gap
    if problem.layout == "rows":
        lengths = [along if tiling.tile_rows == 1 or not whole else line] * operands
    elif problem.transposed:
        lengths = [beside, *[along] * (operands - 1)]
    else:
        lengths = [line if problem.scattered and whole else beside] * operands
    vector = _vector(problem, tiling, threads) * element / VECTOR_BYTES  # single elements of a line are read one after another
    narrow = vector if problem.layout == "rows" else 1
    left_out = [line / min(line, max(each, sector)) - 1 for each in lengths]
    under = sum(sector / min(sector, each) - 1 for each in lengths) * narrow
    if problem.layout == "across" and not (problem.scattered and whole) and problem.inner * element % sector:
        under += operands * sector / beside  # a piece ends within a sector that another one begins in
    return sum(left_out) / operands * min(1, vector), under


def _vector(problem: Problem, tiling: Tiling, threads: int) -> int:
    """Returns how many neighbours a thread has."""
    return (
        problem.vector if problem.layout == "rows" else min(problem.vector, max(1, tiling.tile_rows * tiling.width // threads))
    )


def _sums(problem: Problem, tiling: Tiling, threads: int) -> float:
    """Returns the numbers that threads give each other to add up the rows of a tile: half of all, then half of these."""
    vector = _vector(problem, tiling, threads)
    if problem.layout == "rows":
        lanes = min(threads, max(1, tiling.width // vector))
        return max(threads, tiling.tile_rows * lanes) * math.log2(lanes)
    beside = min(threads, max(1, tiling.tile_rows // vector))
    lanes = max(1, min(threads // beside, tiling.width))
    return threads * max(vector, tiling.tile_rows // beside) * math.log2(lanes)
