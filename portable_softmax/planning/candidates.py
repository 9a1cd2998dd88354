"""Candidates of a problem: powers of two of rows, warps and columns, some numbers of blocks, in registers, split or two-pass.

There is no order of preference among them: they are compared by cost.
"""

import functools
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from portable_softmax.devices.backends.base import DTYPE_BYTES, KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.cost import WORD_BYTES, limits_of
from portable_softmax.planning.problem import VECTOR_BYTES, Problem, next_power_of_2
from portable_softmax.planning.tiling import Tiling

MAX_SPLITS = 64  # per row: a program reads two words of every split
MAX_BLOCKS = 40  # of a row in registers: they are unrolled, and hundreds compile for minutes
MAX_SPLIT_BLOCKS = 16  # of a split in registers: 17 and 20 take 1 to 2% longer on an H200
MIN_TWO_PASS = 1024  # elements of a block; narrower ones add up more, and round more
REGISTERS = 24  # of a thread for addresses and numbers of a row: 16 to 48 in compiled launches of sm_90
FEW = 8  # elements of a thread, at most: too few for the largest programs, and for blocks of a two-pass tile
AS_LOADED = 48  # elements of a thread, at least, that are kept as they were loaded: 32 are 3 to 10% slower in one wave
MAX_OF_ONE_WARP = 32  # programs of a multiprocessor that share rows and have one warp: two warps exchange half as much
MAX_OF_WORDS = 2  # warps that exchange words of bits block by block: four take 2 to 5% longer on an H200, few or all bits set
MAX_SCALAR_BLOCKS = 5  # of at most one access of a row: more hit lines on their way
resources_of = functools.lru_cache(KernelResources)  # many candidates use as much


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses, at least: a register per element, or half, and a few; or as the vendor does."""
    lines = tiling.tile_rows, tiling.cols_at_once
    if problem.across:
        lines = lines[::-1]
    operations = problem.operations
    if problem.n_cols % tiling.width:
        operations |= {"edge"}  # a row ends within a block
    if modelled := device.vendor.model(lines, DTYPE_BYTES[problem.x_dtype], operations, device):
        return modelled
    threads = tiling.warps * limits_of(device).warp
    elements = -(-tiling.tile_rows * tiling.cols_at_once * problem.loads // threads)
    if holds_as_loaded(problem, tiling, device):
        elements //= 2
    wanted = REGISTERS + elements
    registers = min(available(wanted, threads, device), tiling.max_registers or wanted)
    spilled = WORD_BYTES * (wanted - registers)
    return resources_of(tiling.num_warps, registers, spilled_bytes_per_thread=spilled, estimated=True)


def holds_as_loaded(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """True if a tile of many elements of 16 bits, not of scores, stays in registers as it was loaded, two to a register."""
    threads = tiling.warps * limits_of(device).warp
    pairs = {DTYPE_BYTES[problem.x_dtype], DTYPE_BYTES[problem.y_dtype]} == {2} and problem.vector > 1
    pairs = pairs and tiling.tile_rows * tiling.width >= 2 * threads and bool(device.vendor.vector_register)
    many = tiling.in_registers and not tiling.two_launches and tiling.tile_rows * tiling.split_cols >= AS_LOADED * threads
    return pairs and many and (problem.backward or not problem.scores)


def available(wanted: int, threads: int, device: Device) -> int:
    """Returns the registers that a thread has of so many, in programs of so many threads."""
    hardware = device.hardware
    limits = hardware.max_registers_per_thread or wanted, (hardware.registers_per_multiprocessor or wanted * threads) // threads
    return min(wanted, *limits)


def readings(problem: Problem, device: Device) -> list[Problem]:
    """Returns the problem once per way in which the device can read its rows, in vectors that divide all strides first.

    Rows of a batch-invariant problem are not unaligned: the order in which their elements are added up would depend on where
    one starts; nor are those of samples, where groups of columns would.
    """
    line, vendor, ways = limits_of(device).line, device.vendor, [problem]
    if problem.across and not problem.numbered and vendor.scattered_rows and problem.inner * WORD_BYTES < line:
        ways.append(replace(problem, scattered=True))
    long = not problem.across and problem.n_cols * problem.element >= 2 * line  # the ends of shorter rows cost too much
    vectors = long and problem.alike and problem.vector < problem.widest and problem.starts_aligned and vendor.aligned_access
    if vectors and not problem.batch_invariant and not problem.is_sample:
        ways.append(replace(problem, vector=problem.widest, whole_vectors=True))
    return ways


def candidates(problem: Problem, device: Device) -> list[Tiling]:
    """Returns the tilings of a problem that is read in one way."""
    sizes = device.profile.launch.registers
    if not device.hardware.warp_size:
        return list(dict.fromkeys(_of_vector_cores(problem, device)))
    kept = [tiling for tiling in dict.fromkeys(_of_warps(problem, device)) if not _is_excluded(problem, tiling, device)]
    if sizes:
        return [tiling._replace(max_registers=size) for tiling in kept for size in sizes.value]
    return kept


def _of_warps(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of all numbers of rows; of rows side by side, from a sector of memory wide to two cache lines.

    Blocks in registers have one access of each thread, which are faster at equal cost, or a whole row; others eight or four; of
    rows side by side, up to two of the widest accesses.
    """
    limits, vector, width = limits_of(device), problem.vector, next_power_of_2(problem.width)
    narrow, wide, is_long = 1, limits.max_threads * vector // width, problem.width >= limits.max_threads * vector
    least, most = vector, FEW * vector  # elements of a thread in a block
    if problem.stores:  # else a thread has groups of log-probabilities
        least = min(vector, VECTOR_BYTES // WORD_BYTES)
    if problem.across:
        neighbours, is_long = next_power_of_2(problem.rows_per_group), not problem.scattered
        narrow, wide = (min(neighbours, size // problem.element) for size in (limits.sector, 2 * limits.line))
        least, most = vector, 2 * problem.widest
    sizes = powers(least, most)[::-1]  # the largest first
    narrow_sizes = [size for size in sizes if size <= vector or problem.across]  # of blocks in registers
    whole = limits.max_threads * width
    can_split = is_long and bool(device.profile.launch.polls) and not problem.overwrites  # a late program reads a row again
    in_two_launches = can_split and problem.batch_invariant and problem.pairs > 0
    bits = problem.log_probs is not None and problem.scores.mask == "bits"
    # Splits that are read block by block take 5 to 29% longer.
    slow = bits or problem.is_sample or (problem.log_probs and problem.whole_vectors)
    block_counts, split_counts = range(0), [1]  # of a split in registers; of rows that are read block by block
    if can_split and not problem.batch_invariant:  # whether a late program is waited for changes bits
        block_counts = range(1, MAX_SPLIT_BLOCKS + 1)
    if in_two_launches or (block_counts and not slow):
        split_counts = powers(1, MAX_SPLITS)
    for rows, num_warps in product(powers(narrow, wide), powers(1, limits.max_threads // limits.warp)):
        per_row = num_warps * limits.warp / rows  # threads
        yield from (_tiling(problem, rows, num_warps, int(size * per_row)) for size in (*narrow_sizes, whole) if size >= vector)
        for columns in (max(1, int(size * per_row)) for size in narrow_sizes):
            numbers = {-(-problem.width // (columns * blocks)) for blocks in block_counts}
            yield from (_tiling(problem, rows, num_warps, columns, splits) for splits in numbers if 1 < splits <= MAX_SPLITS)
        for size, splits in product(sizes[:2], () if bits and num_warps > MAX_OF_WORDS else split_counts):
            columns = int(size * per_row)
            yield _tiling(problem, rows, num_warps, columns, splits, in_registers=False, two_launches=in_two_launches)


def _tiling(
    problem: Problem, rows: int, num_warps: int, columns: int, splits: int = 1, in_registers: bool = True, **more: bool
) -> Tiling:
    """Returns the tiling of blocks of so many columns, or as wide as a row or split."""
    split = -(-problem.width // splits)
    width = min(max(1 if problem.across else problem.vector, columns), next_power_of_2(split))
    blocks = -(-split // width)
    splits = -(-problem.width // (blocks * width))
    if problem.pairs == 0:  # its kernel reads block by block; the only block of a row counts as in registers
        in_registers = splits == blocks == 1
    if splits == 1 and not in_registers:  # one program reads whole rows, of any number of blocks
        blocks, more = 1, {}
    return Tiling(rows, width, num_warps, splits, blocks=blocks, in_registers=in_registers, walk=False, **more)


def _is_excluded(problem: Problem, tiling: Tiling, device: Device) -> bool:
    """True if a tiling is no candidate: of too few elements, too many registers, or too many loads."""
    threads, rows = tiling.warps * limits_of(device).warp, tiling.tile_rows
    elements, registers = rows * tiling.split_cols * problem.loads, 2 * rows * tiling.cols_at_once * problem.loads // threads
    is_scalar = not problem.across and tiling.width * problem.element <= VECTOR_BYTES
    is_few = tiling.is_split and elements < 2 * FEW * threads
    is_idle = tiling.warps > 1 and rows * min(tiling.split_cols, problem.width) < threads
    if is_few or is_idle or registers > available(registers, threads, device):
        return True
    if not tiling.in_registers:
        return rows * tiling.width < MIN_TWO_PASS
    many = problem.tiles(rows) * tiling.splits > MAX_OF_ONE_WARP * limits_of(device).multiprocessors
    return (
        tiling.blocks > MAX_BLOCKS
        or (tiling.is_split and tiling.warps == 1 and many)
        or (is_scalar and (tiling.blocks > MAX_SCALAR_BLOCKS or elements > FEW * problem.vector * threads))
    )


def _of_vector_cores(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of as many elements as the profile sets, then fewer; longer rows are two-pass."""
    launch, limits = device.profile.launch, limits_of(device)
    facts = launch.tile_elements, launch.row_elements or launch.tile_elements, launch.stream_elements
    most, longest, stream = (getattr(fact, "value", 1) for fact in facts)
    cols, neighbours = next_power_of_2(problem.width), next_power_of_2(problem.rows_per_group)
    fair = next_power_of_2(-(-problem.n_rows // limits.multiprocessors))  # each core has a tile
    least, line = 1, 1
    if problem.across:
        least, line = (min(neighbours, size // WORD_BYTES) for size in (limits.sector, limits.line))
    largest = min(max(1, most // (cols * problem.loads)), fair, neighbours)
    for rows in reversed(powers(least, max(largest, line))):
        if rows * problem.width <= most or (rows == 1 and problem.n_cols <= longest):
            yield Tiling(rows, cols)
    widest = min(max(1, stream // line), cols)
    for width in reversed(powers(min(widest, max(1, MIN_TWO_PASS // line)), widest)):
        yield Tiling(line, width, in_registers=False)


def powers(least: int, most: int) -> list[int]:
    """Returns `least` times the powers of two, up to `most`; the least one always."""
    return [least << power for power in range(max(1, (most // max(1, least)).bit_length()))]
