"""Launches for rows side by side whose splits are read twice, a block at a time."""

from collections.abc import Iterator

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.planning.budget import MANY_ROWS, Budget, Candidate
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.planning.rows import MOST_SPLITS, WORD_BYTES

# All are of docs/notes/rows_side_by_side.md, an H100; assumed elsewhere.
WIDE = 4  # cache lines of a wide tile
FILLED = 3 / 4  # of its rows, if single elements are read: with fewer, narrower tiles waste less
FEW_SPLITS, NEARLY = 8, 0.8  # splits of tiles that take several waves of programs; the share of all waves that does
FOLDED_NUMBERS = 8  # of other splits that a thread reads where lines are folded
LATE = 12  # times the bytes that a program may spill, where all of them are for neighbours that are late


def is_narrow(budget: Budget) -> bool:
    """Tells whether a tile takes the few rows that lie side by side in one matrix: less than a cache line."""
    return budget.problem.neighbours < budget.line and not budget.problem.scattered


def streamed_splits(budget: Budget) -> Iterator[Candidate]:
    """Yields splits that are read twice, a block at a time: as many as programs are resident, or one where rows are many."""
    problem, scalar = budget.problem, budget.problem.access == "scalar"
    if problem.folded > 1:
        threads, elements = (
            min(budget.most_threads, 2 * budget.twice),
            budget.numbers.elements_per_thread // (2 * budget.operands),
        )
        yield from _streamed(budget, WIDE * budget.line, threads, elements, None)
    if scalar and is_narrow(budget):
        yield from _streamed_lines(budget)
    wide = WIDE * budget.line
    if scalar and not problem.transposed and problem.neighbours >= FILLED * -(-problem.neighbours // wide) * wide:
        yield from _streamed_wide(budget)
    rows = budget.line if problem.transposed else 2 * budget.line
    threads = budget.threads if scalar or problem.transposed else budget.twice
    elements = budget.numbers.elements_per_thread // (4 if scalar else 2)
    yield from _streamed(budget, rows, threads, elements, budget.registers_of(2, budget.twice))


def _streamed_wide(budget: Budget) -> Iterator[Candidate]:
    """Yields splits of several cache lines of single elements, for one large program: more warps for narrow types."""
    problem, numbers = budget.problem, budget.numbers
    threads = min(budget.most_threads, budget.twice * max(1, WORD_BYTES // problem.element_bytes))
    elements = numbers.elements_per_thread // 2 * budget.twice // threads // problem.registers_per_element
    for candidate in _streamed(budget, WIDE * budget.line, threads, elements, None):
        yield candidate._replace(spilled_bytes=LATE * numbers.spilled_bytes)


def _streamed(budget: Budget, most_rows: int, threads: int, elements: int, limit: int | None) -> Iterator[Candidate]:
    """Yields splits by programs of so many threads, with at most `limit` registers each; then with half as many elements.

    Yields none where no program of so many threads fits.
    """
    problem, numbers, device, warps = budget.problem, budget.numbers, budget.device, threads // budget.warp
    rows = min(budget.most_rows, most_rows)
    registers = limit or budget.registers_of(1, threads)
    resident = device.resident(device.vendor.occupancy(KernelResources(warps, registers), device.hardware))
    if not registers or not resident:
        return
    tiles_of_rows = MANY_ROWS if problem.batch_invariant else problem.tiles(rows)
    each_fills = resident // tiles_of_rows or _fullest(tiles_of_rows, resident)
    read = numbers.numbers_per_thread * threads // most_rows
    if problem.folded > 1:
        read = FOLDED_NUMBERS * threads // (rows * problem.folded)
    most = max(1, min(each_fills, read))
    why = (
        f"splits for the {resident} programs of {warps} warps that would be resident if each thread used {registers} registers"
    )
    for each in (elements, elements // 2):
        cols = each * threads // rows
        blocks = -(-problem.width // (most * cols))
        count = -(-problem.width // (blocks * cols))
        tiling = Tiling(rows, cols, warps, 1, count, limit or None, blocks, held=False)
        yield Candidate(tiling, 3 * numbers.spilled_bytes, why)


def _fullest(tiles: int, resident: int) -> int:
    """Returns the fewest splits of each of many tiles with which their waves of resident programs are nearly full."""
    filled = {splits: tiles * splits / (-(-tiles * splits // resident) * resident) for splits in range(1, FEW_SPLITS + 1)}
    return next((splits for splits, share in filled.items() if share >= NEARLY), max(filled, key=lambda splits: filled[splits]))


def _streamed_lines(budget: Budget) -> Iterator[Candidate]:
    """Yields splits of the few rows of one matrix: so long that those of all resident programs stay in the first cache."""
    problem = budget.problem
    rows, threads = next_power_of_2(problem.neighbours), budget.threads
    cols = budget.few_elements * threads // rows
    resident = budget.most_threads // threads
    cached = (budget.device.hardware.shared_memory_per_multiprocessor or 0) // resident // (rows * problem.element_bytes)
    blocks = max(1, cached // cols)
    count = -(-problem.width // (blocks * cols))
    why = f"splits of {blocks * cols} columns of {problem.inner} rows stay in a cache for {resident} programs"
    tiling = Tiling(rows, cols, threads // budget.warp, 1, count if count <= MOST_SPLITS else 1, blocks=blocks, held=False)
    yield Candidate(tiling, 3 * budget.numbers.spilled_bytes, why)
