"""Candidates of a problem: powers of two of rows, warps and columns, some numbers of blocks, in registers, split or two-pass.

There is no order of preference among them: they are compared by cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import WORD_BYTES, Limits, limits_of
from portable_softmax.planning.problem import VECTOR_BYTES, Problem, next_power_of_2
from portable_softmax.planning.tiling import Tiling

MAX_SPLITS = 64  # per row: a program reads two words of every split
BLOCKS = 1, 2, 3, 4, 5, 6, 8, 10, 12, 16  # of a split in registers, before splits are made even: 7 occurs too
MAX_BLOCKS = 40  # of a tile in registers: they are unrolled, and hundreds compile for minutes
MIN_TWO_PASS = 1024  # elements of a block; narrower ones add up more, and round more
REGISTERS = 24  # of a thread for addresses and numbers of a row: 16 to 48 in compiled launches of sm_90
FEW = 8  # elements of a thread, at most: too few for the largest programs, and for blocks of a two-pass tile
AS_LOADED = 48  # elements of a thread, at least, that are kept as they were loaded: 32 are 3 to 10% slower in one wave
MAX_OF_ONE_WARP = 32  # programs of a multiprocessor that share rows and have one warp: two warps exchange half as much
MAX_OF_WORDS = 2  # warps that exchange words of bits block by block: four take 2 to 5% longer on an H200, few or all bits set
MAX_SCALAR_BLOCKS = 5  # of at most one access of a row: more hit lines on their way


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses, at least: a register per element, or half, and a few; or as the vendor does."""
    lines = tiling.tile_rows, tiling.block_cols
    if problem.across:
        lines = lines[::-1]
    operations = problem.operations
    if problem.n_cols % tiling.width:
        operations |= {"edge"}  # a row ends within a block
    if modelled := device.vendor.model(lines, DTYPE_BYTES[problem.x_dtype], operations, device):
        return modelled
    threads = tiling.warps * limits_of(device).warp
    elements = -(-tiling.tile_rows * tiling.block_cols * problem.loads // threads)
    if holds_as_loaded(problem, tiling, device):
        elements //= 2
    wanted = REGISTERS + elements
    registers = min(available(wanted, threads, device), tiling.max_registers or wanted)
    return KernelResources(tiling.num_warps, registers, spilled_bytes_per_thread=WORD_BYTES * (wanted - registers))


def holds_as_loaded(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """True if a tile of many elements of 16 bits, not of scores, stays in registers as it was loaded, two to a register."""
    threads = tiling.warps * limits_of(device).warp
    pairs = {DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]} == {2} and problem.vector > 1
    pairs = pairs and tiling.tile_rows * tiling.width >= 2 * threads and bool(device.vendor.vector_register)
    many = tiling.held and not tiling.two_launches and tiling.tile_rows * tiling.split_cols >= AS_LOADED * threads
    return pairs and many and (problem.backward or not problem.scores)


def available(wanted: int, threads: int, device: Device) -> int:
    """Returns the registers that a thread has of so many, in programs of so many threads."""
    hardware = device.hardware
    limits = hardware.max_registers_per_thread or wanted, (hardware.registers_per_multiprocessor or wanted * threads) // threads
    return min(wanted, *limits)


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once per way in which the device can read its rows, element by element first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts; nor are those of samples, where groups of columns would.
    """
    line, vendor = limits_of(device).line, device.vendor
    if problem.across:
        if problem.numbered or not vendor.scattered_rows or problem.inner * WORD_BYTES >= line:
            return [problem]
        return [problem, replace(problem, scattered=True)]
    long = problem.n_cols * problem.element >= 2 * line  # the ends of shorter rows cost too much
    vectors = long and problem.alike and problem.vector < problem.widest and problem.aligned and vendor.aligned_access
    if not vectors or problem.batch_invariant or problem.is_sample:
        return [problem]
    return [problem, replace(problem, vector=problem.widest, unaligned=True)]


def candidates(problem: Problem, device: Device) -> list[Tiling]:
    """Returns the tilings of a problem that is read in one way."""
    sizes, limits = device.profile.launch.registers, limits_of(device)
    if not device.hardware.warp_size:
        return list(dict.fromkeys(_of_vector_cores(problem, device)))
    kept = [tiling for tiling in dict.fromkeys(_of_warps(problem, device)) if not _excluded(problem, tiling, limits)]
    if sizes:
        return [tiling._replace(max_registers=size) for tiling in kept for size in sizes.value]
    return kept


def _of_warps(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of all numbers of rows; of rows side by side, from a sector of memory wide to two cache lines.

    Blocks have one access of each thread, which are faster at equal cost, or a whole row; of rows side by side, up to two of
    the widest accesses.
    """
    limits, vector, width = limits_of(device), problem.vector, next_power_of_2(problem.width)
    can_split = bool(device.profile.launch.polls) and not problem.in_place  # a late program reads what others may overwrite
    exchanges = can_split and not problem.batch_invariant  # a late program may be waited for or not, and bits differ
    in_two_launches = can_split and problem.batch_invariant and problem.pairs > 0
    bits = problem.log_probs is not None and problem.scores.mask == "bits"
    slow = bits or problem.is_sample or (problem.log_probs and problem.unaligned)  # 5 to 29% longer block by block in splits
    in_steps = exchanges and not slow
    narrow, wide, is_long = 1, limits.max_threads * vector // width, problem.width >= limits.max_threads * vector
    held = [vector, limits.max_threads * width]  # elements of a thread in a block
    split, two_pass = [vector], powers(vector, FEW * vector)
    if problem.stores:  # else a thread has groups of log-probabilities
        split = powers(min(vector, VECTOR_BYTES // WORD_BYTES), vector)
    if problem.across:
        neighbours, is_long = next_power_of_2(problem.rows_per_group), not problem.scattered
        narrow, wide = (min(neighbours, size // problem.element) for size in (limits.sector, 2 * limits.line))
        held = powers(max(vector, WORD_BYTES // problem.element), 2 * problem.widest)[::-1]
        split, two_pass = held[1::-1], held[:1]
    if problem.scattered:
        narrow = max(narrow, next_power_of_2(problem.inner + 1))  # of several matrices
    splits_held, splits_read = list[int](), [1]  # blocks of a split in registers; splits that are read block by block
    if is_long and exchanges:
        splits_held = [*BLOCKS]
    if is_long and (in_steps or in_two_launches):
        splits_read = powers(1, MAX_SPLITS)
    for rows, num_warps in product(powers(narrow, wide), powers(1, limits.max_threads // limits.warp)):
        per_row = num_warps * limits.warp / rows  # threads
        yield from (_tiling(problem, rows, num_warps, int(size * per_row)) for size in held)
        for size, blocks in product(split, splits_held):
            columns = int(size * per_row)
            if 1 < (splits := -(-problem.width // (max(1, columns) * blocks))) <= MAX_SPLITS:
                yield _tiling(problem, rows, num_warps, columns, splits)
        for size, splits in product(two_pass, () if bits and num_warps > MAX_OF_WORDS else splits_read):
            yield _tiling(problem, rows, num_warps, int(size * per_row), splits, held=False, two_launches=in_two_launches)


def _tiling(
    problem: Problem, rows: int, num_warps: int, columns: int, splits: int = 1, held: bool = True, two_launches: bool = False
) -> Tiling:
    """Returns the tiling of blocks of so many columns, or as wide as a row or split."""
    split = -(-problem.width // splits)
    width = min(max(1 if problem.across else problem.vector, columns), next_power_of_2(split))
    blocks = -(-split // width)
    splits = -(-problem.width // (blocks * width))
    if problem.pairs == 0:  # a kernel that exchanges nothing is the same whether it holds several blocks or not
        held = splits == blocks == 1
    if splits == 1 and not held:  # one program reads whole rows block by block
        return Tiling(rows, width, num_warps, 1, held=False, walk=False)
    return Tiling(rows, width, num_warps, 1, splits, blocks=blocks, held=held, walk=False, two_launches=two_launches)


def _excluded(problem: Problem, tiling: Tiling, limits: Limits) -> bool:
    """True if a tiling is no candidate: of too few elements, too many registers, or too many loads."""
    threads, rows, held = tiling.warps * limits.warp, tiling.tile_rows, tiling.held
    elements, most = rows * tiling.split_cols * problem.loads, min(limits.registers, threads * limits.registers_per_thread)
    is_scalar = held and not problem.across and tiling.width * problem.element <= VECTOR_BYTES
    many = problem.tiles(rows) * tiling.splits > MAX_OF_ONE_WARP * limits.multiprocessors
    return (
        2 * rows * tiling.block_cols * problem.loads > most
        or (held and tiling.blocks > MAX_BLOCKS)
        or (not held and rows * tiling.width < MIN_TWO_PASS)
        or (tiling.is_shared and elements < 2 * FEW * threads)
        or (tiling.is_shared and held and tiling.warps == 1 and many)
        or (tiling.warps > 1 and rows * min(tiling.split_cols, problem.width) < threads)
        or (is_scalar and (tiling.blocks > MAX_SCALAR_BLOCKS or elements > FEW * problem.vector * threads))
    )


def _of_vector_cores(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of as many elements as the profile sets, then fewer; longer rows are two-pass."""
    launch, limits = device.profile.launch, limits_of(device)
    facts = launch.tile_elements, launch.row_elements or launch.tile_elements, launch.stream_elements
    most, longest, stream = (getattr(fact, "value", 1) for fact in facts)
    cols, neighbours = next_power_of_2(problem.width), next_power_of_2(problem.rows_per_group)
    fair = next_power_of_2(-(-problem.n_rows // limits.multiprocessors))  # each core has a tile
    least, line, in_tile = 1, 1, cols * problem.loads
    if problem.across:
        least, line = (min(neighbours, size // WORD_BYTES) for size in (limits.sector, limits.line))
        in_tile = cols
    largest = min(max(1, most // in_tile), fair, neighbours)
    fits = problem.n_cols <= longest
    for rows in reversed(powers(least, max(largest, line))):
        if problem.across:
            fits = problem.width * rows <= most
        if fits:
            yield Tiling(rows, cols)
    widest = min(max(1, stream // line), cols)
    for width in reversed(powers(1, widest)):
        if width == widest or width * line >= min(MIN_TWO_PASS, line * problem.n_cols):
            yield Tiling(line, width, held=False)


def powers(least: int, most: int) -> list[int]:
    """Returns `least` times the powers of two, up to `most`; the least one always."""
    return [least << power for power in range(max(1, (most // max(1, least)).bit_length()))]
