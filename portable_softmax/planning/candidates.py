"""Candidates of a problem: powers of two of rows, warps and columns, some numbers of blocks, in registers, split or two-pass.

There is no order of preference among them: they are compared by cost.
"""

from collections import Counter
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
MAX_SPLITS = 64  # per row: a program reads two words of every split
MAX_BLOCKS = 40  # of a tile in registers: they are unrolled, and hundreds compile for minutes
MIN_TWO_PASS = 1024  # elements of a block; narrower ones add up more, and round more
REGISTERS = 24  # of a thread for addresses and numbers of a row: 16 to 48 in compiled launches of sm_90
FEW = 8  # elements of a thread, at most: too few for the largest programs, and for blocks of a two-pass tile
AS_LOADED = (
    48  # elements of a thread, at least, that are kept as they were loaded: 32 are 3 to 10% slower in one wave of programs
)
MAX_OF_ONE_WARP = 32  # programs of a multiprocessor that share rows and have one warp: two warps exchange half as much
MAX_SCALAR_BLOCKS = 5  # of at most one access of a row: more hit lines on their way


class Limits:
    """Limits of a device for a problem. Threads and registers are of a multiprocessor; line, sector and element are bytes."""

    def __init__(self, problem: Problem, device: Device) -> None:
        hardware, launch = device.hardware, device.profile.launch
        self.problem, self.device = problem, device
        self.warp = hardware.warp_size or 1
        self.max_threads = hardware.max_threads_per_program or self.warp
        self.resident_threads = self.warp * (hardware.max_warps_per_multiprocessor or 1)
        self.registers = hardware.registers_per_multiprocessor or 1
        self.registers_per_thread = hardware.max_registers_per_thread or self.registers
        self.multiprocessors = hardware.multiprocessor_count or 1
        self.warps = powers(1, self.max_threads // self.warp)
        self.left_out = Counter[str]()  # numbers of launches that are no candidates, by reason
        self.loads = 2 if problem.backward else 1  # operands that are read
        can_split = bool(launch.polls) and not problem.in_place
        self.exchanges = can_split and not problem.batch_invariant  # a late program may be waited for or not, and bits differ
        self.splits_in_two_launches = can_split and problem.batch_invariant and problem.pairs > 0
        self.line = WORD_BYTES * (launch.line_elements.value if launch.line_elements else 1)
        self.sector = WORD_BYTES * (launch.min_line_elements.value if launch.min_line_elements else 1)  # the least that moves
        x, y = DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]
        self.element = y if problem.stores else x
        self.read, written = (2 * y, x) if problem.backward else (x, y)  # bytes per element
        self.written = written if problem.stores else 0
        self.per_us = GB_PER_S * (hardware.memory_bandwidth_gb_per_s or self.multiprocessors)

    def rows_in(self, size: int) -> int:
        """Returns the rows side by side that so many bytes hold, of those that there are: a power of two."""
        return min(next_power_of_2(self.problem.rows_per_group), size // self.element)


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses, at least: a register per element, or half, and a few; or as the vendor does."""
    lines = tiling.tile_rows, tiling.block_cols
    edge = {"edge"} if problem.n_cols % tiling.width else set()  # a row ends within a block
    tile = lines[::-1] if problem.across else lines
    if modelled := device.vendor.model(tile, DTYPE_BYTES[problem.x_dtype], problem.operations | edge, device):
        return modelled
    threads = tiling.warps * (device.hardware.warp_size or 1)
    operands = 2 if problem.backward else 1
    elements = -(-tiling.tile_rows * tiling.block_cols * operands // threads)
    if holds_as_loaded(problem, tiling, device):
        elements //= 2
    wanted = REGISTERS + elements
    if problem.across and tiling.is_shared and problem.vector == 1:
        wanted = REGISTERS * operands + elements + elements // 2
    registers = min(available(wanted, threads, device), tiling.max_registers or wanted)
    return KernelResources(tiling.num_warps, registers, spilled_bytes_per_thread=WORD_BYTES * (wanted - registers))


def holds_as_loaded(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """True if a tile of many elements of 16 bits, not of scores, stays in registers as it was loaded, two to a register."""
    threads = tiling.warps * (device.hardware.warp_size or 1)
    pairs = {DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]} == {2} and problem.vector > 1
    pairs = pairs and tiling.tile_rows * tiling.width >= 2 * threads and bool(device.vendor.vector_register)
    many = tiling.held and not tiling.two_launches and tiling.tile_rows * tiling.tile_cols >= AS_LOADED * threads
    return pairs and many and (problem.backward or not problem.scores)


def available(wanted: int, threads: int, device: Device) -> int:
    """Returns the registers that a thread has of so many, in programs of so many threads."""
    hardware = device.hardware
    limits = hardware.max_registers_per_thread or wanted, (hardware.registers_per_multiprocessor or wanted * threads) // threads
    return min(wanted, *limits)


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once per way in which the device can read its rows, element by element first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts; nor are those of samples, whose groups of columns would.
    """
    limits, vendor = Limits(problem, device), device.vendor
    if problem.across:
        several = not problem.numbered and vendor.scattered_rows and problem.inner * WORD_BYTES < limits.line
        return [problem, replace(problem, scattered=True)] if several else [problem]
    long = problem.n_cols * limits.element >= 2 * limits.line  # the ends of shorter rows cost too much
    vectors = long and problem.alike and problem.vector < problem.widest and problem.aligned and vendor.aligned_access
    if not vectors or problem.batch_invariant or problem.is_sample:
        return [problem]
    return [problem, replace(problem, vector=problem.widest, unaligned=True)]


def candidates(limits: Limits) -> list[Tiling]:
    """Returns the launches of a problem that is read in one way."""
    sizes = limits.device.profile.launch.registers
    generated = _of_warps(limits) if limits.device.hardware.warp_size else _of_vector_cores(limits)
    tilings = list(dict.fromkeys(generated))
    return [replace(tiling, max_registers=size) for tiling in tilings for size in sizes.value] if sizes else tilings


def _of_warps(limits: Limits) -> Iterator[Tiling]:
    """Yields tiles of all numbers of rows; of rows side by side, from a sector of memory wide to two cache lines."""
    problem = limits.problem
    narrow, wide = 1, limits.max_threads * problem.vector // next_power_of_2(problem.width)
    if problem.across:
        narrow, wide = limits.rows_in(limits.sector), limits.rows_in(2 * limits.line)
    if problem.scattered:
        narrow = max(narrow, next_power_of_2(problem.inner + 1))  # of several matrices
    for rows in powers(narrow, wide):
        held = [*_in_registers(limits, rows), *_split(limits, rows)]
        yield from held
        yield from _two_pass(limits, rows, bool(held))
    width = min(max(1, MIN_TWO_PASS // narrow), next_power_of_2(problem.width))
    yield Tiling(narrow, width, max(1, min(2, narrow * width // limits.warp)), 1, held=False)  # it needs the least


def _accesses(limits: Limits) -> list[int]:
    """Returns elements of a thread in a block of rows side by side, up to two of the widest accesses, most first."""
    problem = limits.problem
    return powers(max(problem.vector, WORD_BYTES // limits.element), 2 * problem.widest)[::-1]


def _in_registers(limits: Limits, rows: int) -> Iterator[Tiling]:
    """Yields programs that hold rows: blocks of one access of each thread, which are faster at equal cost, or whole rows."""
    problem = limits.problem
    sizes = _accesses(limits) if problem.across else [problem.vector, rows * next_power_of_2(problem.width)]
    for num_warps, size in product(limits.warps, sizes):
        yield from _tiling(limits, rows, num_warps, size)


def _split(limits: Limits, rows: int) -> Iterator[Tiling]:
    """Yields programs that share rows and hold a split, by blocks per split: few first, which need fewer registers."""
    problem = limits.problem
    if not limits.exchanges or not _is_long(limits, rows) or rows > limits.rows_in(limits.line):
        return
    sizes = [problem.vector, 2 * problem.vector]
    if problem.across:
        sizes = _accesses(limits)[1::-1]
    elif problem.pairs:  # no programs wait for one another while blocks are read
        sizes = [min(problem.vector, VECTOR_BYTES // WORD_BYTES), problem.vector]
    counts = sorted(count for odd in (1, 3, 5) for count in powers(odd, MAX_BLOCKS // 2 - 1))  # 1 to 6, 8, 10, ...
    warps = limits.warps if problem.across else limits.warps[:-2] or limits.warps
    for num_warps, size, count in product(warps, sizes, counts):
        splits = -(-problem.width // (max(1, size * num_warps * limits.warp // rows) * count))
        if 1 < splits <= MAX_SPLITS:
            yield from (tiling for tiling in _tiling(limits, rows, num_warps, size, splits) if tiling.is_shared)


def _two_pass(limits: Limits, rows: int, is_held: bool) -> Iterator[Tiling]:
    """Yields tiles of which rows, or splits of long ones, are read twice; few if registers may hold them."""
    problem = limits.problem
    sizes = _accesses(limits)[:1] if problem.across else [2 * problem.vector, problem.vector]
    if problem.vector > 1 and not problem.stores and not problem.across:
        sizes = [FEW * problem.vector, FEW // 2 * problem.vector]  # a row is read once, with several loads of a thread at once
    in_two_launches = limits.splits_in_two_launches and not problem.across
    counts = [] if is_held and (problem.log_probs is None or problem.unaligned) else [1]
    if _is_long(limits, rows) and (in_two_launches or (limits.exchanges and not (is_held and rows == 1))):
        counts += powers(2, MAX_SPLITS)
    for num_warps, size, count in product(limits.warps[2:] or limits.warps, sizes, counts):
        yield from _tiling(limits, rows, num_warps, size, count, held=False)


def _is_long(limits: Limits, rows: int) -> bool:
    """True if programs may share rows: they have an access of every thread, or more elements than registers."""
    problem = limits.problem
    if problem.across:
        return not problem.scattered and 2 * rows * problem.width * limits.loads > limits.registers
    return problem.width >= limits.max_threads * problem.vector


def _tiling(limits: Limits, rows: int, num_warps: int, per_thread: int, splits: int = 1, held: bool = True) -> Iterator[Tiling]:
    """Yields the tiling of blocks of so many elements a thread, or as wide as a row or split, unless it is left out."""
    problem, threads = limits.problem, num_warps * limits.warp
    split = -(-problem.width // splits)
    width = max(1, min(per_thread * threads // rows, next_power_of_2(split)))
    blocks = -(-split // width)
    cols = blocks * width
    splits = -(-problem.width // cols)
    in_two, n_blocks = splits > 1 and not limits.exchanges, blocks if held or splits > 1 else 1
    tiling = Tiling(rows, width, num_warps, 1, splits, blocks=n_blocks, held=held, walk=False, two_launches=in_two)
    elements, programs = rows * cols * limits.loads, problem.tiles(rows) * splits
    registers = min(limits.registers, threads * limits.registers_per_thread)
    scalar = held and not problem.across and width * limits.element <= VECTOR_BYTES
    idle = programs * 2 < limits.multiprocessors or programs * threads >= limits.multiprocessors * limits.resident_threads
    one_warp = splits > 1 and held and num_warps == 1 and not problem.across
    reasons = {
        "blocks narrower than a vector": width < problem.vector and not problem.across,
        "more elements than registers": 2 * rows * tiling.block_cols * limits.loads > registers,
        "blocks that compile for minutes": held and blocks > MAX_BLOCKS,
        "narrow two-pass blocks": not held and rows * width < MIN_TWO_PASS,
        "idle multiprocessors or late programs": splits > 1 and limits.exchanges and not held and idle,
        "idle threads": num_warps > 1 and rows * min(cols, problem.width) < threads,
        "splits of one warp": one_warp and programs > MAX_OF_ONE_WARP * limits.multiprocessors,
        "splits of few elements": splits > 1 and elements < 2 * FEW * threads,
        "many narrow loads": scalar and (blocks > MAX_SCALAR_BLOCKS or elements > FEW * problem.vector * threads),
    }
    reason = next((reason for reason, holds in reasons.items() if holds), None)
    if reason:
        limits.left_out[reason] += 1
    else:
        yield tiling


def _of_vector_cores(limits: Limits) -> Iterator[Tiling]:
    """Yields tiles of as many elements as the profile sets, then fewer; longer rows are two-pass."""
    problem, launch = limits.problem, limits.device.profile.launch
    facts = launch.tile_elements, launch.row_elements or launch.tile_elements, launch.stream_elements
    most, longest, stream = (fact.value if fact else 1 for fact in facts)
    cols, neighbours = next_power_of_2(problem.width), next_power_of_2(problem.rows_per_group)
    fair = next_power_of_2(-(-problem.n_rows // limits.multiprocessors))  # each core has a tile
    least, line, in_tile = 1, 1, cols * limits.loads
    if problem.across:
        least, line = (min(neighbours, size // WORD_BYTES) for size in (limits.sector, limits.line))
        in_tile = cols
    largest = min(max(1, most // in_tile), fair, neighbours)
    for rows in reversed(powers(least, max(largest, line))):
        if problem.width * rows <= most if problem.across else problem.n_cols <= longest:
            yield Tiling(rows, cols)
    widest = min(max(1, stream // line), cols)
    for width in reversed(powers(1, widest)):
        if width == widest or width * line >= min(MIN_TWO_PASS, line * problem.n_cols):
            yield Tiling(line, width, held=False)


def powers(least: int, most: int) -> list[int]:
    """Returns `least` times the powers of two, up to `most`; the least one always."""
    return [least << power for power in range(max(1, (most // max(1, least)).bit_length()))]
