"""Launches for rows side by side whose parts are read twice, a piece at a time."""

from collections.abc import Iterator

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import next_power_of_2
from portable_softmax.planning.room import MANY_ROWS, Candidate, Room
from portable_softmax.planning.rows import MOST_PARTS, WORD_BYTES

# All are of docs/notes/rows_side_by_side.md, an H100; assumed elsewhere.
WIDE = 4  # cache lines of a wide tile
FILLED = 3 / 4  # of its rows, if single elements are read: with fewer, narrower tiles waste less
FEW_PARTS, NEARLY = 8, 0.8  # parts of tiles that take several waves of programs; the share of all waves that does
FOLDED_NUMBERS = 8  # of other parts that a thread reads where lines are folded
LATE = 12  # times the bytes that a program may spill, where all of them are for neighbours that are late


def is_narrow(room: Room) -> bool:
    """Tells whether a tile takes the few rows that lie side by side in one matrix: less than a cache line."""
    return room.problem.neighbours < room.line and not room.problem.scattered


def streamed_parts(room: Room) -> Iterator[Candidate]:
    """Yields parts that are read twice, a piece at a time: as many as programs are resident, or one where rows are many."""
    problem, scalar = room.problem, room.problem.access == "scalar"
    if problem.folded > 1:
        threads, elements = min(room.most_threads, 2 * room.twice), room.numbers.elements_per_thread // (2 * room.operands)
        yield from _streamed(room, WIDE * room.line, threads, elements, None)
    if scalar and is_narrow(room):
        yield from _streamed_lines(room)
    wide = WIDE * room.line
    if scalar and not problem.transposed and problem.neighbours >= FILLED * -(-problem.neighbours // wide) * wide:
        yield from _streamed_wide(room)
    rows = room.line if problem.transposed else 2 * room.line
    threads = room.threads if scalar or problem.transposed else room.twice
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
    """Yields parts by programs of so many threads, with at most `limit` registers each; then with half as many elements.

    Yields none where no program of so many threads fits.
    """
    problem, numbers, device, warps = room.problem, room.numbers, room.device, threads // room.warp
    rows = min(room.most_rows, most_rows)
    registers = limit or room.registers_of(1, threads)
    resident = device.resident(device.vendor.occupancy(KernelResources(warps, registers), device.hardware))
    if not registers or not resident:
        return
    tiles_of_rows = MANY_ROWS if problem.batch_invariant else problem.tiles(rows)
    each_fills = resident // tiles_of_rows or _fullest(tiles_of_rows, resident)
    read = numbers.numbers_per_thread * threads // most_rows
    if problem.folded > 1:
        read = FOLDED_NUMBERS * threads // (rows * problem.folded)
    most = max(1, min(each_fills, read))
    why = f"parts for the {resident} programs of {warps} warps that would be resident if each thread used {registers} registers"
    for each in (elements, elements // 2):
        cols = each * threads // rows
        pieces = -(-problem.width // (most * cols))
        count = -(-problem.width // (pieces * cols))
        tiling = Tiling(rows, cols, warps, 1, count, limit or None, pieces, held=False)
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
    why = f"parts of {pieces * cols} columns of {problem.inner} rows stay in a cache for {resident} programs"
    tiling = Tiling(rows, cols, threads // room.warp, 1, count if count <= MOST_PARTS else 1, pieces=pieces, held=False)
    yield Candidate(tiling, 3 * room.numbers.spilled_bytes, why)
