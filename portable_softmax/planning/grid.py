"""Launches of a problem on a grid: powers of two of rows, warps and columns, some numbers of blocks, held or read twice.

There is no order of preference among them: they are compared by cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import NS
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem, next_power_of_2

WORD_BYTES = 4
GB_PER_S = 1 / NS  # bytes of a microsecond
MOST_SPLITS = 64  # per row: a program reads two words of every split
MOST_BLOCKS = 40  # of a tile in registers: they are unrolled, and hundreds compile for minutes
NARROWEST_TILE = 1024  # elements; narrower ones of rows that are read twice add up more, and round more
REGISTERS = 24  # of a thread for addresses and numbers of a row: 16 to 48 in compiled launches of sm_90
FEW = 8  # elements of a thread, at most: too few for the largest programs, and for blocks that are read twice
MANY = 48  # elements of a thread, at least, that are kept as they were loaded: 32 are 3 to 10% slower in one wave of programs
MOST_LOADS = 64  # of a thread, of one element each, where programs share rows side by side
MOST_OF_ONE_WARP = 32  # programs of a multiprocessor that share rows and have one warp: two warps exchange half as much
MOST_PIECES = 5  # blocks of at most one access of a row: more hit lines on their way


class Budget:
    """Facts of a device as they concern a problem. Threads, registers: of a multiprocessor; line, sector, element: bytes."""

    def __init__(self, problem: Problem, device: Device) -> None:
        hardware, launch = device.hardware, device.profile.launch
        self.problem, self.device = problem, device
        self.warp = hardware.warp_size or 1
        self.most_threads = hardware.max_threads_per_program or self.warp
        self.resident_threads = self.warp * (hardware.max_warps_per_multiprocessor or 1)
        self.registers = hardware.registers_per_multiprocessor or 1
        self.most_registers = hardware.max_registers_per_thread or self.registers  # of a thread
        self.multiprocessors = hardware.multiprocessor_count or 1
        self.loads = 2 if problem.backward else 1  # operands that are read
        can_split = bool(launch.polls) and not problem.in_place
        self.shares = can_split and not problem.batch_invariant  # a late program may be waited for or not, and bits differ
        self.splits_in_two_launches = can_split and problem.batch_invariant and problem.pairs > 0
        self.line = WORD_BYTES * (launch.line_elements.value if launch.line_elements else 1)
        self.sector = WORD_BYTES * (launch.min_line_elements.value if launch.min_line_elements else 1)  # the least that moves
        x, y = DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]
        self.element = y if problem.stores else x
        self.read, written = (2 * y, x) if problem.backward else (x, y)  # bytes per element
        self.written = written if problem.stores else 0
        self.per_us = GB_PER_S * (hardware.memory_bandwidth_gb_per_s or self.multiprocessors)

    def access(self, tiling: Tiling) -> int:
        """Returns the number of neighbouring elements of a thread."""
        threads, elements = (tiling.num_warps or 1) * self.warp, tiling.tile_rows * tiling.width
        return min(self.problem.vector, max(1, elements // threads)) if self.problem.across else self.problem.vector

    def kind(self, tiling: Tiling) -> object:
        """Returns what a launch's cost depends on: not the size of blocks that are held, for many rows side by side."""
        if not tiling.held or not self.problem.across or tiling.tile_rows >= self.problem.inner:
            return tiling
        return tiling.tile_rows, tiling.num_warps, tiling.splits, tiling.tile_cols, self.access(tiling)

    def rows_of(self, size: int) -> int:
        """Returns the rows side by side that so many bytes hold, of those that there are: a power of two."""
        return min(next_power_of_2(self.problem.rows_per_group), size // self.element)


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses, at least: a register per element, or half, and a few; those above a limit are spilled.

    A vendor without registers has an estimate of its own.
    """
    lines = tiling.tile_rows, tiling.tile_cols if tiling.held else tiling.width
    tile = lines[::-1] if problem.across else lines
    edge = {"edge"} if problem.n_cols % tiling.width else set()  # a row ends within a block
    if modelled := device.vendor.model(tile, DTYPE_BYTES[problem.x_dtype], problem.operations | edge, device):
        return modelled
    threads = (tiling.num_warps or 1) * (device.hardware.warp_size or 1)
    operands, narrow = 2 if problem.backward else 1, problem.across and tiling.is_shared and problem.vector == 1
    elements = -(-tiling.tile_rows * (tiling.tile_cols if tiling.held else tiling.width) * operands // threads)
    elements = elements // 2 if holds_as_loaded(problem, tiling, device) else elements
    wanted = REGISTERS * operands + elements + elements // 2 if narrow else REGISTERS + elements
    there = min(available(wanted, threads, device), tiling.max_registers or wanted)
    return KernelResources(tiling.num_warps, there, spilled_bytes_per_thread=WORD_BYTES * (wanted - there))


def holds_as_loaded(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """True if a tile of many elements of 16 bits, not of scores, stays in registers as it was loaded, two to a register."""
    threads = (tiling.num_warps or 1) * (device.hardware.warp_size or 1)
    pairs = {DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]} == {2} and problem.vector > 1
    pairs = pairs and tiling.tile_rows * tiling.width >= 2 * threads and bool(device.vendor.vector_register)
    many = tiling.held and not tiling.two_launches and tiling.tile_rows * tiling.tile_cols >= MANY * threads
    return pairs and many and (problem.backward or not problem.scores)


def available(wanted: int, threads: int, device: Device) -> int:
    """Returns the registers that a thread has of so many, in programs of so many threads."""
    hardware = device.hardware
    most = hardware.max_registers_per_thread or wanted, (hardware.registers_per_multiprocessor or wanted * threads) // threads
    return min(wanted, *most)


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once per way in which the device can read its rows, element by element first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts; nor are those of samples, whose groups of columns would.
    """
    budget, vendor = Budget(problem, device), device.vendor
    if problem.across:
        several = not problem.numbered and vendor.scattered_rows and problem.inner * WORD_BYTES < budget.line
        return [problem, replace(problem, scattered=True)] if several else [problem]
    long = problem.n_cols * budget.element >= 2 * budget.line  # the ends of shorter rows cost too much
    vectors = long and problem.alike and problem.vector < problem.widest
    vectors = vectors and problem.aligned and vendor.aligned_access and not (problem.batch_invariant or problem.is_sample)
    return [problem, replace(problem, vector=problem.widest, unaligned=True)] if vectors else [problem]


def grid(budget: Budget) -> list[Tiling]:
    """Returns the launches of a problem that is read in one way. Of those that differ in the size of blocks alone one stays."""
    sizes, first = budget.device.profile.launch.registers, dict[object, Tiling]()
    for tiling in _of_warps(budget) if budget.device.hardware.warp_size else _of_vector_cores(budget):
        first.setdefault(budget.kind(tiling), tiling)
    tilings = list(first.values())
    return [replace(tiling, max_registers=size) for tiling in tilings for size in sizes.value] if sizes else tilings


def _of_warps(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of all numbers of rows: of rows side by side, from a sector of memory wide to two cache lines.

    Blocks have one access of each thread, up to two of the widest for rows side by side; or they are whole rows. Rows are read
    twice where they are not held, and where they are long and side by side.
    """
    problem, warps = budget.problem, powers(1, budget.most_threads // budget.warp)
    whole, longest = next_power_of_2(problem.width), budget.most_threads * problem.vector  # an access of every thread
    in_two = budget.splits_in_two_launches and not problem.across
    splittable = (budget.shares or in_two) and not problem.scattered
    if problem.across:
        sizes = powers(max(problem.vector, WORD_BYTES // budget.element), 2 * problem.widest)[::-1]
        narrow, wide = budget.rows_of(budget.sector), budget.rows_of(2 * budget.line)
        narrow = max(narrow, next_power_of_2(problem.inner + 1)) if problem.scattered else narrow  # of several matrices
        of_shared, of_twice = sizes[1::-1], sizes[:1]
    else:
        narrow, wide, vector = 1, longest // whole, problem.vector
        # blocks are read one after another where no programs wait for one another
        of_shared = [min(vector, VECTOR_BYTES // WORD_BYTES), vector] if problem.pairs else [vector, 2 * vector]
        of_twice = [2 * vector, vector]
        if vector > 1 and not problem.stores:  # a row is read once, block by block: with several loads of a thread at once
            of_twice = [FEW * vector, FEW // 2 * vector]
    for rows in powers(narrow, wide):
        sizes = sizes if problem.across else [rows * whole, problem.vector]
        held = [*filter(None, (_tiling(budget, rows, *place) for place in product(warps, sizes)))]
        long = 2 * rows * problem.width * budget.loads > budget.registers if problem.across else problem.width >= longest
        splits = powers(2, MOST_SPLITS) if long and splittable else []
        if budget.shares and splits and rows <= budget.rows_of(budget.line):
            held += _shared(budget, rows, (warps[1:-1] if problem.across else warps[:-2]) or warps, of_shared)
        yield from held
        several = not held or in_two or rows > narrow or (problem.across and rows == wide)
        once = problem.log_probs is not None and not problem.unaligned  # every block of unaligned rows would have masks
        counts = [1] * (not held or once) + splits * several
        twice = product(warps[2:] or warps, of_twice, counts)
        yield from filter(None, (_tiling(budget, rows, *place, held=False) for place in twice))
    width = min(max(1, NARROWEST_TILE // narrow), next_power_of_2(problem.width))
    yield Tiling(narrow, width, max(1, min(2, narrow * width // budget.warp)), 1, held=False)  # it needs the least


def _shared(budget: Budget, rows: int, warps: list[int], sizes: list[int]) -> Iterator[Tiling]:
    """Yields programs that share rows, by blocks per program: small ones first, which need fewer registers."""
    counts = sorted(count for odd in (1, 3, 5) for count in powers(odd, MOST_BLOCKS // 2 - 1))  # 1 to 6, 8, 10, ...
    for num_warps, size, count in product(warps, sizes, counts):
        splits = -(-budget.problem.width // (max(1, size * num_warps * budget.warp // rows) * count))
        tiling = _tiling(budget, rows, num_warps, size, splits)
        if tiling and 1 < splits <= MOST_SPLITS // (1 + budget.problem.across):
            yield tiling


def _tiling(budget: Budget, rows: int, warps: int, per_thread: int, splits: int = 1, held: bool = True) -> Tiling | None:
    """Returns the tiling of blocks of so many elements a thread, or of one of a row or split where it is as wide.

    None if it gains nothing, if its threads have fewer registers, or if another one is as fast.
    """
    problem, threads, programs = budget.problem, warps * budget.warp, budget.problem.tiles(rows) * splits
    fills = budget.multiprocessors <= 2 * programs and programs * threads < budget.multiprocessors * budget.resident_threads
    if splits > 1 and budget.shares and not held and not fills:
        return None
    if splits > 1 and held and warps == 1 and not problem.across and programs > MOST_OF_ONE_WARP * budget.multiprocessors:
        return None
    width, split = per_thread * threads // rows, -(-problem.width // splits)
    if width < problem.vector and not problem.across:
        return None
    width = max(1, min(width, next_power_of_2(split)))
    blocks = -(-split // width)
    cols = blocks * width
    splits = -(-problem.width // cols)
    registers = min(budget.registers, threads * budget.most_registers)
    if 2 * rows * (cols if held else width) * budget.loads > registers or (held and blocks > MOST_BLOCKS):
        return None
    if not held and rows * width < NARROWEST_TILE:
        return None
    if warps > 1 and rows * min(cols, problem.width) < threads:
        return None  # some threads would have nothing
    if splits > 1 and held and problem.across and problem.vector == 1 and rows * cols > MOST_LOADS * threads * budget.loads:
        return None
    if splits > 1 and rows * cols * budget.loads < 2 * FEW * (1 + problem.across) * threads:
        return None  # programs would exchange for little
    several = blocks > MOST_PIECES or rows * cols * budget.loads > FEW * problem.vector * threads
    if held and not problem.across and several and width * budget.element <= VECTOR_BYTES:
        return None  # later blocks hit lines that are on their way
    blocks, two_launches = blocks if held or splits > 1 else 1, splits > 1 and not budget.shares
    return Tiling(rows, width, warps, 1, splits, blocks=blocks, held=held, walk=False, two_launches=two_launches)


def _of_vector_cores(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of as many elements as the profile sets, then fewer; rows that are longer are read twice."""
    problem, launch, beside = budget.problem, budget.device.profile.launch, budget.problem.across
    facts = launch.tile_elements, launch.row_elements or launch.tile_elements, launch.stream_elements
    most, longest, stream = (fact.value if fact else 1 for fact in facts)
    cols = next_power_of_2(problem.width)
    fair = next_power_of_2(-(-problem.n_rows // budget.multiprocessors))  # each core has a tile
    neighbours, words = next_power_of_2(problem.rows_per_group), (budget.sector // WORD_BYTES, budget.line // WORD_BYTES)
    largest = min(max(1, most // (cols * (1 if beside else budget.loads))), fair, neighbours)
    least, line = (min(neighbours, size) if beside else 1 for size in words)
    for rows in reversed(powers(least, max(largest, line))):
        if problem.width <= most // rows if beside else problem.n_cols <= longest:
            yield Tiling(rows, cols)
    widest = min(max(1, stream // line), cols)
    for width in reversed(powers(1, widest)):
        if width == widest or width * line >= min(NARROWEST_TILE, line * problem.n_cols):
            yield Tiling(line, width, held=False)


def powers(least: int, most: int) -> list[int]:
    """Returns `least` times the powers of two, up to `most`; the least one always."""
    return [least << power for power in range(max(1, (most // max(1, least)).bit_length()))]
