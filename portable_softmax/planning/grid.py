"""Launches of a problem on a grid: powers of two of rows, warps, splits and columns, held or read twice.

There is no order of preference among them: what one is worth is its cost.
"""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.planning.budget import Budget, halves
from portable_softmax.planning.candidates import is_possible
from portable_softmax.planning.cost import cost
from portable_softmax.planning.numbers import load_of, numbers_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, next_power_of_2
from portable_softmax.planning.rows import MOST_SPLITS

OTHER_REGISTERS = 25  # of a thread, beside one for each element; the launches of scripts/sweeps
REGISTER_BYTES = 4


class Place(NamedTuple):
    """A place of the grid: rows of a tile, warps and elements of a block for each thread; splits of a row, held or not."""

    rows: int
    warps: int
    each: int
    splits: int
    held: bool


def grid(problem: Problem, device: Device) -> list[Tiling]:
    """Returns the launches of a problem, as `reading.as_read` returns it, each once; none where programs have no warps."""
    if not device.hardware.warp_size or problem.paired or problem.folded > 1:
        return []
    budget = Budget(problem, device, numbers_of(problem, device)[0])
    return list(dict.fromkeys(tiling for place in _places(budget) for tiling in _tilings(budget, place)))


def _places(budget: Budget) -> Iterator[Place]:
    problem = budget.problem
    warps = powers(1, budget.most_threads // budget.warp)
    each = powers(problem.vector, 2 * problem.widest)
    for rows in _rows(budget):
        beside = problem.layout != "rows"
        tile = rows * problem.width if beside or rows == 1 else 0
        is_long = tile >= budget.most_threads * problem.vector  # an access for each thread there may be
        splits = powers(1, MOST_SPLITS) if is_long and budget.shares and not problem.step else [1]
        held = (True, False) if tile * budget.operands > budget.registers // 2 or (beside and is_long) else (True,)
        yield from map(Place._make, product([rows], warps, each, splits, held))


def _rows(budget: Budget) -> list[int]:
    """Returns the rows that a tile may have: from one, or the neighbours of a sector, to as many as there are registers for."""
    problem = budget.problem
    if problem.layout == "rows":
        fit = max(1, budget.most_threads * problem.vector // next_power_of_2(problem.width))
        return powers(1, min(fit, budget.rows(fit, 1)))
    return powers(min(budget.most_rows, budget.sector), min(budget.most_rows, 2 * budget.line))


def _tilings(budget: Budget, place: Place) -> Iterator[Tiling]:
    """Yields tilings of blocks of so many elements a thread; one block of a row, or split, where it is as wide as that."""
    problem, threads = budget.problem, place.warps * budget.warp
    width = place.each * threads // place.rows
    split = -(-problem.width // place.splits)
    if width < problem.vector and problem.layout == "rows":
        return
    width = max(1, min(width, next_power_of_2(split)))
    blocks = -(-split // width)
    splits = -(-problem.width // (blocks * width))
    tiling = Tiling(place.rows, width, place.warps, 1, splits, blocks=blocks, held=place.held)
    read = tiling.elements * problem.registers_per_element * budget.operands // threads
    if not place.held and splits > 1 and (blocks == 1 or _are_enough(budget, place)):
        return  # it would be read once more, or be exchanged, for nothing
    in_use = place.rows * min(tiling.tile_cols, problem.width) >= threads  # or some threads have nothing
    if in_use and splits == place.splits and read <= budget.registers_of(1, threads) // 2 and is_possible(problem, tiling):
        yield tiling


def _are_enough(budget: Budget, place: Place) -> bool:
    """Tells whether half as many splits give work to all threads that the device has at once."""
    load = load_of(budget.problem, budget.device)
    programs = budget.n_rows * place.splits // (2 * place.rows)
    return load is not None and programs * place.warps * budget.warp * load >= budget.n_rows * budget.problem.n_cols


def estimated(problem: Problem, tiling: Tiling, device: Device) -> KernelResources:
    """Estimates what a program uses: a register for each element, and some; it spills what a thread may not have."""
    operands = 2 if problem.backward else 1
    threads = (tiling.num_warps or 1) * (device.hardware.warp_size or 1)
    wanted = OTHER_REGISTERS + -(-tiling.elements * operands * problem.registers_per_element // threads)
    most = tiling.max_registers or device.hardware.max_registers_per_thread or wanted
    most = min(most, (device.hardware.registers_per_multiprocessor or wanted * threads) // threads)
    spilled = REGISTER_BYTES * max(0, wanted - most)
    return KernelResources(tiling.num_warps, min(wanted, most), spilled_bytes_per_thread=spilled)


def ranked(problem: Problem, device: Device) -> list[tuple[float, Tiling]]:
    """Returns (expected microseconds, launch) of the grid with estimated resources, the fastest first.

    None that programs could not be resident for, and none where the device's numbers are not known.
    """
    found = []
    for tiling in grid(problem, device):
        used = estimated(problem, tiling, device)
        occupancy = device.vendor.occupancy(used, device.hardware)
        if device.resident(occupancy) >= tiling.splits:
            num_programs = problem.tiles(tiling.tile_rows) * tiling.splits
            spilled, resident = used.spilled_bytes_per_thread, occupancy.programs_per_multiprocessor
            terms = cost(problem, tiling, num_programs, resident, device, spilled)
            found += [(terms.total, tiling)] if terms else []
    return sorted(found, key=lambda each: each[0])


def powers(least: int, most: int) -> list[int]:
    """Returns the powers of two, times `least`, up to `most`; the least one always."""
    return [least * each for each in halves(next_power_of_2(max(1, most // least)), 1) if each == 1 or least * each <= most]
