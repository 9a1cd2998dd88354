"""The candidates of a plan: how rows may be cut into tiles, in the order of a profile's preferences."""

from collections.abc import Iterator
from dataclasses import replace

from portable_softmax.device import Device
from portable_softmax.problem import Problem, Tiling

NARROWEST_ONLINE_TILE = 1024  # columns; below it a candidate is not worth compiling
COALESCED = 32  # elements of a line of a tile, where rows lie side by side: 128 bytes of float32
NARROWEST_LINE = 8  # of them: 32 bytes of float32, the least that memory moves
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
        tile_rows = 1 if problem.ragged else _shared_rows(n_rows, tile_cols * width / problem.elements_at_once, device)
        yield from _prefetching(problem, tile_rows, tile_cols, device)
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
    """Rows that fit no tile, or too few to occupy the device: a tile for each of several programs."""
    policy = device.profile.launch
    if not policy.split or not policy.split_from_cols or not policy.split_tile_cols:
        return
    multiprocessors = device.hardware.multiprocessor_count or 1
    few = problem.n_rows <= multiprocessors and problem.n_cols >= policy.split_from_cols.value and not problem.batch_invariant
    long = problem.n_cols * (2 if problem.backward else 1) > policy.max_tile_cols.value and policy.split.value == "cooperative"
    if problem.y_dtype == "float64" or not (few or long):  # a word of the exchange holds two numbers of 32 bits
        return
    tile_cols = policy.split_tile_cols.value
    while few and tile_cols > NARROWEST_ONLINE_TILE and -(-problem.width // tile_cols) * problem.n_rows * 2 <= multiprocessors:
        tile_cols //= 2
    num_warps = policy.split_num_warps.value if policy.split_num_warps else None
    for strategy in ("cooperative", "split") if policy.split.value == "cooperative" else ("split",):
        for scale in (1, 2, 4) if strategy == "cooperative" or few else ():
            parts = -(-problem.width // (scale * tile_cols))
            yield Tiling(strategy, 1, scale * tile_cols, num_warps and scale * num_warps, 1, parts)


def _prefetching(problem: Problem, tile_rows: int, tile_cols: int, device: Device) -> Iterator[Tiling]:
    """While a 16-bit row fills the registers with its 32-bit copy, nothing overlaps but the next rows' loads."""
    policy = device.profile.launch
    if not policy.prefetch_from_cols or not policy.prefetch_stages or problem.y_dtype not in SIXTEEN_BITS or problem.backward:
        return
    if tile_cols >= policy.prefetch_from_cols.value:
        for tiling in _with_warps("tile", tile_rows, tile_cols, problem, device):
            yield replace(tiling, num_stages=policy.prefetch_stages.value)


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
