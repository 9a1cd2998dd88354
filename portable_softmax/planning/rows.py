"""Launches for rows whose elements are next to each other: several in a tile, one in a tile, or one in parts."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import VECTOR_BYTES, next_power_of_2
from portable_softmax.planning.room import Candidate, Room, halves

WORD_BYTES = 4
MOST_PARTS = 64  # each program reads two words of each
LONG = 16  # elements for each thread of the largest program: a shorter row is not shared, however few there are


def row_launches(room: Room) -> Iterator[Candidate]:
    """Yields launches for rows, the preferred one first."""
    problem, numbers = room.problem, room.numbers
    if few := _is_few_and_long(room):
        yield from parts(room)
    if problem.width <= room.threads * VECTOR_BYTES // WORD_BYTES:
        yield from short_rows(room)
    two = room.registers * 7 // 16  # two programs are resident, and an eighth of the registers holds addresses
    if problem.n_cols < room.registers * numbers.row_share and room.operands * problem.n_cols <= two:
        yield from whole_rows(room)
    if not few:
        yield from parts(room)


def _is_few_and_long(room: Room) -> bool:
    """Tells whether programs of whole parts would leave multiprocessors idle."""
    is_long = room.problem.n_cols >= LONG * room.most_threads
    return is_long and room.is_few(room.numbers.elements_per_part * room.threads)


def short_rows(room: Room) -> Iterator[Candidate]:
    """Yields tiles of as many rows as give each thread its words, in pieces of one access a thread, and in one piece."""
    problem, numbers = room.problem, room.numbers
    threads = numbers.short_warps * room.warp if numbers.short_warps else room.threads
    cols, warps = next_power_of_2(problem.width), threads // room.warp
    words = (numbers.words_backward if problem.backward else numbers.words_forward) / room.operands
    row = max(-(-problem.width * problem.element_bytes // WORD_BYTES), -(-problem.width // problem.vector))
    edged = problem.unaligned and problem.n_cols > numbers.elements_per_thread  # each edge takes a piece
    elements = numbers.elements_per_thread // 4
    if edged:
        words, row = elements / room.operands, cols
    elif problem.unaligned:
        words = numbers.words_backward / room.operands
    for rows in halves(room.rows(words * threads, row), 1):
        tiling = Tiling(rows, cols, warps, 1)
        piece = max(1, threads // rows) * problem.vector
        if edged:
            each = min(warps, max(1, rows * cols // elements // room.warp))
            tiling = replace(tiling, num_warps=each)
            piece = max(problem.vector, room.piece * each * room.warp // rows)
        pieces, taken = -(-problem.width // piece), (tiling.num_warps or 1) * room.warp
        kind = "elements" if edged else "words"
        why = f"{rows} rows of {row} {kind} give {taken} threads {rows * row / taken:.2g} {kind} each of an operand"
        if pieces > 1:
            yield Candidate(replace(tiling, width=piece, pieces=pieces), 0, why)
        yield Candidate(tiling, 0, why)


def whole_rows(room: Room) -> Iterator[Candidate]:
    """Yields tiles of one row: in pieces where these end nearer to its end than a power of two, then in one piece."""
    problem, numbers = room.problem, room.numbers
    cols, most = next_power_of_2(problem.width), room.most_threads // room.warp
    per_thread = numbers.elements_per_thread // (4 if problem.access == "scalar" else 2)  # single elements have an address each
    warps = room.warps(cols * problem.registers_per_element, per_thread)
    both = sorted({warps, min(2 * warps, most)})
    why = f"a row of {problem.n_cols} columns fits {100 * numbers.row_share:g}% of the register file"
    for each in both:
        for elements in (room.piece, max(1, room.piece // 2)):  # smaller ones may end nearer to the row's end
            pieces = room.in_pieces(Tiling(1, cols, max(1, each // 2), 1), elements)
            if pieces and (pieces.tile_cols < cols or problem.unaligned):
                yield Candidate(pieces, 0, why)
                break
    for each in both:
        yield Candidate(Tiling(1, cols, each, 1), 0, why)


def parts(room: Room) -> Iterator[Candidate]:
    """Yields parts of a row that as many programs hold, then parts twice as wide with twice the warps, and so on."""
    if not room.shares:
        return
    problem, numbers = room.problem, room.numbers
    threads = numbers.part_warps * room.warp if numbers.part_warps else room.threads
    registers = numbers.part_registers
    why = f"{numbers.elements_per_part} elements of each operand for each of {threads} threads"
    if _is_few_and_long(room) and threads > room.warp:
        threads, why = threads // 2, "few rows: parts of half the size keep more programs resident"
    cols = numbers.elements_per_part * threads
    while cols < problem.width and threads <= room.most_threads:
        count = -(-problem.width // cols)
        tiling = Tiling(1, cols, threads // room.warp, 1, count, registers)
        if count <= MOST_PARTS and (pieces := room.in_pieces(tiling, room.piece)):
            yield Candidate(pieces, numbers.spilled_bytes // 8, why)
            if registers:
                yield Candidate(replace(pieces, max_registers=None), numbers.spilled_bytes // 8, why)
        power = 1 << cols.bit_length() - 1  # columns of a part in one piece, all that Triton 3.2 can hold
        in_one = replace(tiling, width=power, parts=-(-problem.width // power))
        if in_one.parts <= MOST_PARTS:
            yield Candidate(in_one, numbers.spilled_bytes // 8, why)
        cols, threads = 2 * cols, 2 * threads
        registers = registers if registers and registers * threads <= room.registers else None
    yield from streamed_parts(room)


def streamed_parts(room: Room) -> Iterator[Candidate]:
    """Yields parts of rows that no programs hold: each is read twice, a piece at a time, by as many programs as run at once."""
    width, spilled = room.problem.width, 3 * room.numbers.spilled_bytes
    threads = min(2 * room.twice, room.most_threads)
    cols = room.numbers.elements_per_thread // 4 * threads
    largest = -(-width // (room.numbers.elements_per_part * room.most_threads))  # parts of the largest programs
    if width <= MOST_PARTS // 2 * cols and largest <= room.multiprocessors:
        return  # they are held, if by programs that spill
    for most in halves(max(MOST_PARTS, room.multiprocessors // room.n_rows), 2):
        pieces = -(-width // (most * cols))
        count = -(-width // (pieces * cols))
        tiling = Tiling(1, cols, threads // room.warp, 1, count, pieces=pieces, held=False)
        if count > 1:
            yield Candidate(tiling, spilled, f"no programs that run at once hold {width} columns")
