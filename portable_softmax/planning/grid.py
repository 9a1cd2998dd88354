"""Launches of a problem on a grid: powers of two of rows, warps and columns, and some more of blocks, held or read twice.

There is no order of preference among them: they are compared by cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

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
    there = min(available(wanted, threads, device), tiling.max_registers or wanted)
    return KernelResources(tiling.num_warps, there, spilled_bytes_per_thread=WORD_BYTES * (wanted - there))


def available(wanted: int, threads: int, device: Device) -> int:
    """Returns the registers that a thread has of so many, in programs of so many threads."""
    hardware = device.hardware
    most = hardware.max_registers_per_thread or wanted, (hardware.registers_per_multiprocessor or wanted * threads) // threads
    return min(wanted, *most)


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
MOST_SHARED_BLOCKS = 24  # of a split in registers
NARROWEST_TILE = 1024  # elements; narrower ones of rows that are read twice add up more, and round more
NARROW_WARPS = 4  # of a program of such a tile
FEW = 8  # elements of a thread, at most: too few for the largest programs, and for blocks that are read twice
LEAST_SHARED = 16, 32  # elements of all operands per thread, where programs share rows, in rows and side by side
MOST_SPLIT = 96  # elements of all operands of a thread where programs share rows, of rows side by side
ACCESSES = 8  # of a thread in a block of a row that is read once, block by block, since no element is stored
MOST_PIECES = 5, 8  # blocks of at most one access of a row, and a thread's loads of these: more hit lines on their way

MOST_NARROW = 16  # a thread's loads of less than the widest access: more are not in flight at once


def grid(problem: Problem, device: Device) -> list[Tiling]:
    """Returns the launches of a problem that is read in one way, without duplicates."""
    budget, sizes = Budget(problem, device), device.profile.launch.registers
    tilings = _of_warps(budget) if device.hardware.warp_size else _of_vector_cores(budget)
    possible = [tiling for tiling in dict.fromkeys(tilings) if is_possible(tiling)]
    return [replace(tiling, max_registers=size) for tiling in possible for size in sizes.value] if sizes else possible


def is_possible(tiling: Tiling) -> bool:
    """True if there is a kernel for it."""
    return tiling.elements <= MOST_ELEMENTS and not (tiling.held and tiling.blocks > MOST_BLOCKS)


def _of_warps(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of all numbers of rows: of rows side by side, from a sector of memory wide to two cache lines.

    Blocks have one access of each thread, up to two of the widest; or they are whole rows.
    """
    problem, warps = budget.problem, powers(1, budget.most_threads // budget.warp)
    if problem.across:
        word = max(1, WORD_BYTES // problem.element_bytes)
        sizes = powers(max(problem.vector, word), 2 * problem.widest)[::-1]
        narrow, line = (min(budget.most_rows, word * elements) for elements in (budget.sector, budget.line))
        if problem.scattered:
            narrow = max(narrow, next_power_of_2(problem.inner + 1))  # of several matrices
        for rows in powers(narrow, min(budget.most_rows, 2 * line)):
            places = product([rows], warps[:-1] or warps, sizes)
            tilings = [tiling for place in places if (tiling := _tiling(budget, *place))]
            if budget.shares and not problem.scattered and 2 * rows * problem.width * budget.operands > budget.registers:
                tilings += _shared(budget, rows, warps[1:-1], sizes[1::-1], MOST_SPLITS // 2 if rows <= line else 1)
                if rows > narrow:  # and so many splits that half of the multiprocessors have one
                    least = max(4, min(MOST_SPLITS, budget.multiprocessors // (2 * problem.tiles(rows))))
                    tilings += _read_twice(budget, rows, warps[1:-2], sizes, powers(next_power_of_2(least), MOST_SPLITS))
            yield from tilings or _read_twice(budget, rows, warps, sizes[:1], [1])
        yield _smallest(budget, narrow)
        return
    whole, longest = next_power_of_2(problem.width), budget.most_threads * problem.vector  # an access of every thread
    anywhere = problem.vector == 1 or problem.unaligned  # where rows start: a thread has one access per row
    sizes = [problem.vector] if anywhere else powers(problem.vector, 2 * problem.widest)[::-1]
    for rows in powers(1, min(longest // whole, next_power_of_2(-(-problem.n_rows // budget.multiprocessors)))):
        blocks = [*sizes, rows * whole] if anywhere else [rows * whole, *sizes]
        held = [tiling for place in product([rows], warps, blocks) if (tiling := _tiling(budget, *place))]
        is_long = rows == 1 and problem.width >= longest
        if is_long and budget.shares:
            narrow = min(sizes[-1], VECTOR_BYTES // WORD_BYTES)
            held += _shared(budget, rows, warps, [*dict.fromkeys([narrow, *sizes[::-1]])], MOST_SPLITS)
        yield from held
        fits = any(is_possible(tiling) and tiling.splits <= budget.multiprocessors for tiling in held)
        if not problem.reads_again or not fits:
            wide = [] if problem.stores or anywhere else powers(4 * problem.widest, ACCESSES * problem.widest)[::-1]
            yield from _read_twice(
                budget, rows, warps, [*wide, *sizes], powers(1, MOST_SPLITS) if is_long and budget.shares else [1]
            )
        if is_long and budget.splits_in_two_launches:
            yield from _two_launches(budget, warps, sizes)
    yield _smallest(budget, 1)


def _shared(budget: Budget, rows: int, warps: list[int], sizes: list[int], most: int) -> Iterator[Tiling]:
    """Yields programs that share rows, by blocks per program: small ones first, which need fewer registers."""
    counts = sorted([*powers(1, MOST_SHARED_BLOCKS), *powers(3, MOST_SHARED_BLOCKS)])
    for num_warps, size, count in product(warps, sizes, counts):
        splits = -(-budget.problem.width // (max(1, size * num_warps * budget.warp // rows) * count))
        if 1 < splits <= most and (tiling := _tiling(budget, rows, num_warps, size, splits)):
            yield tiling


def _read_twice(budget: Budget, rows: int, warps: list[int], sizes: list[int], splits: list[int]) -> Iterator[Tiling]:
    """Yields programs that read their part of a row twice, block by block; as many splits as may occupy all warps."""
    resident = budget.multiprocessors * budget.resident_threads
    for num_warps, size, count in product(warps, sizes, splits):
        threads = num_warps * budget.warp
        width = max(1, min(size * threads // rows, next_power_of_2(-(-budget.problem.width // count))))
        least = max(NARROWEST_TILE, FEW * threads if budget.problem.across and count > 1 else 0)
        enough = count > 1 and budget.problem.tiles(rows) * count * threads >= 2 * resident
        tiling = None if enough or rows * width < least else _tiling(budget, rows, num_warps, size, count, held=False)
        if tiling and (not tiling.is_shared or tiling.blocks > 1):  # else it would be read once more for nothing
            yield tiling


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


def _tiling(budget: Budget, rows: int, warps: int, per_thread: int, splits: int = 1, held: bool = True) -> Tiling | None:
    """Returns the tiling of blocks of so many elements a thread, or of one of a row or split where it is as wide.

    None if it gains nothing, if its threads have fewer registers, or if another one is as fast.
    """
    problem, threads = budget.problem, warps * budget.warp
    width, split = per_thread * threads // rows, -(-problem.width // splits)
    if width < problem.vector and not problem.across:
        return None
    width = max(1, min(width, next_power_of_2(split)))
    blocks = -(-split // width)
    cols = blocks * width
    splits = -(-problem.width // cols)
    elements = rows * (cols if held else width)
    registers = min(budget.registers, threads * budget.most_registers)
    if 2 * elements * budget.operands > registers or (warps > 1 and rows * min(cols, problem.width) < threads):
        return None  # or some threads would have nothing
    if splits > 1 and rows * cols * budget.operands < LEAST_SHARED[problem.across] * threads:
        return None  # programs would exchange for little
    of_thread = rows * cols / threads
    if held and problem.across and splits > 1 and of_thread * budget.operands > MOST_SPLIT:
        return None
    access = max(1, min(problem.vector, rows * width // threads))
    narrow = access * problem.element_bytes < VECTOR_BYTES and of_thread / access * budget.operands > MOST_NARROW
    if held and not problem.across and (narrow or _in_pieces(budget, width, blocks, of_thread)):
        return None
    return Tiling(rows, width, warps, 1, splits, blocks=blocks, held=held)


def _in_pieces(budget: Budget, width: int, blocks: int, per_thread: float) -> bool:
    """True if rows are read by one access each, again and again: later ones hit lines that are on their way."""
    most_blocks, most_loads = MOST_PIECES
    several = blocks > most_blocks or per_thread / budget.problem.vector * budget.operands > most_loads
    return several and width * budget.problem.element_bytes <= VECTOR_BYTES


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
