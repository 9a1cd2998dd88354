"""Launches of a problem on a grid: powers of two of rows, warps and columns, and some more of blocks, held or read twice.

There is no order of preference among them: they are compared by cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem, next_power_of_2

WORD_BYTES = 4
MOST_SPLITS = 64  # per row: a program reads two words of every split


class Budget:
    """Facts of a device as they concern a problem; threads and registers are those of a multiprocessor."""

    def __init__(self, problem: Problem, device: Device) -> None:
        hardware, launch = device.hardware, device.profile.launch
        self.problem, self.device = problem, device
        self.warp = hardware.warp_size or 1
        self.most_threads = hardware.max_threads_per_program or self.warp
        self.resident_threads = self.warp * (hardware.max_warps_per_multiprocessor or 1)
        self.registers = hardware.registers_per_multiprocessor or 1
        self.most_registers = hardware.max_registers_per_thread or self.registers  # of a thread
        self.multiprocessors = hardware.multiprocessor_count or 1
        self.operands = 2 if problem.backward else 1  # that are read
        can_split = bool(launch.polls) and not problem.in_place
        self.shares = can_split and not problem.batch_invariant  # a late program may be waited for or not, and bits differ
        self.splits_in_two_launches = can_split and problem.batch_invariant and problem.pairs > 0
        self.line = launch.line_elements.value if launch.line_elements else 1  # neighbouring rows that fill a cache line
        self.sector = launch.min_line_elements.value if launch.min_line_elements else 1  # and the least that memory moves

    @property
    def most_rows(self) -> int:
        """Returns a power of two of rows that is enough for all neighbours."""
        return next_power_of_2(self.problem.neighbours)


REGISTER_BYTES = 4
# Registers of a thread: lines through compiled launches, Triton 3.8, sm_90; of rows, and of rows side by side.
ANY, EACH = (16, 24), (1.0, 1.25)  # per program, and per element
READ_TWICE, ENDS, SHARED = 16, 10, 4  # more where blocks are read twice, of unaligned rows, where programs share rows


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses: registers per element, and some more; those above a thread's limit are spilled."""
    hardware, beside = device.hardware, problem.across
    threads = (tiling.num_warps or 1) * (hardware.warp_size or 1)
    elements = tiling.elements * (2 if problem.backward else 1) / threads
    wanted = ANY[beside] + round(EACH[beside] * elements)
    wanted += READ_TWICE * (not tiling.held) + ENDS * problem.unaligned + SHARED * tiling.is_shared
    most = tiling.max_registers or hardware.max_registers_per_thread or wanted
    most = min(most, (hardware.registers_per_multiprocessor or wanted * threads) // threads)
    spilled = REGISTER_BYTES * max(0, wanted - most)
    return KernelResources(tiling.num_warps, min(wanted, most), spilled_bytes_per_thread=spilled)


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once per way in which the device can read its rows, element by element first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts.
    """
    if problem.unaligned or problem.scattered:
        return [problem]  # it is read so already
    if problem.across:
        several = not problem.numbered and device.vendor.scattered_rows and problem.inner < Budget(problem, device).line
        return [problem, replace(problem, scattered=True)] if several else [problem]
    two_lines = 2 * WORD_BYTES * Budget(problem, device).line  # bytes; the ends of shorter rows cost too much
    anywhere = (
        problem.n_cols * problem.element_bytes >= two_lines
        and problem.aligned
        and device.vendor.aligned_access
        and _may_be_unaligned(problem)
    )
    if anywhere and not problem.batch_invariant:
        return [problem, replace(problem, vector=problem.widest, unaligned=True)]
    return [problem]


def read_as(problem: Problem, other: Problem, device: Device) -> Problem:
    """Returns the problem, read in the way in which another one of the same kind is read; as it is if it cannot be."""
    way = other.unaligned, other.scattered
    return next((reading for reading in readings(problem, device) if (reading.unaligned, reading.scattered) == way), problem)


def _may_be_unaligned(problem: Problem) -> bool:
    """True if rows of all operands start at one offset modulo a vector, other than 0.

    Rows shorter than a vector may be inside one.
    """
    levels = problem.lines.levels if problem.lines else ()
    alike = [len({stride % problem.widest for stride in strides}) == 1 for _, strides in levels]
    return bool(alike) and all(alike) and problem.vector < problem.widest <= problem.n_cols


MOST_ELEMENTS = 2**20  # of a tile, in any Triton
MOST_BLOCKS = 40  # of a tile in registers: they are unrolled, and hundreds compile for minutes
NARROWEST_TILE = 1024  # elements; narrower ones of rows that are read twice add up more, and round more
NARROW_WARPS = 4  # of a program of such a tile
FEW = 8  # elements of a thread, at most: too few for the largest programs, and for blocks that are read twice
# Of rows; those side by side have limits of their own, as measured launches beyond them are never much faster.
MOST_SHARED_BLOCKS = 32, 24  # of a split in registers
LEAST_SHARED = 16, 32  # elements of all operands per thread, where programs share rows
MOST_HELD = 128  # elements of a thread in registers, of rows side by side
MOST_SPLIT = 96  # elements of all operands of a thread where programs share rows, of rows side by side
MOST_PIECES = 5, 8  # blocks of at most one access of a row, and a thread's loads of these: more hit lines on their way


class Place(NamedTuple):
    """A place of the grid: rows, warps, elements of a block per thread, splits of a row, and whether registers hold it."""

    rows: int
    warps: int
    per_thread: int
    splits: int
    held: bool


def grid(problem: Problem, device: Device) -> list[Tiling]:
    """Returns the launches of a problem that is read in one way, without duplicates."""
    budget = Budget(problem, device)
    sizes = device.profile.launch.registers
    if not device.hardware.warp_size:
        tilings = _of_vector_cores(budget)
    else:
        tilings = _side_by_side(budget) if problem.across else _of_rows(budget)
    possible = [tiling for tiling in dict.fromkeys(tilings) if is_possible(tiling)]
    return [replace(tiling, max_registers=size) for tiling in possible for size in sizes.value] if sizes else possible


def is_possible(tiling: Tiling) -> bool:
    """True if there is a kernel for it."""
    return tiling.elements <= MOST_ELEMENTS and not (tiling.held and tiling.blocks > MOST_BLOCKS)


def _of_rows(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of rows whose elements are next to each other; they are read twice only if they cannot be in registers."""
    problem, warps = budget.problem, powers(1, budget.most_threads // budget.warp)
    anywhere = problem.vector == 1 or problem.unaligned  # where rows start: a thread has one access per row
    sizes = [problem.vector] if anywhere else powers(problem.vector, 2 * problem.widest)[::-1]
    fit = budget.most_threads * problem.vector // next_power_of_2(problem.width)
    for rows in powers(1, min(fit, next_power_of_2(-(-problem.n_rows // budget.multiprocessors)))):
        whole = rows * next_power_of_2(problem.width)  # one block, if one thread held it
        places = [*product([rows], warps, [*sizes, whole] if anywhere else [whole, *sizes], [1], [True])]
        is_long = rows == 1 and problem.width >= budget.most_threads * problem.vector  # an access for every possible thread
        if is_long and budget.shares:
            places += _shared(budget, rows, warps, sizes[::-1], MOST_SPLITS)
        held = [tiling for place in places if (tiling := _tiling(budget, Place(*place)))]
        yield from held
        fits = [tiling for tiling in held if is_possible(tiling) and tiling.splits <= budget.multiprocessors]
        if not problem.reads_again or not fits:
            splits = powers(1, MOST_SPLITS) if is_long and budget.shares else [1]
            places = [*product([rows], warps, sizes, splits, [False])]
            yield from (tiling for place in places if (tiling := _tiling(budget, Place(*place))))
        if is_long and budget.splits_in_two_launches:
            yield from _two_launches(budget, warps, sizes)
    yield _smallest(budget, 1)


def _side_by_side(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of rows side by side, from a sector of memory wide to two cache lines; long rows are split."""
    problem, warps = budget.problem, powers(1, budget.most_threads // budget.warp)
    word = max(1, WORD_BYTES // problem.element_bytes)
    sizes = powers(max(problem.vector, word), 2 * problem.widest)
    narrow, line = (min(budget.most_rows, word * elements) for elements in (budget.sector, budget.line))
    if problem.scattered:
        narrow = max(narrow, next_power_of_2(problem.inner + 1))  # of several matrices
    for rows in powers(narrow, min(budget.most_rows, 2 * line)):
        places = [*product([rows], warps[:-1] or warps, sizes[::-1], [1], [True])]
        if budget.shares and not problem.scattered and 2 * rows * problem.width * budget.operands > budget.registers:
            if rows <= line:
                places += _shared(budget, rows, warps[1:-1], sizes[-2:], MOST_SPLITS // 2)
            if rows > narrow:  # and so many splits that half of the multiprocessors have one
                least = next_power_of_2(max(4, min(MOST_SPLITS, budget.multiprocessors // (2 * problem.tiles(rows)))))
                places += product([rows], warps[1:-2], sizes[::-1], powers(least, MOST_SPLITS), [False])
        tilings = [tiling for place in places if (tiling := _tiling(budget, Place(*place)))]
        yield from tilings
        if not tilings:
            yield from (tiling for num in warps if (tiling := _tiling(budget, Place(rows, num, sizes[-1], 1, False))))
    yield _smallest(budget, narrow)


def _shared(budget: Budget, rows: int, warps: list[int], sizes: list[int], most: int) -> Iterator[Place]:
    """Yields places of programs that share rows, by blocks per program: small ones first, which need fewer registers."""
    across = budget.problem.across
    sizes, blocks = (
        sizes if across else [*dict.fromkeys([min(sizes[0], VECTOR_BYTES // WORD_BYTES), *sizes])],
        MOST_SHARED_BLOCKS[across],
    )
    for num_warps, size, count in product(warps, sizes, sorted([*powers(1, blocks), *powers(3, blocks)])):
        cols = max(1, size * num_warps * budget.warp // rows) * count
        splits = -(-budget.problem.width // cols)
        if 1 < splits <= most:
            yield Place(rows, num_warps, size, splits, held=True)


def _two_launches(budget: Budget, warps: list[int], sizes: list[int]) -> Iterator[Tiling]:
    """Yields splits of rows whose statistics one launch computes for another."""
    for num_warps, size, count in product(warps, sizes, powers(2, MOST_SPLITS)):
        width, split = size * num_warps * budget.warp, -(-budget.problem.width // count)
        blocks = -(-split // width)
        splits = -(-budget.problem.width // (blocks * width))
        if width >= NARROWEST_TILE and splits > 1 and width < 2 * split:
            yield Tiling(1, width, num_warps, 1, splits, blocks=blocks, held=False, two_launches=True)


def _smallest(budget: Budget, rows: int) -> Tiling:
    """Returns the launch that needs the least: it reads rows twice, by small tiles; so no problem is without a launch."""
    width = min(max(1, NARROWEST_TILE // rows), next_power_of_2(budget.problem.width))
    return Tiling(rows, width, max(1, min(NARROW_WARPS, rows * width // budget.warp)), 1, held=False)


def _tiling(budget: Budget, place: Place) -> Tiling | None:
    """Returns the tiling of blocks of so many elements a thread, or of one of a row or split where it is as wide.

    None if it gains nothing, if its threads have fewer registers, or if another one is as fast.
    """
    problem, threads, (rows, warps, per_thread, splits, held) = budget.problem, place.warps * budget.warp, place
    width, split = per_thread * threads // rows, -(-problem.width // splits)
    if width < problem.vector and not problem.across:
        return None
    width = max(1, min(width, next_power_of_2(split)))
    blocks = -(-split // width)
    cols = blocks * width
    splits = -(-problem.width // cols)
    elements = rows * (cols if held else width)
    if 2 * elements * budget.operands > min(budget.registers, threads * budget.most_registers):
        return None
    if splits > 1 and rows * cols * budget.operands < LEAST_SHARED[problem.across] * threads:
        return None  # programs would exchange for little
    if not held and elements < max(NARROWEST_TILE, FEW * threads * (problem.across and splits > 1)):
        return None
    if not held and splits > 1 and (blocks == 1 or _are_enough(budget, place)):
        return None  # it would be read once more, or be exchanged, for nothing
    if warps > 1 and rows * min(cols, problem.width) < threads:
        return None  # some threads would have nothing
    if held and _is_slow(budget, rows, width, blocks, splits, threads):
        return None
    return Tiling(rows, width, warps, 1, splits, blocks=blocks, held=held)


def _is_slow(budget: Budget, rows: int, width: int, blocks: int, splits: int, threads: int) -> bool:
    """True for tiles in registers of which some other is always as fast, or nearly so."""
    problem, per_thread = budget.problem, rows * width * blocks / threads
    if problem.across:
        return per_thread > MOST_HELD or (splits > 1 and per_thread * budget.operands > MOST_SPLIT)
    most_blocks, most_loads = MOST_PIECES
    pieces = blocks > most_blocks or per_thread / problem.vector * budget.operands > most_loads
    pieces = pieces and width * problem.element_bytes <= VECTOR_BYTES
    idle = (
        per_thread < problem.vector
        and problem.tiles(rows) * splits * threads > budget.multiprocessors * budget.resident_threads
    )
    return pieces or idle or (threads == budget.most_threads and per_thread <= FEW)


def _are_enough(budget: Budget, place: Place) -> bool:
    """True if half as many splits occupy all warps that the device holds at once."""
    threads = budget.problem.tiles(place.rows) * place.splits * place.warps * budget.warp
    return threads >= 2 * budget.multiprocessors * budget.resident_threads


def _of_vector_cores(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of as many elements as the profile sets, then fewer; rows that are longer are read twice."""
    problem, launch, beside = budget.problem, budget.device.profile.launch, budget.problem.across
    most = launch.tile_elements.value if launch.tile_elements else 1
    cols, neighbours = next_power_of_2(problem.width), budget.most_rows
    fair = next_power_of_2(-(-problem.n_rows // budget.multiprocessors))  # each core has a tile
    rows = max(1, most // (cols * (1 if beside else budget.operands)))
    largest = min(1 << rows.bit_length() - 1, fair, neighbours)
    least, line = (min(neighbours, size) if beside else 1 for size in (budget.sector, budget.line))
    for rows in reversed(powers(least, max(largest, line))):
        if problem.width <= most // rows if beside else problem.n_cols <= most:
            yield Tiling(rows, cols)
    rows = min(neighbours, budget.line) if beside else 1
    stream = launch.stream_elements.value if launch.stream_elements else 1
    widest = min(max(1, stream // rows), cols)
    for width in reversed(powers(1, widest)):
        if width == widest or width * rows >= min(NARROWEST_TILE, rows * problem.n_cols):
            yield Tiling(rows, width, held=False)


def powers(least: int, most: int) -> list[int]:
    """Returns `least` times the powers of two, up to `most`; the least one always."""
    return [least << power for power in range(max(1, (most // max(1, least)).bit_length()))]
