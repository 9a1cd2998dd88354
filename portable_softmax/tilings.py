"""The candidates of a plan: how rows may be cut into tiles, in the order of a profile's preferences."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.device import Device
from portable_softmax.problem import Problem, Tiling

NARROWEST_ONLINE_TILE = 1024  # columns; below it a candidate is not worth compiling
COALESCED = 32  # elements of a line of a tile, where rows lie side by side: 128 bytes of float32
NARROWEST_LINE = 8  # of them: 32 bytes of float32, the least that memory moves
MOST_PARTS = 64  # of a row: each lane of a warp looks at one or two
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
    for scale in (1, 2, 4):
        parts = -(-problem.width // (scale * tile_cols))
        tiling = Tiling(strategy, 1, scale * tile_cols, num_warps and scale * num_warps, 1, parts)
        threads = (tiling.num_warps or 0) * (hardware.warp_size or 0)
        if parts == 1 or tiling.tile_cols > MOST_ELEMENTS or threads > (hardware.max_threads_per_program or threads):
            return
        padded = problem.width % tiling.tile_cols != 0  # its mask takes registers too
        if policy.split_max_registers and padded and not problem.backward:
            yield replace(tiling, max_registers=policy.split_max_registers.value)
        yield tiling


def _is_long(problem: Problem, device: Device) -> bool:
    """Whether a row in one tile leaves too few registers to work on several at once.

    Operands of a gradient and of 16-bit types take twice as many for what is read, and a padded tile up to twice as many
    as it needs. Source: scripts/tune.py on one H200, Triton 3.6.0, 2026-11-21, in GB/s: float32 of 32768 columns 4095 in a
    tile and 3878 shared, of 12672 3968 and less than 3630; bfloat16 of 16384 columns 3706 and 3577, of 8320 2591 and 3198,
    of 32768 3217 and 3687; the gradient of 12672 in float32 4189 and less than 4025, of 32768 3666 and 4093.
    """
    halvings = (problem.y_dtype in SIXTEEN_BITS) + (problem.backward or next_power_of_2(problem.width) > problem.n_cols)
    return problem.n_cols > device.profile.launch.max_tile_cols.value >> halvings


def _shared_rows(n_rows: int, row_registers: float, device: Device) -> int:
    """Rows of a tile: short rows share one, as long as every multiprocessor still gets a tile."""
    share = -(-n_rows // (device.hardware.multiprocessor_count or 1))
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
    for num_warps in sorted({wanted, min(2 * wanted, most)}):
        yield Tiling(strategy, tile_rows, tile_cols, num_warps, num_stages)


def next_power_of_2(value: int) -> int:
    return 1 << (value - 1).bit_length()
