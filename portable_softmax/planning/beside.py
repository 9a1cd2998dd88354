"""Launches for rows that lie side by side, or turned: tiles of cache lines, and parts that are held or read twice."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.planning.room import MANY_ROWS, Candidate, Room, halves
from portable_softmax.planning.rows import MOST_PARTS, WORD_BYTES

MOST_NARROW, MOST_PREFERRED = 16, 32  # parts that are held: with more they are twice as wide, then read twice
# The next three are of docs/notes/rows_side_by_side.md, an H100; assumed elsewhere.
WIDE = 4  # cache lines of a wide tile of single elements
FILLED = 3 / 4  # of its rows: with fewer, narrower tiles waste less
FEW_PARTS, NEARLY = 8, 0.8  # parts of tiles that take several waves of programs; the share of all waves that does
FOLDED_NUMBERS = 8  # of other parts that a thread reads where lines are folded
HELD_FOLDED = 2  # lines as one of which parts are held: with more the exchange takes too long
LATE = 12  # times the bytes that a program may spill, where all of them are for neighbours that are late


def beside_launches(room: Room) -> Iterator[Candidate]:
    """Yields launches for rows side by side, the preferred one first."""
    problem, numbers = room.problem, room.numbers
    yield from tiles(room)
    if not room.shares:
        return
    held = not problem.backward if problem.turned else problem.element_bytes >= (numbers.held_across or 0)
    held = held and problem.access != "scalar" and (problem.turned or _held(room)[1] <= MOST_PREFERRED)
    held = held and problem.folded <= HELD_FOLDED
    yield from (held_parts if held else streamed_parts)(room)
    yield from (streamed_parts if held else held_parts)(room)


def tiles(room: Room) -> Iterator[Candidate]:
    """Yields tiles of whole rows: as many as registers have room for, then half as many, down to a sector of memory."""
    problem, numbers = room.problem, room.numbers
    neighbours, scalar = room.most_rows, problem.access == "scalar"
    line = min(neighbours, room.line)
    least = line if scalar or problem.turned else max(1, line // 2)
    share = last = numbers.beside_share
    if problem.turned:
        share = last = 0.5 / room.operands
    elif scalar:  # parts would need an address for each element too
        last = max(share, 0.5 / room.operands)
    if not room.shares:  # there is nothing else but to read them twice
        least, share, last = min(neighbours, room.sector), 0.5, 0.5
    packed = problem.element_bytes / WORD_BYTES if problem.access == "vector" else 1
    row = problem.width if scalar else max(1, int(next_power_of_2(problem.width) * packed))
    words = numbers.words_forward if scalar else numbers.words_backward / 2
    fits = False  # once a tile fits it may still spill, and half as many rows may not
    for rows in halves(min(neighbours, max(line, room.rows(words * room.threads, row))), min(neighbours, room.sector)):
        elements = rows * problem.width * problem.registers_per_element
        fits = fits or (rows >= least and elements <= room.registers * (last if rows == least else share))
        if fits:
            why = f"{rows} rows side by side take {elements} of {room.registers} registers"
            for tiling, spilled in (_of_elements if scalar and problem.layout == "across" else _of_vectors)(room, rows):
                yield Candidate(tiling, spilled, why)


def _fills(room: Room) -> bool:
    """Tells whether the rows of a cache line fill the registers of a large program."""
    line = min(next_power_of_2(room.problem.neighbours), room.line)
    elements = line * room.problem.width * room.problem.registers_per_element
    return elements > room.twice * room.numbers.elements_per_thread * 7 // 8


def _is_narrow(room: Room) -> bool:
    """Tells whether a tile takes the few rows that lie side by side in one matrix: less than a cache line."""
    return room.problem.neighbours < room.line and not room.problem.scattered


def _of_elements(room: Room, rows: int) -> Iterator[tuple[Tiling, int]]:
    """Yields tiles of single elements, which need an address each: pieces of one a thread, of more where there are many."""
    problem, numbers, fills = room.problem, room.numbers, _fills(room)
    wanted = next_power_of_2(-(-rows * problem.width // (numbers.elements_per_thread // 2)))
    threads = max(room.threads, min(room.twice, wanted))
    if fills and not problem.backward:
        threads = min(2 * room.twice, room.most_threads)
    tiling = Tiling("tile", rows, next_power_of_2(problem.width), threads // room.warp, 1)
    if pieces := room.in_pieces(tiling, room.few_elements if _is_narrow(room) else room.piece if fills else 1):
        yield pieces, numbers.spilled_bytes if fills else 0
    yield tiling, 0


def _of_vectors(room: Room, rows: int) -> Iterator[tuple[Tiling, int]]:
    """Yields tiles in pieces of 8 bytes a thread; in wider ones, with registers for two programs, where they fill a program."""
    problem, numbers, fills = room.problem, room.numbers, _fills(room)
    cols = next_power_of_2(problem.width)
    threads = room.warps(rows * cols * problem.registers_per_element, numbers.elements_per_thread // 2) * room.warp
    fewer = max(room.warp, min(room.twice, threads // 2))
    tiling = Tiling("tile", rows, cols, fewer // room.warp, 1)
    piece = 2 * room.piece // room.operands if fills else max(1, (1 + (problem.folded > 1)) * 2 * WORD_BYTES // problem.element_bytes)
    pieces = None if problem.turned else room.in_pieces(tiling, piece)
    if pieces and fills:
        if not problem.backward and rows * problem.width <= room.registers * 7 // 16:
            yield replace(pieces, max_registers=room.registers_of(2, fewer)), numbers.spilled_bytes
        yield pieces, numbers.spilled_bytes
    elif pieces and (pieces.tile_cols < cols or problem.folded > 1):
        yield pieces, 0
    for each in (threads, 2 * threads):
        if each <= room.most_threads:
            read = each * room.operands * WORD_BYTES // problem.element_bytes
            less = 2 if problem.turned and read > room.twice else 1
            yield replace(tiling, num_warps=max(1, each // room.warp // less)), 0


def _held(room: Room) -> tuple[int, int, int]:
    """Returns (columns, number, threads) of parts that are held: as many elements a thread as of a tile in pieces, or twice."""
    problem, rows = room.problem, _held_rows(room)
    threads = room.twice if problem.backward or problem.turned else room.threads
    cols = room.numbers.elements_per_thread // room.operands * threads // rows
    if problem.width > MOST_NARROW * cols and not problem.turned:
        cols *= 2
    return cols, -(-problem.width // cols), threads


def _held_rows(room: Room) -> int:
    return min(room.most_rows, room.line if room.problem.turned else room.line // 2)


def held_parts(room: Room) -> Iterator[Candidate]:
    """Yields parts that programs hold; forward first with as many registers as let two programs be resident."""
    problem, numbers, rows = room.problem, room.numbers, _held_rows(room)
    cols, count, threads = _held(room)
    if not 1 < count <= MOST_PARTS:
        return
    tiling = Tiling("shared", rows, cols, threads // room.warp, 1, count)
    each = rows * cols // threads
    why = f"{each} elements of each operand for each of {threads} threads"
    if pieces := room.in_pieces(tiling, 2 * room.piece // room.operands):
        if not problem.backward and each <= numbers.elements_per_thread:
            registers = room.registers_of(2, room.twice)
            limited = replace(pieces, max_registers=registers)
            yield Candidate(limited, numbers.spilled_bytes, f"{why}; {registers} registers each let two programs be resident")
        yield Candidate(pieces, numbers.spilled_bytes, why)
        yield Candidate(tiling, numbers.spilled_bytes, why)


def streamed_parts(room: Room) -> Iterator[Candidate]:
    """Yields parts that are read twice, a piece at a time: as many as programs are resident, or one where rows are many."""
    problem, scalar = room.problem, room.problem.access == "scalar"
    if problem.folded > 1:
        yield from _streamed(room, WIDE * room.line, 2 * room.twice, room.numbers.elements_per_thread // (2 * room.operands), None)
    if scalar and _is_narrow(room):
        yield from _streamed_lines(room)
    wide = WIDE * room.line
    if scalar and not problem.turned and problem.neighbours >= FILLED * -(-problem.neighbours // wide) * wide:
        yield from _streamed_wide(room)
    rows = room.line if problem.turned else 2 * room.line
    threads = room.threads if scalar or problem.turned else room.twice
    elements = room.numbers.elements_per_thread // (4 if scalar else 2)
    yield from _streamed(room, rows, threads, elements, room.registers_of(2, room.twice))


def _streamed_wide(room: Room) -> Iterator[Candidate]:
    """Yields parts of several cache lines of single elements, for one large program: more warps for narrow types."""
    problem, numbers = room.problem, room.numbers
    threads = min(room.most_threads, room.twice * max(1, WORD_BYTES // problem.element_bytes))
    elements = numbers.elements_per_thread // 2 * room.twice // threads // problem.registers_per_element
    for candidate in _streamed(room, WIDE * room.line, threads, elements, None):
        yield candidate._replace(spilled_bytes=LATE * numbers.spilled_bytes)


def _streamed(room: Room, most_rows: int, threads: int, elements: int, limit: int | None) -> Iterator[Candidate]:
    """Yields parts by programs of so many threads, with at most `limit` registers each; then with half as many elements."""
    problem, numbers, device, warps = room.problem, room.numbers, room.device, threads // room.warp
    rows = min(room.most_rows, most_rows)
    registers = limit or room.registers_of(1, threads)
    resident = device.resident(device.vendor.occupancy(KernelResources(warps, registers), device.hardware))
    tiles_of_rows = MANY_ROWS if problem.batch_invariant else problem.tiles(rows)
    each_fills = resident // tiles_of_rows or _fullest(tiles_of_rows, resident)
    numbers_read = FOLDED_NUMBERS * threads // rows // problem.folded if problem.folded > 1 else numbers.numbers_per_thread * threads // most_rows
    most = max(1, min(each_fills, numbers_read))
    why = f"{resident} programs of {warps} warps are resident with {registers} registers a thread"
    for each in (elements, elements // 2):
        cols = each * threads // rows
        pieces = -(-problem.width // (most * cols))
        count = -(-problem.width // (pieces * cols))
        tiling = Tiling("online", rows, cols, warps, 1, max_registers=limit)
        if count > 1:
            tiling = replace(tiling, strategy="shared", tile_cols=pieces * cols, parts=count, pieces=pieces, held=False)
        yield Candidate(tiling, 3 * numbers.spilled_bytes, why)


def _fullest(tiles: int, resident: int) -> int:
    """Returns the fewest parts of each of many tiles with which their waves of resident programs are nearly full."""
    filled = {parts: tiles * parts / (-(-tiles * parts // resident) * resident) for parts in range(1, FEW_PARTS + 1)}
    return next((parts for parts, share in filled.items() if share >= NEARLY), max(filled, key=lambda parts: filled[parts]))


def _streamed_lines(room: Room) -> Iterator[Candidate]:
    """Yields parts of the few rows of one matrix: so long that those of all resident programs stay in the first cache."""
    problem = room.problem
    rows, threads = next_power_of_2(problem.neighbours), room.threads
    cols = room.few_elements * threads // rows
    resident = room.most_threads // threads
    cached = (room.device.hardware.shared_memory_per_multiprocessor or 0) // resident // (rows * problem.element_bytes)
    pieces = max(1, cached // cols)
    count = -(-problem.width // (pieces * cols))
    tiling = Tiling("online", rows, cols, threads // room.warp, 1)
    why = f"parts of {pieces * cols} columns of {problem.inner} rows stay in a cache for {resident} programs"
    if 1 < count <= MOST_PARTS:
        tiling = replace(tiling, strategy="shared", tile_cols=pieces * cols, parts=count, pieces=pieces, held=False)
    yield Candidate(tiling, 3 * room.numbers.spilled_bytes, why)
