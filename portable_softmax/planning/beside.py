"""Launches for rows that lie side by side, or transposed: tiles of cache lines, and parts that are held or read twice."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.planning.read_twice import is_narrow, streamed_parts
from portable_softmax.planning.room import Candidate, Room, halves
from portable_softmax.planning.rows import MOST_PARTS, WORD_BYTES

MOST_NARROW, MOST_PREFERRED = 16, 32  # parts that are held: with more they are twice as wide, then read twice
HELD_FOLDED = 2  # lines as one of which parts are held: with more the exchange takes too long, docs/notes/rows_side_by_side.md


def beside_launches(room: Room) -> Iterator[Candidate]:
    """Yields launches for rows side by side, the preferred one first."""
    yield from tiles(room)
    if room.shares:
        for parts in (held_parts, streamed_parts) if _are_held(room) else (streamed_parts, held_parts):
            yield from parts(room)


def _are_held(room: Room) -> bool:
    """Tells whether parts that are held are preferred to those that are read twice."""
    problem = room.problem
    if problem.access == "scalar" or problem.folded > HELD_FOLDED:
        return False
    if problem.transposed:
        return not problem.backward
    return problem.element_bytes >= (room.numbers.held_across or 0) and _held(room)[1] <= MOST_PREFERRED


def tiles(room: Room) -> Iterator[Candidate]:
    """Yields tiles of whole rows: as many as registers have room for, then half as many, down to a sector of memory."""
    problem = room.problem
    of_elements = problem.access == "scalar" and problem.layout == "across"
    least, share, last = _shares(room)
    fits = False  # once a tile fits it may still spill, and half as many rows may not
    for rows in halves(_rows(room), min(room.most_rows, room.sector)):
        elements = rows * problem.width * problem.registers_per_element
        fits = fits or (rows >= least and elements <= room.registers * (last if rows == least else share))
        if fits:
            why = f"{rows} rows side by side take {elements} of {room.registers} registers"
            for tiling, spilled in (_of_elements if of_elements else _of_vectors)(room, rows):
                yield Candidate(tiling, spilled, why)


def _shares(room: Room) -> tuple[int, float, float]:
    """Returns (the fewest rows of a tile, the share of registers that a tile may take, and one of the fewest rows)."""
    problem, share, half = room.problem, room.numbers.beside_share, 0.5 / room.operands
    line = min(room.most_rows, room.line)
    if not room.shares:  # there is nothing else but to read them twice
        return min(room.most_rows, room.sector), 0.5, 0.5
    if problem.transposed:
        return line, half, half
    if problem.access == "scalar":  # parts would need an address for each element too
        return line, share, max(share, half)
    return max(1, line // 2), share, share


def _rows(room: Room) -> int:
    """Returns the rows of a tile that give each thread its words, but a cache line at least, and no more than there are."""
    problem, numbers = room.problem, room.numbers
    if problem.access == "scalar":
        words, row = numbers.words_forward, problem.width
    else:
        packed = problem.element_bytes / WORD_BYTES if problem.access == "vector" else 1
        words, row = numbers.words_backward / 2, max(1, int(next_power_of_2(problem.width) * packed))
    return min(room.most_rows, max(min(room.most_rows, room.line), room.rows(words * room.threads, row)))


def _fills(room: Room) -> bool:
    """Tells whether the rows of a cache line fill the registers of a large program."""
    line = min(next_power_of_2(room.problem.neighbours), room.line)
    elements = line * room.problem.width * room.problem.registers_per_element
    return elements > room.twice * room.numbers.elements_per_thread * 7 // 8


def _of_elements(room: Room, rows: int) -> Iterator[tuple[Tiling, int]]:
    """Yields tiles of single elements, which need an address each: pieces of one a thread, of more where there are many."""
    problem, numbers, fills = room.problem, room.numbers, _fills(room)
    wanted = next_power_of_2(-(-rows * problem.width // (numbers.elements_per_thread // 2)))
    threads = max(room.threads, min(room.twice, wanted))
    if fills and not problem.backward:
        threads = min(2 * room.twice, room.most_threads)
    tiling = Tiling(rows, next_power_of_2(problem.width), threads // room.warp, 1)
    if pieces := room.in_pieces(tiling, room.few_elements if is_narrow(room) else room.piece if fills else 1):
        yield pieces, numbers.spilled_bytes if fills else 0
    yield tiling, 0


def _of_vectors(room: Room, rows: int) -> Iterator[tuple[Tiling, int]]:
    """Yields tiles in pieces of 8 bytes a thread; in wider ones, with registers for two programs, where they fill a program."""
    problem, numbers, fills = room.problem, room.numbers, _fills(room)
    cols = next_power_of_2(problem.width)
    threads = room.warps(rows * cols * problem.registers_per_element, numbers.elements_per_thread // 2) * room.warp
    fewer = max(room.warp, min(room.twice, threads // 2))
    tiling = Tiling(rows, cols, fewer // room.warp, 1)
    piece = 2 * room.piece // room.operands if fills else max(1, 2 * WORD_BYTES // problem.element_bytes)
    pieces = None if problem.transposed else room.in_pieces(tiling, piece)
    if pieces and fills:
        registers = room.registers_of(2, fewer)
        if registers and not problem.backward and rows * problem.width <= room.registers * 7 // 16:
            yield replace(pieces, max_registers=registers), numbers.spilled_bytes
        yield pieces, numbers.spilled_bytes
    elif problem.folded > 1 and (pieces := room.in_pieces(tiling, 2 * problem.vector)):
        yield pieces, numbers.spilled_bytes  # for neighbours that are late
    elif pieces and pieces.tile_cols < cols:
        yield pieces, 0
    for each in (threads, 2 * threads):
        if each <= room.most_threads:
            read = each * room.operands * WORD_BYTES // problem.element_bytes
            less = 2 if problem.transposed and read > room.twice else 1
            yield replace(tiling, num_warps=max(1, each // room.warp // less)), 0


def _held(room: Room) -> tuple[int, int, int]:
    """Returns (columns, number, threads) of parts that are held: as many elements a thread as of a tile in pieces, or twice."""
    problem, rows = room.problem, _held_rows(room)
    threads = room.twice if problem.backward or problem.transposed else room.threads
    cols = room.numbers.elements_per_thread // room.operands * threads // rows
    if problem.width > MOST_NARROW * cols and not problem.transposed:
        cols *= 2
    return cols, -(-problem.width // cols), threads


def _held_rows(room: Room) -> int:
    return min(room.most_rows, room.line if room.problem.transposed else room.line // 2)


def held_parts(room: Room) -> Iterator[Candidate]:
    """Yields parts that programs hold; forward first with as many registers as let two programs be resident."""
    problem, numbers, rows = room.problem, room.numbers, _held_rows(room)
    cols, count, threads = _held(room)
    if not 1 < count <= MOST_PARTS:
        return
    tiling = Tiling(rows, cols, threads // room.warp, 1, count)
    each = rows * cols // threads
    why = f"{each} elements of each operand for each of {threads} threads"
    if pieces := room.in_pieces(tiling, 2 * room.piece // room.operands):
        registers = room.registers_of(2, room.twice)
        if registers and not problem.backward and each <= numbers.elements_per_thread:
            limited = replace(pieces, max_registers=registers)
            yield Candidate(limited, numbers.spilled_bytes, f"{why}; {registers} registers each let two programs be resident")
        yield Candidate(pieces, numbers.spilled_bytes, why)
        yield Candidate(tiling, numbers.spilled_bytes, why)
