"""Facts of a launch that its cost depends on: what its programs do, in which order, and what they move."""

import math
from typing import NamedTuple

from portable_softmax.devices.backends.base import DTYPE_BYTES
from portable_softmax.devices.device import Device
from portable_softmax.errors import PlanError
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem
from portable_softmax.planning.rows import WORD_BYTES

GB_PER_S = 1e3  # bytes of a microsecond


class Facts(NamedTuple):
    """Facts of a launch that its cost depends on; numbers, or arrays of them for many launches at once.

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
        exponents: elements that a program raises e to, with those that are masked.
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
    exponents: float
    sums: float
    steps: float
    pieces: float


def facts(
    problem: Problem, tiling: Tiling, num_programs: int, resident: int, device: Device, spilled_bytes: float = 0
) -> Facts:
    """Returns the facts of a launch; see `cost`."""
    if resident < 1:
        raise PlanError(f"the cost of {tiling} was asked for, of which no program is resident")
    hardware, element = device.hardware, DTYPE_BYTES[problem.x_dtype if problem.log_probs else problem.y_dtype]
    multiprocessors, per_us = hardware.multiprocessor_count or 1, GB_PER_S * (hardware.memory_bandwidth_gb_per_s or 1)
    warps, reads = tiling.num_warps or 1, 2 if problem.backward else 1
    threads = warps * (hardware.warp_size or 1)
    splits = problem.tiles(tiling.tile_rows) * tiling.splits  # of all rows: what programs do one after the other
    operand = problem.n_rows * problem.n_cols * element
    moved = (reads + (problem.log_probs is None or problem.stores)) * operand
    beside = min(resident, max(1.0, splits / multiprocessors))
    waves = math.ceil(splits / (multiprocessors * resident))
    covered = tiling.covers(problem.width) // tiling.splits
    pieces, under = _pieces(problem, tiling, device, threads)
    again = (
        under * operand
        + (0 if tiling.held or not problem.reads_again else reads * operand)
        + 2 * spilled_bytes * threads * splits
    )
    return Facts(
        programs=num_programs / multiprocessors,
        beside=beside,
        waves=waves,
        bytes_us=moved / per_us,
        again_us=again / per_us,
        wave_us=waves * beside * multiprocessors / splits * moved / per_us,
        shared=float(tiling.is_shared and problem.pairs > 0),
        lookups=tiling.tile_rows * tiling.splits if tiling.is_shared and problem.pairs else 0,
        warps=warps,
        each=tiling.tile_rows * covered / threads,
        exponents=0 if problem.backward else tiling.tile_rows * covered,
        sums=_sums(problem, tiling, threads) * (1 if problem.backward else 2),  # a softmax has a maximum and a sum
        steps=0 if tiling.held else 2 * -(-covered // tiling.width) - 1,
        pieces=pieces,
    )


def _pieces(problem: Problem, tiling: Tiling, device: Device, threads: int) -> tuple[float, float]:
    """Returns (bytes that lines leave out for each that is moved, operands' worth of sectors that are moved once more)."""
    element, operands = DTYPE_BYTES[problem.y_dtype], 3 if problem.backward else 2
    launch = device.profile.launch
    of_lines = launch.line_elements, launch.min_line_elements
    line, sector = (WORD_BYTES * (each.value if each else 1) for each in of_lines)
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
