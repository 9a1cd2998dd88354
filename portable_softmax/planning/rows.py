"""Launches for rows whose elements are next to each other: several in a tile, one in a tile, or one in splits."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.planning.budget import Budget, Candidate, halves
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, next_power_of_2

WORD_BYTES = 4
MOST_SPLITS = 64  # each program reads two words of each
LONG = 16  # elements for each thread of the largest program: a shorter row is not shared, however few there are


def row_launches(budget: Budget) -> Iterator[Candidate]:
    """Yields launches for rows, the preferred one first."""
    problem, numbers = budget.problem, budget.numbers
    if few := _is_few_and_long(budget):
        yield from splits(budget)
    if problem.width <= budget.threads * VECTOR_BYTES // WORD_BYTES:
        yield from short_rows(budget)
    two = budget.registers * 7 // 16  # two programs are resident, and an eighth of the registers holds addresses
    if problem.n_cols < budget.registers * numbers.row_share and budget.operands * problem.n_cols <= two:
        yield from whole_rows(budget)
    if not few:
        yield from splits(budget)


def _is_few_and_long(budget: Budget) -> bool:
    """Tells whether programs of whole splits would leave multiprocessors idle."""
    is_long = budget.problem.n_cols >= LONG * budget.most_threads
    return is_long and budget.is_few(budget.numbers.elements_per_split * budget.threads)


def short_rows(budget: Budget) -> Iterator[Candidate]:
    """Yields tiles of as many rows as give each thread its words, in blocks of one access a thread, and in one block."""
    problem, numbers = budget.problem, budget.numbers
    threads = numbers.short_warps * budget.warp if numbers.short_warps else budget.threads
    cols, warps = next_power_of_2(problem.width), threads // budget.warp
    words = (numbers.words_backward if problem.backward else numbers.words_forward) / budget.operands
    row = max(-(-problem.width * problem.element_bytes // WORD_BYTES), -(-problem.width // problem.vector))
    edged = problem.unaligned and problem.n_cols > numbers.elements_per_thread  # each edge takes a block
    elements = numbers.elements_per_thread // 4
    if edged:
        words, row = elements / budget.operands, cols
    elif problem.unaligned:
        words = numbers.words_backward / budget.operands
    for rows in halves(budget.rows(words * threads, row), 1):
        tiling = Tiling(rows, cols, warps, 1)
        block = max(1, threads // rows) * problem.vector
        if edged:
            each = min(warps, max(1, rows * cols // elements // budget.warp))
            tiling = replace(tiling, num_warps=each)
            block = max(problem.vector, budget.block * each * budget.warp // rows)
        blocks, taken = -(-problem.width // block), (tiling.num_warps or 1) * budget.warp
        kind = "elements" if edged else "words"
        why = f"{rows} rows of {row} {kind} give {taken} threads {rows * row / taken:.2g} {kind} each of an operand"
        if blocks > 1:
            yield Candidate(replace(tiling, width=block, blocks=blocks), 0, why)
        yield Candidate(tiling, 0, why)


def whole_rows(budget: Budget) -> Iterator[Candidate]:
    """Yields tiles of one row: in blocks where these end nearer to its end than a power of two, then in one block."""
    problem, numbers = budget.problem, budget.numbers
    cols, most = next_power_of_2(problem.width), budget.most_threads // budget.warp
    per_thread = numbers.elements_per_thread // (4 if problem.access == "scalar" else 2)  # single elements have an address each
    warps = budget.warps(cols * problem.registers_per_element, per_thread)
    both = sorted({warps, min(2 * warps, most)})
    why = f"a row of {problem.n_cols} columns fits {100 * numbers.row_share:g}% of the register file"
    for each in both:
        for elements in (budget.block, max(1, budget.block // 2)):  # smaller ones may end nearer to the row's end
            blocks = budget.in_blocks(Tiling(1, cols, max(1, each // 2), 1), elements)
            if blocks and (blocks.tile_cols < cols or problem.unaligned):
                yield Candidate(blocks, 0, why)
                break
    for each in both:
        yield Candidate(Tiling(1, cols, each, 1), 0, why)


def splits(budget: Budget) -> Iterator[Candidate]:
    """Yields splits of a row that as many programs hold, then splits twice as wide with twice the warps, and so on."""
    if not budget.shares:
        return
    problem, numbers = budget.problem, budget.numbers
    threads = numbers.split_warps * budget.warp if numbers.split_warps else budget.threads
    registers = numbers.split_registers
    why = f"{numbers.elements_per_split} elements of each operand for each of {threads} threads"
    if _is_few_and_long(budget) and threads > budget.warp:
        threads, why = threads // 2, "few rows: splits of half the size keep more programs resident"
    cols = numbers.elements_per_split * threads
    while cols < problem.width and threads <= budget.most_threads:
        count = -(-problem.width // cols)
        tiling = Tiling(1, cols, threads // budget.warp, 1, count, registers)
        if count <= MOST_SPLITS and (blocks := budget.in_blocks(tiling, budget.block)):
            yield Candidate(blocks, numbers.spilled_bytes // 8, why)
            if registers:
                yield Candidate(replace(blocks, max_registers=None), numbers.spilled_bytes // 8, why)
        power = 1 << cols.bit_length() - 1  # columns of a split in one block, all that Triton 3.2 can hold
        in_one = replace(tiling, width=power, splits=-(-problem.width // power))
        if in_one.splits <= MOST_SPLITS:
            yield Candidate(in_one, numbers.spilled_bytes // 8, why)
        cols, threads = 2 * cols, 2 * threads
        registers = registers if registers and registers * threads <= budget.registers else None
    yield from streamed_splits(budget)


def streamed_splits(budget: Budget) -> Iterator[Candidate]:
    """Yields splits of rows that no programs hold: each is read twice, block by block, by as many programs as run at once."""
    width, spilled = budget.problem.width, 3 * budget.numbers.spilled_bytes
    threads = min(2 * budget.twice, budget.most_threads)
    cols = budget.numbers.elements_per_thread // 4 * threads
    largest = -(-width // (budget.numbers.elements_per_split * budget.most_threads))  # splits of the largest programs
    if width <= MOST_SPLITS // 2 * cols and largest <= budget.multiprocessors:
        return  # they are held, if by programs that spill
    for most in halves(max(MOST_SPLITS, budget.multiprocessors // budget.n_rows), 2):
        blocks = -(-width // (most * cols))
        count = -(-width // (blocks * cols))
        tiling = Tiling(1, cols, threads // budget.warp, 1, count, blocks=blocks, held=False)
        if count > 1:
            yield Candidate(tiling, spilled, f"no programs that run at once hold {width} columns")
