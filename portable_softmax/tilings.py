"""The candidates of a plan: how rows may be cut into tiles, in the order of a profile's preferences."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from portable_softmax.device import Device
from portable_softmax.problem import Problem, Tiling

NARROWEST_ONLINE_TILE = 1024  # columns; below it a candidate is not worth compiling
COALESCED = 32  # elements of a line of a tile, where rows lie side by side: 128 bytes of float32
NARROWEST_LINE = 8  # of them: 32 bytes of float32, the least that memory moves
MOST_PARTS = 64  # of a row: each lane of a warp looks at one or two
PIECE_ELEMENTS = 8  # of a piece, that a thread holds: one vector of a 16-bit type, two of float32
LOOSER = 16  # registers more per thread, where a mask or a wider type needs them
MOST_ELEMENTS = 2**20  # of a tile, in any Triton
MANY_ROWS = 2**31  # what a batch-invariant tile is chosen for
SIXTEEN_BITS = ("float16", "bfloat16")


def candidates(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Tilings in order of preference: whole rows, fewer of them, with more warps; then rows in ever narrower tiles."""
    if problem.across:
        yield from _candidates_across(problem, device)
        return
    policy = device.profile.launch
    width = problem.registers_per_element
    yield from _split(problem, device)
    tile_cols = next_power_of_2(problem.width)
    if tile_cols * width <= policy.max_tile_cols.value:
        n_rows = MANY_ROWS if problem.batch_invariant else problem.n_rows
        held = tile_cols * width * (2 if problem.backward else 1) / problem.elements_at_once
        tile_rows = 1 if problem.ragged else _shared_rows(n_rows, held, device)
        while tile_rows:
            yield from _with_warps("tile", tile_rows, tile_cols, problem, device)
            tile_rows //= 2
    tile_cols = min(policy.online_tile_cols.value // width, next_power_of_2(problem.width))
    while tile_cols >= min(NARROWEST_ONLINE_TILE, problem.n_cols):
        yield from _with_warps("online", 1, tile_cols, problem, device)
        tile_cols //= 2


def _candidates_across(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Where rows lie side by side, a tile's lines should fill whole accesses before its rows are whole."""
    policy = device.profile.launch
    width = problem.registers_per_element
    lines = next_power_of_2(problem.inner)
    tile_cols = next_power_of_2(problem.n_cols)
    tile_rows = min(lines, max(COALESCED, _shared_rows(problem.n_rows, tile_cols * width, device)))
    while tile_rows >= min(NARROWEST_LINE, lines):
        if tile_cols * tile_rows * width <= policy.max_tile_cols.value:
            yield from _with_warps("tile", tile_rows, tile_cols, problem, device)
        tile_rows //= 2
    tile_rows = min(lines, COALESCED)
    tile_cols = min(max(1, policy.online_tile_cols.value // (width * tile_rows)), tile_cols)
    while tile_cols * tile_rows >= min(NARROWEST_ONLINE_TILE, tile_rows * problem.n_cols):
        yield from _with_warps("online", tile_rows, tile_cols, problem, device)
        tile_cols //= 2


def _split(problem: Problem, device: Device) -> Iterator[Tiling]:
    """Long rows, and rows too few to occupy the device: a tile for each of several programs."""
    policy, hardware = device.profile.launch, device.hardware
    if not policy.split or not policy.split_from_cols or not policy.split_tile_cols or problem.y_dtype == "float64":
        return  # a word of the exchange holds two numbers of 32 bits
    few = problem.n_rows <= (hardware.multiprocessor_count or 1) and not problem.batch_invariant
    few = few and problem.n_cols >= policy.split_from_cols.value
    if policy.split.value == "cooperative" and (few or _is_long(problem, device)):
        yield from _in_parts("cooperative", problem, device)
    if few:
        yield from _in_parts("split", problem, device)


def _in_parts(strategy: str, problem: Problem, device: Device) -> Iterator[Tiling]:
    """Of a row: in tiles of the policy's size, or wider ones where that makes too many parts; then in wider ones still."""
    policy, hardware = device.profile.launch, device.hardware
    tile_cols, num_warps = policy.split_tile_cols.value, policy.split_num_warps.value if policy.split_num_warps else None
    while problem.width > MOST_PARTS * tile_cols:
        tile_cols, num_warps = 2 * tile_cols, num_warps and 2 * num_warps
    most = (hardware.max_threads_per_program or 0) // (hardware.warp_size or 1)
    if num_warps and _leaves_room(problem, tile_cols // num_warps, device):
        num_warps = min(2 * num_warps, most)
    for scale in (1, 2, 4):
        parts = -(-problem.width // (scale * tile_cols))
        tiling = Tiling(strategy, 1, scale * tile_cols, num_warps and scale * num_warps, 1, parts)
        if parts == 1 or tiling.tile_cols > MOST_ELEMENTS or (tiling.num_warps or 0) > most:
            return
        for each in (*_in_pieces([tiling], problem, device), tiling):
            yield from _held_to_registers(each, problem, device)
            yield each


def _leaves_room(problem: Problem, warp_elements: int, device: Device) -> bool:
    """Whether its rows occupy at most an eighth of the warps that the device holds; twice as many have less to do each.

    Source: a sweep on one H200, 2026-11-21: float32 (32, 32000) 1008 GB/s so, 920 otherwise; bfloat16 (16, 128256) 943 and 860.
    A single warp that was not held to few registers was as fast there (1008, 947).
    """
    warps = -(-problem.n_rows * problem.width // warp_elements)
    most = (device.hardware.multiprocessor_count or 0) * (device.hardware.max_warps_per_multiprocessor or 0)
    return not problem.batch_invariant and 8 * warps <= most


def _held_to_registers(tiling: Tiling, problem: Problem, device: Device) -> Iterator[Tiling]:
    if (least := device.profile.launch.max_registers) and not problem.backward:
        yield replace(tiling, max_registers=least.value)
        yield replace(tiling, max_registers=least.value + LOOSER)


def _is_long(problem: Problem, device: Device) -> bool:
    """Whether a row in one tile leaves too few registers to work on several at once.

    Operands of a gradient take twice as many, those of 16-bit types more for what is read. Source: scripts/tune.py on one
    H200, Triton 3.6.0, 2026-11-21, in GB/s, in a tile and shared: float32 of 32768 columns 4096 and 3862, its gradient 3666
    and 4089, of 16384 4203 and 3999; bfloat16 of 20000 columns 3846 and 3655, of 32768 3211 and 3741, its gradient of 12672
    3959 and 3721.
    """
    limit = device.profile.launch.max_tile_cols.value
    if problem.backward:
        return problem.n_cols > limit // 2
    return problem.n_cols > (limit * 3 // 4 if problem.y_dtype in SIXTEEN_BITS else limit)


def _shared_rows(n_rows: int, row_registers: float, device: Device) -> int:
    """Rows of a tile: short rows share one, as long as every multiprocessor still gets half of the programs that it holds.

    Source: scripts/tune.py on one H200, 2026-11-21: float32 (4096, 256) 1254 GB/s with 2 rows, 1168 with 4.
    """
    hardware = device.hardware
    programs = (hardware.multiprocessor_count or 1) * max(1, (hardware.max_programs_per_multiprocessor or 1) // 2)
    share = -(-n_rows // programs)
    return min(max(1, int(device.profile.launch.tile_elements.value // row_registers)), next_power_of_2(share))


def _with_warps(strategy: str, tile_rows: int, tile_cols: int, problem: Problem, device: Device) -> Iterator[Tiling]:
    policy, hardware = device.profile.launch, device.hardware
    if not policy.elements_per_thread or not hardware.warp_size or not hardware.max_threads_per_program:
        yield Tiling(strategy, tile_rows, tile_cols, None, None)
        return
    num_stages = policy.num_stages.value if policy.num_stages else 1
    most = hardware.max_threads_per_program // hardware.warp_size
    registers = tile_rows * tile_cols * problem.registers_per_element / problem.elements_at_once
    threads = registers / policy.elements_per_thread.value
    wanted = min(most, next_power_of_2(max(1, round(threads / hardware.warp_size))))
    tilings = [Tiling(strategy, tile_rows, tile_cols, each, num_stages) for each in sorted({wanted, min(2 * wanted, most)})]
    if strategy == "tile" and not problem.across:
        yield from _in_pieces(tilings, problem, device)
    yield from tilings


def _in_pieces(tilings: Iterable[Tiling], problem: Problem, device: Device) -> Iterator[Tiling]:
    """Those that are less padded, or shared, in pieces of which a thread takes 8 elements, for half the threads.

    Where 16-bit rows fill a tile, pieces still leave room for one program more, if the compiler is held to few registers.
    Source: scripts/tune.py on one H200, Triton 3.6.0, 2026-11-21, in GB/s, in one piece and in several: bfloat16 (4096, 10240)
    2849 and 3657, (4096, 14336) 3465 and 3774, (16384, 16384) 3960 and, in another run, 4079; float32 (4096, 24576) 3880 and
    4059, the gradient of (4096, 8320) 3894 and 4077; shared by programs, bfloat16 (1024, 50257) 3168 and 3416. With all
    threads, float32 (4096, 20000) 3781, not 4044. A warp alone, in pieces of 8 elements a thread and of one vector: float32
    (4096, 640) 2054 and 2199; the gradient of (4096, 384) 1893, padded, and 2006.
    """
    limit = device.profile.launch.max_tile_cols.value
    for tiling in tilings:
        if not tiling.num_warps or not device.hardware.warp_size:
            continue
        num_warps = tiling.num_warps if tiling.parts > 1 else max(1, tiling.num_warps // 2)
        alone = tiling.parts == num_warps == 1 and not problem.ragged
        elements = problem.widest if alone else PIECE_ELEMENTS
        piece_cols = max(1, elements * device.hardware.warp_size * num_warps // tiling.tile_rows)
        pieces = -(-problem.width // (tiling.parts * piece_cols))
        found = replace(tiling, tile_cols=pieces * piece_cols, num_warps=num_warps, pieces=pieces)
        if pieces > 1 and (tiling.parts > 1 or found.tile_cols < tiling.tile_cols):
            yield found
        elif pieces > 1 and problem.y_dtype in SIXTEEN_BITS and 4 * problem.width > limit:
            yield from _held_to_registers(found, problem, device)


def next_power_of_2(value: int) -> int:
    return 1 << (value - 1).bit_length()
