"""Launches of a problem on a grid: powers of two of rows, warps and columns, and some more of blocks, held or read twice.

There is no order of preference among them: what one is worth is its cost.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import MOST_SPLITS, WORD_BYTES, Budget
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, Problem, next_power_of_2

MOST_ELEMENTS = 2**20  # of a tile, in any Triton
MOST_BLOCKS = 40  # of a tile that is held: each is code of its own, and hundreds compile for minutes
MOST_SHARED_BLOCKS = 32  # that a program of a shared row holds
LEAST_SHARED = 16  # elements that each thread of programs that share rows has: all launches near the fastest
NARROWEST_TILE = 1024  # elements; narrower ones of rows that are read twice add up more, and round more
NARROW_WARPS = 4  # of a program of such a tile


class Place(NamedTuple):
    """A place of the grid: rows of a tile, warps and elements of a block for each thread; splits of a row, held or not."""

    rows: int
    warps: int
    each: int
    splits: int
    held: bool


def grid(problem: Problem, device: Device) -> list[Tiling]:
    """Returns the launches of a problem that is read in one way, each once."""
    budget = Budget(problem, device)
    sizes = device.profile.launch.registers
    found = _with_warps(budget) if device.hardware.warp_size else _of_vector_cores(budget)
    possible = [each for each in dict.fromkeys(found) if is_possible(each)]
    return [replace(each, max_registers=size) for each in possible for size in sizes.value] if sizes else possible


def is_possible(tiling: Tiling) -> bool:
    """Tells whether there is a kernel for it."""
    return tiling.elements <= MOST_ELEMENTS and not (tiling.held and tiling.blocks > MOST_BLOCKS)


def _with_warps(budget: Budget) -> Iterator[Tiling]:
    problem, beside = budget.problem, budget.problem.across
    warps = powers(1, budget.most_threads // budget.warp)
    anywhere = not beside and (problem.vector == 1 or problem.unaligned)  # where rows start: a thread takes one access of each
    each = powers(problem.vector, 2 * problem.widest)
    for rows in _rows(budget):
        tile = rows * problem.width if beside or rows == 1 else 0
        is_long = tile >= budget.most_threads * problem.vector  # an access for each thread there may be
        is_shared = is_long and budget.shares
        whole = [] if beside else [rows * next_power_of_2(problem.width)]  # one block, if one thread held it
        blocks = (
            [problem.vector, *whole] if anywhere else [*whole, *each[::-1]]
        )  # the first of those that cost the same is taken
        places = [*product([rows], warps, blocks, [1], [True])]
        if is_shared:
            places += _shared(budget, rows, warps, [problem.vector] if anywhere else each)
        if (beside and is_long) or 2 * tile * budget.operands > budget.registers:
            splits = powers(1, MOST_SPLITS) if is_shared else [1]
            places += product([rows], warps, each[::-1], splits, [False])
        yield from (tiling for place in places if (tiling := _tiling(budget, Place(*place))))
        if is_long and rows == 1 and budget.splits_in_two_launches:
            yield from _two_launches(budget, warps, [problem.vector] if anywhere else each)
    yield _smallest(budget)


def _shared(budget: Budget, rows: int, warps: list[int], each: list[int]) -> Iterator[Place]:
    """Yields places of programs that share rows, by blocks that each holds: small ones first, which need fewer registers."""
    sizes = dict.fromkeys([min(each[0], VECTOR_BYTES // WORD_BYTES), *each])
    counts = sorted([*powers(1, MOST_SHARED_BLOCKS), *powers(3, MOST_SHARED_BLOCKS)])
    for num_warps, size, blocks in product(warps, sizes, counts):
        cols = max(1, size * num_warps * budget.warp // rows) * blocks
        splits = -(-budget.problem.width // cols)
        if 1 < splits <= MOST_SPLITS:
            yield Place(rows, num_warps, size, splits, held=True)


def _two_launches(budget: Budget, warps: list[int], each: list[int]) -> Iterator[Tiling]:
    """Yields splits of rows whose statistics one launch computes for another."""
    for num_warps, size, count in product(warps, each, powers(2, MOST_SPLITS)):
        width, split = size * num_warps * budget.warp, -(-budget.problem.width // count)
        blocks = -(-split // width)
        splits = -(-budget.problem.width // (blocks * width))
        if width >= NARROWEST_TILE and splits > 1 and width < 2 * split:
            yield Tiling(1, width, num_warps, 1, splits, blocks=blocks, held=False, two_launches=True)


def _smallest(budget: Budget) -> Tiling:
    """Returns the launch that needs the least: it reads rows twice, by small tiles; so no problem is without a launch."""
    rows = _rows(budget)[0]
    width = min(max(1, NARROWEST_TILE // rows), next_power_of_2(budget.problem.width))
    return Tiling(rows, width, max(1, min(NARROW_WARPS, rows * width // budget.warp)), 1, held=False)


def _rows(budget: Budget) -> list[int]:
    """Returns the rows that a tile may have: from one, or the neighbours of a sector, to as many as there are registers for."""
    problem = budget.problem
    if not problem.across:
        fit = budget.most_threads * problem.vector // next_power_of_2(problem.width)
        return powers(1, min(fit, next_power_of_2(-(-problem.n_rows // budget.multiprocessors))))
    word = max(1, WORD_BYTES // problem.element_bytes)
    return powers(min(budget.most_rows, word * budget.sector), min(budget.most_rows, 2 * word * budget.line))


def _tiling(budget: Budget, place: Place) -> Tiling | None:
    """Returns the tiling of blocks of so many elements a thread, or of one of a row or split where it is as wide.

    None if nothing is gained by it, or its threads have fewer registers.
    """
    problem, threads, (rows, warps, each, splits, held) = budget.problem, place.warps * budget.warp, place
    width, split = each * threads // rows, -(-problem.width // splits)
    if width < problem.vector and not problem.across:
        return None
    width = max(1, min(width, next_power_of_2(split)))
    blocks = -(-split // width)
    cols = blocks * width
    splits = -(-problem.width // cols)
    elements = rows * (cols if held else width)
    if 2 * elements * budget.operands > _registers(budget, threads):
        return None
    if splits > 1 and rows * cols * budget.operands < LEAST_SHARED * threads:
        return None  # programs would exchange for little
    if not held and elements < NARROWEST_TILE:
        return None
    if not held and splits > 1 and (blocks == 1 or _are_enough(budget, place)):
        return None  # it would be read once more, or be exchanged, for nothing
    if warps > 1 and rows * min(cols, problem.width) < threads:
        return None  # some threads would have nothing
    return Tiling(rows, width, warps, 1, splits, blocks=blocks, held=held)


def _registers(budget: Budget, threads: int) -> int:
    """Returns the registers of so many threads, if they are a program that is alone on its multiprocessor."""
    return min(budget.registers, threads * (budget.device.hardware.max_registers_per_thread or budget.registers))


def _are_enough(budget: Budget, place: Place) -> bool:
    """Tells whether half as many splits give work to all warps that the device has at once."""
    warps = budget.problem.tiles(place.rows) * place.splits * place.warps // 2
    return warps >= budget.multiprocessors * (budget.device.hardware.max_warps_per_multiprocessor or 1)


def _of_vector_cores(budget: Budget) -> Iterator[Tiling]:
    """Yields tiles of as many elements as the profile gives, then fewer; rows that are longer are read twice."""
    problem, launch, beside = budget.problem, budget.device.profile.launch, budget.problem.across
    most = launch.tile_elements.value if launch.tile_elements else 1
    cols, neighbours = next_power_of_2(problem.width), budget.most_rows
    fair = next_power_of_2(-(-problem.n_rows // budget.multiprocessors))  # each core has a tile
    rows = max(1, most // (cols * (1 if beside else budget.operands)))
    largest = min(1 << rows.bit_length() - 1, fair, neighbours)
    least, line = (min(neighbours, each) if beside else 1 for each in (budget.sector, budget.line))
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
