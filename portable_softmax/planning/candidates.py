"""Launches that are computed for a problem and a device, the preferred one first; the planner compiles them in this order."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.devices.device import Device
from portable_softmax.planning.beside import beside_launches
from portable_softmax.planning.budget import Budget, Candidate, halves
from portable_softmax.planning.numbers import numbers_of
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, next_power_of_2
from portable_softmax.planning.rows import row_launches

MOST_ELEMENTS = 2**20  # of a tile, in any Triton
MOST_BLOCKS = 40  # of a tile that is held: each is code of its own, and hundreds compile for minutes
NARROWEST_TILE = 1024  # elements; a narrower one of a row that is read twice is not worth compiling


def candidates(problem: Problem, device: Device) -> Iterator[Candidate]:
    """Yields the launches of a problem, as `reading.as_read` returns it, that a kernel can be compiled for."""
    numbers, _ = numbers_of(problem, device)
    budget = Budget(problem, device, numbers)
    given: set[tuple[Tiling, int]] = set()  # neighbouring sizes may end in one launch
    for candidate in _launches(budget):
        for limited in _with_registers(candidate, budget):
            limited = limited._replace(tiling=limited.tiling.of_folded(problem.folded, problem.n_cols))
            tiling = limited.tiling
            is_new = (tiling, limited.spilled_bytes) not in given
            if is_new and is_possible(problem, tiling):
                given.add((tiling, limited.spilled_bytes))
                yield limited


def _launches(budget: Budget) -> Iterator[Candidate]:
    if not budget.device.hardware.warp_size:
        yield from _without_warps(budget)
        return
    yield from row_launches(budget) if budget.problem.layout == "rows" else beside_launches(budget)
    yield from streamed_rows(budget)


def is_possible(problem: Problem, tiling: Tiling) -> bool:
    """Tells whether there is a kernel for it: sharded rows go tile by tile, whatever that is called; pairs are read once."""
    if tiling.elements > MOST_ELEMENTS or (tiling.held and tiling.blocks > MOST_BLOCKS):
        return False
    if problem.step:
        return not tiling.is_shared and tiling.blocks == 1
    return tiling.strategy == "tile" or not problem.paired


def _with_registers(candidate: Candidate, budget: Budget) -> Iterator[Candidate]:
    """Yields the candidate, once for each number of registers a thread where the compiler has a few to choose from."""
    sizes = budget.numbers.registers
    if not sizes:
        yield candidate
        return
    for size in sizes:  # only the largest may spill: otherwise the next one is there
        spilled = candidate.spilled_bytes if size == max(sizes) else 0
        yield candidate._replace(tiling=replace(candidate.tiling, max_registers=size), spilled_bytes=spilled)


def streamed_rows(budget: Budget) -> Iterator[Candidate]:
    """Yields tiles of a split of a row, which is read twice: by the largest program, then narrower ones."""
    problem, numbers = budget.problem, budget.numbers
    rows = 1 if problem.layout == "rows" else min(budget.most_rows, budget.line)
    operands = budget.operands if problem.layout != "rows" and not problem.step else 1  # neighbours have an address each too
    per_thread = numbers.elements_per_thread // (2 * operands)
    widest = budget.most_threads * per_thread // {"reduce": 4, "map": 2, None: 1}[problem.step]
    for cols in _ever_narrower(widest, rows, problem):
        warps = budget.warps(rows * cols * problem.registers_per_element, per_thread // (2 if problem.step == "map" else 1))
        for each in sorted({warps, min(2 * warps, budget.most_threads // budget.warp)}):
            yield Candidate(Tiling(rows, cols, each, 1, held=False), 0, f"{per_thread} elements for each thread")


def _ever_narrower(elements: int, rows: int, problem: Problem) -> Iterator[int]:
    """Yields columns of a tile of so many elements, at most those of a row, and then half as many each time."""
    cols = min(max(1, elements // (problem.registers_per_element * rows)), next_power_of_2(problem.width))
    yield cols
    yield from halves(cols // 2, -(-max(1, min(NARROWEST_TILE, rows * problem.n_cols)) // rows))


def _without_warps(budget: Budget) -> Iterator[Candidate]:
    """Yields tiles for cores of vectors: of as many elements as the profile gives, then fewer; rows that are longer stream."""
    problem, numbers = budget.problem, budget.numbers
    cols, neighbours = next_power_of_2(problem.width), budget.most_rows
    most, per_element = numbers.tile_elements or 1, problem.registers_per_element
    rows = budget.rows(most, cols * per_element * (1 if problem.across else budget.operands))
    least = 1
    if problem.layout != "rows":
        least, rows = min(neighbours, budget.sector), min(neighbours, max(rows, budget.line))
    while problem.n_cols <= most and rows >= least:
        if problem.layout == "rows" or rows * problem.width <= most // per_element:
            yield Candidate(Tiling(rows, cols), 0, f"a tile has at most {most} elements")
        rows //= 2
    rows = 1 if problem.layout == "rows" else min(neighbours, budget.line)
    for narrower in _ever_narrower(numbers.stream_elements or 1, rows, problem):
        yield Candidate(Tiling(rows, narrower, held=False), 0, f"a row that is read twice has tiles of {narrower} columns")
