"""The tilings that a launch rule allows for a problem, the preferred one first."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from portable_softmax.devices.backends.base import KernelResources
from portable_softmax.devices.device import Device
from portable_softmax.devices.policy import LaunchRule
from portable_softmax.planning.plan import Tiling
from portable_softmax.planning.problem import Problem, next_power_of_2

MOST_PARTS = 64  # of a row, where a rule says nothing: each program reads two words of each
MOST_ELEMENTS = 2**20  # of a tile, in any Triton
MOST_PIECES = 32  # of a tile that is held: each is code of its own, and hundreds compile for minutes
NARROWEST_TILE = 1024  # elements; a narrower one of a row that is read twice is not worth compiling
WORD_BYTES = 4
MANY_ROWS = 2**31  # what a batch-invariant tile is chosen for


def candidates(rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tilings for a problem that the rule takes; none if its strategy cannot compute it."""
    if rule.strategy == "shared":
        tilings = _shared(rule, problem, device)
    elif rule.tile_words:
        tilings = _word_by_word(rule, problem, device)
    elif rule.strategy == "tile":
        tilings = _tile(rule, problem, device)
    else:
        tilings = _online(rule, problem, device)
    for each in tilings:
        pieces, unrolled = (1, each.pieces) if each.held else (each.pieces, 1)
        elements = each.tile_rows * each.tile_cols // pieces
        if elements <= MOST_ELEMENTS and unrolled <= MOST_PIECES and _is_possible(problem, each):
            yield each


def _is_possible(problem: Problem, tiling: Tiling) -> bool:
    """Tells whether there is a kernel for it: sharded rows go tile by tile, whatever that is called; pairs are read once."""
    if problem.step:
        return tiling.parts == tiling.pieces == 1 and tiling.held
    return tiling.strategy == "tile" or not problem.paired


def _tile(rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of whole rows: as many rows as the rule allows, then half as many, and so on."""
    tile_cols = next_power_of_2(problem.width)
    tile_rows = _gathered(rule.tile_elements or 1, tile_cols * problem.registers_per_element, problem, device)
    if problem.ragged and not rule.access:  # a rule that speaks of them may give them a tile together
        tile_rows = 1
    most_elements = (rule.max_tile_elements or 0) // problem.registers_per_element
    for each in _ever_fewer(tile_rows, problem, device):
        if problem.layout == "rows" or each * problem.width <= most_elements:
            yield from _with_warps(Tiling("tile", each, tile_cols), rule, problem, device)


def _word_by_word(rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of short rows, in pieces of one access per thread, or in one piece.

    They have as many rows as the rule allows, then half as many, and so on.
    """
    if problem.layout not in ("rows", rule.layout) or (problem.ragged and not rule.access):
        return
    num_warps = min(rule.num_warps or 1, max(1, _most_warps(device)))
    accesses = num_warps * (device.hardware.warp_size or 1)
    tile_cols = next_power_of_2(problem.width)
    for tile_rows in _ever_fewer(_gathered(rule.tile_words or 1, _words(problem), problem, device), problem, device):
        piece_cols = max(1, accesses // tile_rows) * problem.vector
        pieces = -(-problem.width // piece_cols)
        tiling = Tiling("tile", tile_rows, tile_cols, num_warps, rule.num_stages or 1)
        tiling = replace(tiling, max_registers=rule.max_registers or None)
        if pieces > 1:
            yield replace(tiling, tile_cols=pieces * piece_cols, pieces=pieces)
        yield tiling


def _ever_fewer(tile_rows: int, problem: Problem, device: Device) -> Iterator[int]:
    """Yields numbers of rows of a tile: as many as there is room for, then half as many, and so on.

    For rows side by side they are whole cache lines.
    """
    fewest, policy = 1, device.profile.launch
    if problem.layout != "rows":
        lines = next_power_of_2(problem.neighbours)
        fewest = min(lines, policy.min_line_elements.value if policy.min_line_elements else 1)
        tile_rows = min(lines, max(tile_rows, policy.line_elements.value if policy.line_elements else 1))
    while tile_rows >= fewest:
        yield tile_rows
        tile_rows //= 2


def _words(problem: Problem) -> int:
    """Returns the 32-bit words of a row, or its accesses if there are more."""
    return max(-(-problem.width * problem.element_bytes // WORD_BYTES), -(-problem.width // problem.vector))


def _gathered(room: int, row_takes: int, problem: Problem, device: Device) -> int:
    """Returns how many rows share a tile: a power of two for which there is room.

    Each multiprocessor must keep enough programs.
    """
    n_rows = MANY_ROWS if problem.batch_invariant else problem.n_rows
    kept = device.profile.launch.min_programs_per_multiprocessor
    programs = (device.hardware.multiprocessor_count or 1) * (kept.value if kept else 1)
    operands = 2 if problem.backward and not problem.across else 1
    fit = max(1, room // (operands * row_takes))
    return min(1 << (fit.bit_length() - 1), next_power_of_2(-(-n_rows // programs)))


def _online(rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tiles of a part of a row, from the widest that the rule allows."""
    line = device.profile.launch.line_elements
    tile_rows = 1 if problem.layout == "rows" else min(next_power_of_2(problem.neighbours), line.value if line else 1)
    widest = max(1, (rule.tile_cols or 1) // (problem.registers_per_element * tile_rows))
    tile_cols = min(widest, next_power_of_2(problem.width))
    yield from _with_warps(Tiling("online", tile_rows, tile_cols), rule, problem, device)
    while (tile_cols := tile_cols // 2) * tile_rows >= min(NARROWEST_TILE, tile_rows * problem.n_cols):
        yield from _with_warps(Tiling("online", tile_rows, tile_cols), rule, problem, device)


def _shared(rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields tilings in which each of several programs takes one part of a row, and holds it or reads it twice."""
    if problem.y_dtype == "float64" or problem.layout not in ("rows", rule.layout):
        return  # a word of the exchange holds a number of 32 bits
    tile_rows = min(rule.tile_rows or 1, next_power_of_2(problem.neighbours))
    yield from (_read_twice if rule.read_twice else _held)(tile_rows, rule, problem, device)


def _held(tile_rows: int, rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields parts of the rule's size, then parts twice as wide with twice the warps, and so on."""
    num_stages = rule.num_stages or 1
    tile_cols, num_warps = rule.tile_cols or 1, rule.num_warps or 1
    while tile_cols < min(problem.width, MOST_ELEMENTS) and num_warps <= _most_warps(device):
        parts = -(-problem.width // tile_cols)
        registers = _registers(rule, num_warps, device)
        tiling = Tiling("shared", tile_rows, tile_cols, num_warps, num_stages, parts, registers)
        if parts <= (rule.most_parts or MOST_PARTS):
            yield from _in_pieces([tiling], rule, problem, device)
            if tiling.tile_cols.bit_count() == 1:
                yield tiling
        tile_cols, num_warps = 2 * tile_cols, 2 * num_warps


def _read_twice(tile_rows: int, rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields parts for as many programs as are resident at once, or whole rows if these are enough.

    They are in pieces, then in pieces of half the width.
    """
    num_warps, elements_per_piece = rule.num_warps or 1, rule.elements_per_piece or 1
    if num_warps > _most_warps(device):
        return
    used = KernelResources(num_warps, rule.max_registers or None)
    resident = device.resident(device.vendor.occupancy(used, device.hardware))
    tiles = MANY_ROWS if problem.batch_invariant else problem.tiles(tile_rows)
    most = max(1, min(resident // tiles, rule.most_parts or MOST_PARTS))
    threads = num_warps * (device.hardware.warp_size or 1)
    for elements in (elements_per_piece, elements_per_piece // 2):
        piece_cols = max(problem.vector if problem.ragged else 1, elements * threads // tile_rows)
        pieces = -(-problem.width // (most * piece_cols))
        tiling = Tiling("online", tile_rows, piece_cols, num_warps, rule.num_stages or 1, held=False)
        tiling = replace(tiling, max_registers=rule.max_registers or None)
        parts = -(-problem.width // (pieces * piece_cols))
        if parts > 1:
            tiling = replace(tiling, strategy="shared", tile_cols=pieces * piece_cols, parts=parts, pieces=pieces)
        yield tiling


def _with_warps(tiling: Tiling, rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields the tiling with the rule's warps, or with those that hold its elements and with twice as many; in pieces first."""
    tiling = replace(tiling, max_registers=rule.max_registers or None)
    most = _most_warps(device)
    if rule.num_warps and most:
        tiling = replace(tiling, num_warps=min(rule.num_warps, most), num_stages=rule.num_stages or 1)
        yield from list(_in_pieces([tiling], rule, problem, device)) or [tiling]
        return
    if not rule.elements_per_thread or not device.hardware.warp_size or not most:
        yield tiling
        return
    elements = tiling.tile_rows * tiling.tile_cols * problem.registers_per_element
    wanted = round(elements / rule.elements_per_thread / device.hardware.warp_size)
    num_warps = min(most, next_power_of_2(max(1, wanted)))
    twice = sorted({num_warps, min(2 * num_warps, most)})
    tilings = [replace(tiling, num_warps=each, num_stages=rule.num_stages or 1) for each in twice]
    if tiling.strategy == "tile" and (rule.layout or problem.layout == "rows"):
        halved = [replace(each, num_warps=max(1, (each.num_warps or 1) // 2)) for each in tilings]
        starts_anywhere = problem.ragged or (problem.across and problem.vector == 1)  # narrower pieces are read better then
        most_cols = tiling.tile_cols if starts_anywhere else tiling.tile_cols - 1
        yield from (each for each in _in_pieces(halved, rule, problem, device) if each.tile_cols <= most_cols)
    yield from tilings


def _in_pieces(tilings: Iterable[Tiling], rule: LaunchRule, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Yields the tilings with their columns in pieces.

    Their number of columns need not be a power of two, so less of a tile lies past the row.
    """
    if not rule.elements_per_piece or not device.hardware.warp_size:
        return
    for tiling in tilings:
        threads = (tiling.num_warps or 1) * device.hardware.warp_size
        piece_cols = max(problem.vector if problem.ragged else 1, rule.elements_per_piece * threads // tiling.tile_rows)
        pieces = -(-problem.width // (tiling.parts * piece_cols))
        if pieces > 1:
            yield replace(tiling, tile_cols=pieces * piece_cols, pieces=pieces)


def _registers(rule: LaunchRule, num_warps: int, device: Device) -> int | None:
    """Returns the registers per thread that the rule allows; None leaves the number to the compiler.

    It is None if the warps cannot have so many.
    """
    threads = num_warps * (device.hardware.warp_size or 1)
    there = (device.hardware.registers_per_multiprocessor or 0) // threads
    return rule.max_registers if rule.max_registers and rule.max_registers <= there else None


def _most_warps(device: Device) -> int:
    """Returns the most warps that one program may have."""
    return (device.hardware.max_threads_per_program or 0) // (device.hardware.warp_size or 1)
