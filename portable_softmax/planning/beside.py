"""Launches for rows that lie side by side, or transposed: tiles of cache lines, and splits that are held or read twice."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.planning.budget import Budget, Candidate, halves
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.planning.read_twice import is_narrow, streamed_splits
from portable_softmax.planning.rows import MOST_SPLITS, WORD_BYTES

MOST_NARROW, MOST_PREFERRED = 16, 32  # splits that are held: with more they are twice as wide, then read twice
HELD_FOLDED = 2  # lines as one of which splits are held: with more the exchange takes too long, docs/notes/rows_side_by_side.md


def beside_launches(budget: Budget) -> Iterator[Candidate]:
    """Yields launches for rows side by side, the preferred one first."""
    yield from tiles(budget)
    if budget.shares:
        for splits in (held_splits, streamed_splits) if _are_held(budget) else (streamed_splits, held_splits):
            yield from splits(budget)


def _are_held(budget: Budget) -> bool:
    """Tells whether splits that are held are preferred to those that are read twice."""
    problem = budget.problem
    if problem.access == "scalar" or problem.folded > HELD_FOLDED:
        return False
    if problem.transposed:
        return not problem.backward
    return problem.element_bytes >= (budget.numbers.held_across or 0) and _held(budget)[1] <= MOST_PREFERRED


def tiles(budget: Budget) -> Iterator[Candidate]:
    """Yields tiles of whole rows: as many as registers hold, then half as many, down to a sector of memory."""
    problem = budget.problem
    of_elements = problem.access == "scalar" and problem.layout == "across"
    least, share, last = _shares(budget)
    fits = False  # once a tile fits it may still spill, and half as many rows may not
    for rows in halves(_rows(budget), min(budget.most_rows, budget.sector)):
        elements = rows * problem.width * problem.registers_per_element
        fits = fits or (rows >= least and elements <= budget.registers * (last if rows == least else share))
        if fits:
            why = f"{rows} rows side by side take {elements} of {budget.registers} registers"
            for tiling, spilled in (_of_elements if of_elements else _of_vectors)(budget, rows):
                yield Candidate(tiling, spilled, why)


def _shares(budget: Budget) -> tuple[int, float, float]:
    """Returns (the fewest rows of a tile, the share of registers that a tile may take, and one of the fewest rows)."""
    problem, share, half = budget.problem, budget.numbers.beside_share, 0.5 / budget.operands
    line = min(budget.most_rows, budget.line)
    if not budget.shares:  # there is nothing else but to read them twice
        return min(budget.most_rows, budget.sector), 0.5, 0.5
    if problem.transposed:
        return line, half, half
    if problem.access == "scalar":  # splits would need an address for each element too
        return line, share, max(share, half)
    return max(1, line // 2), share, share


def _rows(budget: Budget) -> int:
    """Returns the rows of a tile that give each thread its words, but a cache line at least, and no more than there are."""
    problem, numbers = budget.problem, budget.numbers
    if problem.access == "scalar":
        words, row = numbers.words_forward, problem.width
    else:
        packed = problem.element_bytes / WORD_BYTES if problem.access == "vector" else 1
        words, row = numbers.words_backward / 2, max(1, int(next_power_of_2(problem.width) * packed))
    return min(budget.most_rows, max(min(budget.most_rows, budget.line), budget.rows(words * budget.threads, row)))


def _fills(budget: Budget) -> bool:
    """Tells whether the rows of a cache line fill the registers of a large program."""
    line = min(next_power_of_2(budget.problem.neighbours), budget.line)
    elements = line * budget.problem.width * budget.problem.registers_per_element
    return elements > budget.twice * budget.numbers.elements_per_thread * 7 // 8


def _of_elements(budget: Budget, rows: int) -> Iterator[tuple[Tiling, int]]:
    """Yields tiles of single elements, which need an address each: blocks of one a thread, of more where there are many."""
    problem, numbers, fills = budget.problem, budget.numbers, _fills(budget)
    wanted = next_power_of_2(-(-rows * problem.width // (numbers.elements_per_thread // 2)))
    threads = max(budget.threads, min(budget.twice, wanted))
    if fills and not problem.backward:
        threads = min(2 * budget.twice, budget.most_threads)
    tiling = Tiling(rows, next_power_of_2(problem.width), threads // budget.warp, 1)
    if blocks := budget.in_blocks(tiling, budget.few_elements if is_narrow(budget) else budget.block if fills else 1):
        yield blocks, numbers.spilled_bytes if fills else 0
    yield tiling, 0


def _of_vectors(budget: Budget, rows: int) -> Iterator[tuple[Tiling, int]]:
    """Yields tiles in blocks of 8 bytes a thread; in wider ones, with registers for two programs, where they fill a program."""
    problem, numbers, fills = budget.problem, budget.numbers, _fills(budget)
    cols = next_power_of_2(problem.width)
    threads = budget.warps(rows * cols * problem.registers_per_element, numbers.elements_per_thread // 2) * budget.warp
    fewer = max(budget.warp, min(budget.twice, threads // 2))
    tiling = Tiling(rows, cols, fewer // budget.warp, 1)
    block = 2 * budget.block // budget.operands if fills else max(1, 2 * WORD_BYTES // problem.element_bytes)
    blocks = None if problem.transposed else budget.in_blocks(tiling, block)
    if blocks and fills:
        registers = budget.registers_of(2, fewer)
        if registers and not problem.backward and rows * problem.width <= budget.registers * 7 // 16:
            yield replace(blocks, max_registers=registers), numbers.spilled_bytes
        yield blocks, numbers.spilled_bytes
    elif problem.folded > 1 and (blocks := budget.in_blocks(tiling, 2 * problem.vector)):
        yield blocks, numbers.spilled_bytes  # for neighbours that are late
    elif blocks and blocks.tile_cols < cols:
        yield blocks, 0
    for each in (threads, 2 * threads):
        if each <= budget.most_threads:
            read = each * budget.operands * WORD_BYTES // problem.element_bytes
            less = 2 if problem.transposed and read > budget.twice else 1
            yield replace(tiling, num_warps=max(1, each // budget.warp // less)), 0


def _held(budget: Budget) -> tuple[int, int, int]:
    """Returns (columns, number, threads) of splits that are held: as many elements a thread as a tile in blocks, or twice."""
    problem, rows = budget.problem, _held_rows(budget)
    threads = budget.twice if problem.backward or problem.transposed else budget.threads
    cols = budget.numbers.elements_per_thread // budget.operands * threads // rows
    if problem.width > MOST_NARROW * cols and not problem.transposed:
        cols *= 2
    return cols, -(-problem.width // cols), threads


def _held_rows(budget: Budget) -> int:
    return min(budget.most_rows, budget.line if budget.problem.transposed else budget.line // 2)


def held_splits(budget: Budget) -> Iterator[Candidate]:
    """Yields splits that programs hold; forward first with as many registers as let two programs be resident."""
    problem, numbers, rows = budget.problem, budget.numbers, _held_rows(budget)
    cols, count, threads = _held(budget)
    if not 1 < count <= MOST_SPLITS:
        return
    tiling = Tiling(rows, cols, threads // budget.warp, 1, count)
    each = rows * cols // threads
    why = f"{each} elements of each operand for each of {threads} threads"
    if blocks := budget.in_blocks(tiling, 2 * budget.block // budget.operands):
        registers = budget.registers_of(2, budget.twice)
        if registers and not problem.backward and each <= numbers.elements_per_thread:
            limited = replace(blocks, max_registers=registers)
            yield Candidate(limited, numbers.spilled_bytes, f"{why}; {registers} registers each let two programs be resident")
        yield Candidate(blocks, numbers.spilled_bytes, why)
        yield Candidate(tiling, numbers.spilled_bytes, why)
